"""The steps of index work under the table's lock, each whole or not at all.

The table's configuration names an index only while its files are complete. So whatever step is the last one of a
process that dies, no reader and no writer, of lakebed or of another engine, ever trusts half an index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, count

from lakebed.errors import CommitUnknownError, LockUnavailableError, WriteConflictError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.index_definitions import decode_index_definitions, encode_index_definitions
from lakebed.format.metadata.keys import group_index
from lakebed.format.timeline.metadata import encode_commit
from lakebed.metadata.bootstrap import reserved_instant
from lakebed.metadata.table import BUILD_OPERATION, ROOT
from lakebed.model.commit import CommitMetadata, WriteStat, stats_by_partition
from lakebed.model.config import INDEX_BUILDS, INDEX_CHANGES, LOST_PARTITIONS
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Storage, Ticket
from lakebed.storage.confirm import delete_file, swap_shared_file
from lakebed.table import TableState
from lakebed.table.definitions import load_stored
from lakebed.timeline import Archive
from lakebed.transaction.config import change_config
from lakebed.transaction.rollback import targets_of_rollbacks, undo_metadata
from lakebed.transaction.section import Section, end_tickets, lost_lock, revoke_tickets

_READY, _INFLIGHT = "hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight"
_OWN = "lakebed.metadata.partitions"
_DEFINITIONS = "hoodie.table.index.defs.path"
_NUMBERS = 1000
"""Other engines know as many reserved instants. After so many builds the first free number is used again."""
_CHECKSUM = re.compile(r"\A\.(.+)\.crc\Z", re.DOTALL)
"""Hadoop's name for the checksum of a file, which it keeps beside it on local disks."""


def fresh_state(table: TableState, section: Section) -> TableState:
    """The table as the section sees it, with its metadata table whatever the options of reads say."""
    return table.afresh(section.config, section.timeline)


def check_no_rollback(section: Section) -> None:
    """Raises while a completed write is about to be rolled back: an index must not be built from its rows."""
    undone = targets_of_rollbacks(section)
    target = next((i.requested_at for i in section.timeline.commits() if i.requested_at in undone), None)
    if target is not None:
        raise WriteConflictError(
            f"the write {target} is about to be rolled back",
            hint="run the call again when it is; if the process died that did it, "
            "services.rollback_failed_writes() goes on with it",
        )


def reserve_build(section: Section) -> InstantTime:
    """The instant of the next partition that is built: a reserved one that no build has used.

    The number is noted in the config, so that it is not used again if the build is taken back: what a dead process had
    under way may still come, and a file is visible if its instant is.
    """
    active = {i.requested_at for i in section.metadata_timeline}
    archive = Archive(section.ports.storage, section.config, ROOT)
    numbers = chain(range(section.config.index_builds, _NUMBERS), count())
    free = (n for n in numbers if reserved_instant(n) not in active and not archive.completions([reserved_instant(n)]))
    number = next(free)
    change_config(section, {INDEX_BUILDS: str(number + 1)})
    return reserved_instant(number)


@contextmanager
def delta_commit(section: Section, instant: InstantTime) -> Iterator[tuple[Ticket, Storage]]:
    """A delta commit of the metadata table, in flight until `complete_commit`; undone if what is done in it fails.

    Its files are created through the store that comes with its ticket: once it is undone, another one may have its
    instant, and late files would count in that. It has no twin on the table: if this process dies, the next writer
    undoes it.
    """
    ticket = section.take_on(instant)
    for state in (State.REQUESTED, State.INFLIGHT):
        section.add(Instant(instant, Action.DELTA_COMMIT, state), root=ROOT)
    try:
        yield ticket, section.fenced(ticket)
    except CommitUnknownError:
        raise  # It may have taken place: nothing may be deleted.
    except Exception:
        revoke_tickets(section.ports, instant)
        undo_metadata(section, instant)
        raise


def complete_commit(
    section: Section, ticket: Ticket, instant: InstantTime, stats: Sequence[WriteStat], extra: Mapping[str, str]
) -> None:
    """Publishes a delta commit of the metadata table that wrote base files of one partition."""
    metadata = CommitMetadata(stats_by_partition(stats), operation=BUILD_OPERATION, extra_metadata=extra)
    done = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, section.next_time())
    publish(section, ticket, done, encode_commit(metadata, replace=False), ROOT)


def set_ready(section: Section, partitions: Iterable[str], *, dropped: Iterable[str] = ()) -> None:
    """Makes these the metadata-table partitions that the table's configuration names as ready.

    One that another process is building stays marked as such, unless it is among these or `dropped`. Of an index whose
    definition has a window other engines are not told: they would take it for complete. One that the configuration
    named before, and that is not `dropped`, is noted as lost, until it is ready again: whatever becomes of this
    process, the next one knows that it is to be built anew.
    """
    defined = load_stored(section.ports.storage, section.config)
    own = [name for name, definition in defined.items() if definition.window is not None]
    names, gone = sorted(set(partitions)), frozenset(dropped)
    changes = {
        _READY: ",".join(name for name in names if name not in own),
        _INFLIGHT: ",".join(n for n in section.config.metadata_partitions_inflight if n not in {*names, *gone}),
        _DEFINITIONS: section.config.index_definitions_path,
    }
    if own or section.config.own_partitions:
        changes[_OWN] = ",".join(name for name in names if name in own)
    if not {*section.config.metadata_partitions} <= {*names}:
        changes[INDEX_CHANGES] = str(section.config.index_changes + 1)
    lost = {*section.config.metadata_partitions, *section.config.lost_partitions} - {*names, *gone}
    if lost or section.config.properties.get(LOST_PARTITIONS):
        changes[LOST_PARTITIONS] = ",".join(sorted(lost))
    change_config(section, changes)


def set_building(section: Section, partition: str, *, building: bool) -> None:
    """Marks a partition of the metadata table as being built, or takes the mark away.

    Of an index for lakebed alone, other engines are not told: writers of ours know of it by its plan.
    """
    names = [name for name in section.config.metadata_partitions_inflight if name != partition]
    definition = stored_definitions(section).get(partition)
    if building and (definition is None or definition.window is None):
        names.append(partition)
    if names != [*section.config.metadata_partitions_inflight]:
        change_config(section, {_INFLIGHT: ",".join(names)})


def stored_definitions(section: Section) -> dict[str, IndexDefinition]:
    """The definitions of indexes, by metadata-table partition."""
    return load_stored(section.ports.storage, section.config)


def store_definition(section: Section, name: str, definition: IndexDefinition | None) -> None:
    """Puts the definition of an index into index.json, or takes it out."""
    path, storage = section.config.index_definitions_path, section.ports.storage
    written = storage.find_with_etag(path)
    after = {key: value for key, value in stored_definitions(section).items() if key != name}
    if definition is not None:
        after[name] = definition
    if after == ({} if written is None else decode_index_definitions(written[0], path=path)):
        return
    section.check_lease()
    if not swap_shared_file(storage, path, encode_index_definitions(after), None if written is None else written[1]):
        raise lost_lock(section.ports)


def clear_partition(section: Section, mdt_partition: str, keep: InstantTime | None = None) -> None:
    """Deletes the files of a metadata-table partition that is not ready, all but those of the instant `keep`.

    Shards go in order, the first one first: a reader that still believes in the index then finds that shards are
    missing, never a smaller number of them, over which it would look for keys in the wrong places.
    """
    storage, found = section.ports.storage, []
    for listed in storage.list(f"{ROOT}{mdt_partition}", recursive=True):
        file = decode_data_file_name(_CHECKSUM.sub(r"\1", listed.path.rpartition("/")[2]))
        stays = keep is not None and (file is None or file.instant == keep)
        if not stays:
            shard = None if file is None else group_index(file.file_id)
            found.append((shard is None, shard or 0, listed.path))
    section.check_lease()  # What was listed is of before: a later index has files with other names.
    for _, _, path in sorted(found):
        delete_file(storage, path)


def publish(section: Section, ticket: Ticket, done: Instant, data: bytes, root: str) -> None:
    """Publishes a completed instant of index work and ends its tickets; raises unless that is certain."""
    outcome = section.complete(ticket, done, data, root)
    if outcome is Outcome.UNKNOWN:
        raise CommitUnknownError(
            f"the store did not confirm whether {done.action} {done.requested_at} completed",
            hint="run the call again: it checks the outcome, and starts over if necessary",
        )
    if outcome is Outcome.REFUSED:
        raise LockUnavailableError(
            f"{section.ports.storage.url}: the table's lock was taken over", hint="run the call again"
        )
    end_tickets(section.ports, done.requested_at)
