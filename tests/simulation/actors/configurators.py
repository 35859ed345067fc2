"""Another engine that adds an index to the table and takes it away again.

It replaces the table's config as that engine does: a backup is made, the original removed and written again. Whoever
comes after a crash in between restores it first.
"""

from __future__ import annotations

from lakebed.errors import LakebedError
from lakebed.format.properties import encode_properties
from lakebed.metadata.bootstrap import group_ids
from lakebed.model.commit import CommitMetadata
from lakebed.storage.confirm import create_file, delete_file
from lakebed.timeline.config import BACKUP, PROPERTIES
from lakebed.transaction.section import METADATA, Section

from ..actor import Actor, once, register
from ..client import Client
from ..table import STATS, encode_entries

_BUILT_AT = "00000000000000003"


def run_configurator(client: Client, delay_ms: int) -> None:
    """Builds the index and says so in the config, under the lock; or takes it out."""
    client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
    try:
        with client.transactions.section() as section:
            _restore_config(client)
            partitions = [name for name in section.config.metadata_partitions if name != STATS]
            if partitions and STATS not in section.config.metadata_partitions and client.dice.random() < 0.8:
                _build(client, section)
                partitions.append(STATS)
            changed = {**section.config.properties, "hoodie.table.metadata.partitions": ",".join(partitions)}
            _replace_config(client, changed)
            client.world.reached["config changed"] += 1
    except LakebedError:
        client.world.reached["configurator gave up"] += 1


def _restore_config(client: Client) -> None:
    storage = client.storage
    if storage.find(PROPERTIES) is None:
        create_file(storage, PROPERTIES, storage.get(BACKUP))
    delete_file(storage, BACKUP)


def _replace_config(client: Client, changed: dict[str, str]) -> None:
    storage = client.storage
    create_file(storage, BACKUP, storage.get(PROPERTIES))
    delete_file(storage, PROPERTIES)
    create_file(storage, PROPERTIES, encode_properties(changed, comment="simulated", date="later"))
    delete_file(storage, BACKUP)


def _build(client: Client, section: Section) -> None:
    """One shard, by a delta commit that no write owns. It knows no file that was there before: nobody asks."""
    [file_id] = group_ids(STATS, 1)
    create_file(client.storage, f"{METADATA}{STATS}/.{file_id}_{_BUILT_AT}.log.1_0-0-1", encode_entries(()))
    if any(i.requested_at == _BUILT_AT and i.is_completed for i in section.metadata_timeline):
        return  # Of a time before, when it was taken out and left lying.
    done = client.invariants.codec.encode_commit(CommitMetadata(operation="UPSERT_PREPPED"), replace=False)
    folder, completed = f"{METADATA}.hoodie/timeline/{_BUILT_AT}", f"_{section.next_time()}.deltacommit"
    for name, data in ((".deltacommit.requested", b""), (".deltacommit.inflight", b""), (completed, done)):
        create_file(client.storage, f"{folder}{name}", data)


register(
    Actor(
        "configurator",
        lambda setup: "configurator" in setup.foreigners,
        lambda client, _: run_configurator(client, 3_000),
        restarts=once,
        is_foreign=True,
    )
)
