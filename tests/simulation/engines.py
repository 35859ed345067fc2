"""Another engine at work on the table for some time: it builds an index, or executes a plan, and beats no heart.

What it has made must be there when it looks again. In the end it gives up and takes its work away, so that the table is
as it would be without it.
"""

from __future__ import annotations

from contextlib import suppress

from lakebed.errors import LakebedError
from lakebed.format.file_names import encode_log_file_name
from lakebed.format.timeline.metadata import encode_index_plan
from lakebed.model.commit import IndexedPartition, IndexPlan
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage.confirm import create_file, delete_file
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.config import change_config
from lakebed.transaction.section import METADATA, Section

from .actors import Client
from .invariants import require
from .services import execute_plan, plan_service
from .table import BUILT

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
        change_config(section, {_INFLIGHT: partition})


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
        if path.startswith(f"{METADATA}{BUILT}/") and path not in made:
            require(stored.data == str(SHARDS).encode(), "I18", f"{path} was hashed over {stored.data!r} shards")


def give_up_build(client: Client) -> None:
    """Takes away what there is of a build: its name, its plan, its files."""
    with client.transactions.section() as section:
        if section.config.metadata_partitions_inflight:
            change_config(section, {_INFLIGHT: ""})
        for listed in client.storage.list(f"{METADATA}{BUILT}"):
            delete_file(client.storage, listed.path)
        for state in ("inflight", "requested"):
            delete_file(client.storage, f"{METADATA}.hoodie/timeline/{BUILD}.deltacommit.{state}")
        for plan in [i for i in section.timeline.pending() if i.action is Action.INDEXING]:
            section.remove_pending(plan.requested_at, Action.INDEXING)


def run_rival(client: Client, delay_ms: int) -> None:
    """Plans a compaction, begins it when it has waited for long, is at it for less than the delay, and gives it up."""
    client.world.scheduler.sleep(client.dice.randint(1, 2_000))
    try:
        planned = plan_service(client, Action.COMPACTION)
        if planned is None:
            return
        plan = Instant(planned, Action.COMPACTION, State.REQUESTED)
        client.world.scheduler.sleep(delay_ms + 1_000)
        with client.transactions.section() as section:
            if not _is_free(section, plan):
                return
            inflight = Instant(planned, Action.COMPACTION, State.INFLIGHT)
            begun_ms = client.world.now_ms
            create_file(client.storage, section.path(inflight), b"")
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms // 2))
        is_there = section.path(inflight) in client.world.store.files
        stood_still = client.world.now_ms - begun_ms >= delay_ms
        require(
            is_there or stood_still, "I19 age", f"{inflight.requested_at} was undone while another engine was at it"
        )
        client.world.reached["plan begun elsewhere"] += 1
        with client.transactions.section() as section:
            # Who stood still may find another attempt in its place.
            if client.world.now_ms - begun_ms < delay_ms and inflight in section.timeline.pending():
                section.remove(inflight)
    except LakebedError:
        client.world.reached["rival gave up"] += 1


def run_late(client: Client, delay_ms: int) -> None:
    """Executes plans that have waited for long."""
    client.world.scheduler.sleep(delay_ms + client.dice.randint(1_000, delay_ms // 2))
    with suppress(LakebedError):
        pending = load_timeline(client.storage, load_config(client.storage)).pending()
        for plan in [i for i in pending if i.action is Action.COMPACTION]:
            execute_plan(client, plan)
    client.check_no_timers()


def _is_free(section: Section, plan: Instant) -> bool:
    return plan in section.timeline.pending() and plan.requested_at not in section.heartbeats
