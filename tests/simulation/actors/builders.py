"""Another engine that builds an index for some time, without a heartbeat.

What it has made must be there when it looks again. In the end it gives up and takes its work away, so that the table is
as it would be without it.
"""

from __future__ import annotations

from lakebed.errors import LakebedError
from lakebed.format.file_names import encode_log_file_name
from lakebed.format.properties import PARTITION_METAFILE
from lakebed.format.timeline.metadata import decode_index_plan, encode_index_plan
from lakebed.model.commit import IndexedPartition, IndexPlan
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage.confirm import create_file, delete_file
from lakebed.transaction.config import change_config
from lakebed.transaction.section import METADATA, Section

from ..actor import Actor, never, register
from ..client import Client
from ..invariants import require
from ..setup import Setup
from ..table import BUILT, merge_entries, shard_of_key

SHARDS = 3
BUILD = InstantTime("00000000000000007")
_INFLIGHT = "hoodie.table.metadata.partitions.inflight"


def run_builder(client: Client, delay_ms: int) -> None:
    """Builds an index without the lock, looks whether all of it is there, and takes it away again."""
    client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
    try:
        give_up_build(client)  # What one before left.
        with client.transactions.section() as section:
            plan = Instant(section.next_time(), Action.INDEXING, State.REQUESTED)
            section.request(plan, encode_index_plan(IndexPlan((IndexedPartition(BUILT, ""),))))
        create_file(client.storage, f".hoodie/timeline/{plan.requested_at}.indexing.inflight", b"")
        _name(client, BUILT)
        made = _make(client, delay_ms)
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        _check(client, made)
        client.world.reached["index built elsewhere"] += 1
        give_up_build(client)
    except LakebedError:
        client.world.reached["builder gave up"] += 1


def _name(client: Client, partition: str) -> None:
    with client.transactions.section() as section:
        change_config(section, {_INFLIGHT: ",".join((*section.config.metadata_partitions_inflight, partition))})


def _make(client: Client, delay_ms: int) -> list[str]:
    """The shards, one after the other, and only then the delta commit that fills them."""
    made = []
    for number in range(SHARDS):
        name = encode_log_file_name(f"record-index-{number:04d}-0", BUILD, 1, "0-0-0")
        made.append(f"{METADATA}{BUILT}/{name}")
        create_file(client.storage, made[-1], b"")
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms // SHARDS))
    for state in ("requested", "inflight"):
        made.append(f"{METADATA}.hoodie/timeline/{BUILD}.deltacommit.{state}")
        create_file(client.storage, made[-1], b"")
    return made


def _check(client: Client, made: list[str]) -> None:
    files = client.world.store.files
    lost = [path for path in made if path not in files]
    require(not lost, "I19", f"{lost} of an index that is being built is gone")
    for path, stored in files.items():
        if path.startswith(f"{METADATA}{BUILT}/") and path not in made and not path.endswith(PARTITION_METAFILE):
            number = int(path.rpartition("/")[2].split("-")[2])
            places = merge_entries([stored.data])[1]
            wrong = [key for key in places if shard_of_key(key, SHARDS) != number]
            require(not wrong, "I18", f"{path} has {wrong[:1]}, which belongs to another shard")


def give_up_build(client: Client) -> None:
    """Takes away what there is of a build: its name, its plan, its files."""
    with client.transactions.section() as section:
        named = section.config.metadata_partitions_inflight
        if BUILT in named:
            change_config(section, {_INFLIGHT: ",".join(name for name in named if name != BUILT)})
        for listed in client.storage.list(f"{METADATA}{BUILT}"):
            delete_file(client.storage, listed.path)
        for state in ("inflight", "requested"):
            delete_file(client.storage, f"{METADATA}.hoodie/timeline/{BUILD}.deltacommit.{state}")
        for plan in [i for i in section.timeline.pending() if i.action is Action.INDEXING]:
            if _is_own(section, plan):
                section.remove_pending(plan.requested_at, Action.INDEXING)


def _is_own(section: Section, plan: Instant) -> bool:
    """Indexers of ours leave plans, too."""
    path = section.path(Instant(plan.requested_at, Action.INDEXING, State.REQUESTED))
    planned = decode_index_plan(section.ports.storage.get(path), path=path)
    return any(each.partition == BUILT for each in planned.partitions)


def _count(setup: Setup) -> int:
    return setup.has_builder and setup.keeps_metadata


def _finish(client: Client) -> None:
    if client.setup.has_builder:
        give_up_build(client)


register(Actor("builder", _count, lambda client, _: run_builder(client, 6_000), finish=_finish, restarts=never))
