"""Replaces the base files and shards of an index while writers continue.

Every engine finds the shards of an index by listing them, so old and new ones cannot exist side by side. First all
entries are staged, without the lock, as base files in a folder of this machine; a crash leaves nothing behind. Then,
under the lock, a delta commit of the metadata table gives every shard a new base file:

    1  catching up       finds what writes have added since the copy began
    2  delta commit t    is requested and in flight
    3  base files        of existing shards; invisible to readers, harmless after a crash
    4  table config      drops the index: reads do without it
    5  shards            that are new, with their base files
    6  log files         of t, with what writes have added since, on top of the base files
    7  delta commit t    completes, and all of this becomes visible
    8  old files         are deleted if there are fewer shards now; else they stay for running reads
    9  table config      names the index again, and an indexing instant announces it

A crash before 4 leaves the old index, one after 9 the new one; in between there is no index until it is created again.

A write in flight that has seen a write found by 1 may change the same keys. Its log file has an earlier instant than t
and would sort below that of 6. So the switch-over waits a little for a moment without such a write. If none comes, what
was added is merged into new base files, while the lock is held.

The copy is discarded if a copied write was rolled back, the index was replaced, or the changes cannot be determined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from lakebed.engine.randomness import new_write_token
from lakebed.errors import CommitUnknownError, CorruptTableError, SnapshotExpiredError, WriteConflictError
from lakebed.index.build import Source, Target
from lakebed.index.extra import next_extra
from lakebed.index.layout import ShardLayout
from lakebed.index.stored import StoredIndex
from lakebed.metadata.bootstrap import create_shards
from lakebed.metadata.entries import Entries
from lakebed.metadata.shard_writes import ShardWrite, write_shards
from lakebed.model.commit import WriteStat
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.observe import SILENT, Meter, Observer
from lakebed.services.indexing.changes import ChangeReader, Seen, find_changes, is_contested
from lakebed.services.indexing.plans import note_indexing, settle
from lakebed.services.indexing.staging import StagedShard, Staging, store_staged
from lakebed.services.indexing.steps import (
    clear_partition,
    complete_commit,
    delta_commit,
    fresh_state,
    set_ready,
    stored_definitions,
)
from lakebed.table import TableState
from lakebed.transaction.rollback import targets_of_rollbacks
from lakebed.transaction.section import Section
from lakebed.transaction.times import format_time, timeline_zone
from lakebed.transaction.transactions import Transactions

_LOOKS_MAX = 8
"""Number of attempts at the switch-over, each under the lock, while conflicting writes are in flight."""
_SECONDS_BETWEEN_LOOKS = 0.05


class NewForm(Protocol):
    """The form that an index gets: its shards, and the source of its entries."""

    @property
    def is_anew(self) -> bool:
        """Whether entries come from the rows, which restores all guarantees about the index (see `index/extra.py`)."""
        ...

    def layout(self, index: StoredIndex) -> ShardLayout:
        """The new shards, given the data partitions of the index as it is now."""
        ...

    def source(self, index: StoredIndex, layout: ShardLayout) -> Source:
        """The source of entries, as of the snapshot from which the copy is made."""
        ...

    def is_done(self, index: StoredIndex) -> bool:
        """Whether the index has this form already."""
        ...


@dataclass(frozen=True, slots=True)
class Renewal:
    """The index to renew, and an observer of progress."""

    transactions: Transactions
    table: TableState
    partition: str
    observer: Observer = SILENT


@dataclass(frozen=True, slots=True)
class Copy:
    """The entries of an index as of the snapshot `seen`, in staged base files of a new layout."""

    seen: Seen
    staging: Staging
    staged: Mapping[str, StagedShard]
    meter: Meter


def renew_online(work: Renewal, make_plan: Callable[[TableState, StoredIndex], NewForm | None]) -> bool:
    """Whether the index was renewed; false if too much changed meanwhile, or there is no plan."""
    work.transactions.rollbacks.run()
    with work.transactions.section() as section:
        settle(work.transactions, section, work.partition)
        state = fresh_state(work.table, section)
        index = StoredIndex.of(state, work.partition)
        seen, created_ms = Seen.of(index), section.ports.clock.now_ms()
    with TemporaryDirectory(prefix="lakebed-") as folder:
        try:
            plan = make_plan(state, index)
            if plan is None or plan.is_done(index):
                return plan is not None
            copy = make_copy(work, plan, index, seen, Staging(Path(folder), created_ms, index.has_ordering))
        except (CorruptTableError, SnapshotExpiredError):
            return False  # A file may have been cleaned meanwhile; if it is lost, the attempt under the lock fails.
        return publish_copy(work, plan, copy)


def renew_locked(work: Renewal, plan: NewForm) -> None:
    """Renews the index, all of it under the lock."""
    work.transactions.rollbacks.run()
    with work.transactions.section() as section, TemporaryDirectory(prefix="lakebed-") as folder:
        settle(work.transactions, section, work.partition)
        index = StoredIndex.of(fresh_state(work.table, section), work.partition)
        if not plan.is_done(index):
            _check_idle(section)
            staging = Staging(Path(folder), section.ports.clock.now_ms(), index.has_ordering)
            copy = make_copy(work, plan, index, Seen.of(index), staging)
            extra = _extra(section, plan, work.partition, was_written=False)
            assert extra is not None, "nobody has written"
            _publish(section, copy, index, plan.layout(index), {}, extra)


def make_copy(work: Renewal, plan: NewForm, index: StoredIndex, seen: Seen, staging: Staging) -> Copy:
    """Stages the base files of all shards. Nothing is written to the table."""
    layout = plan.layout(index)
    source = plan.source(index, layout)
    meter = Meter(work.partition, source.pieces * source.passes + 2 * len(layout.file_ids), work.observer)
    return Copy(seen, staging, staging.stage_all(source, layout.file_ids, meter), meter)


def publish_copy(work: Renewal, plan: NewForm, copy: Copy) -> bool:
    """Catches up with writers and replaces the index by a copy; false if the copy cannot be used any more.

    What writers have added by the first attempt is read without the lock.
    """
    reader = ChangeReader(work.table.storage, work.partition)
    for looks_left in reversed(range(_LOOKS_MAX)):
        with work.transactions.section() as section:
            settle(work.transactions, section, work.partition)
            index = StoredIndex.of(fresh_state(work.table, section), work.partition)
            changes = find_changes(copy.seen, index, section.timeline)
            extra = _extra(section, plan, work.partition, was_written=changes is None or bool(changes.completed))
            if changes is None or extra is None:
                return False
            is_late = is_contested(changes, section.timeline.pending())
            is_calm = not is_late and _unsettled(section) is None
            is_read = looks_left < _LOOKS_MAX - 1 or reader.has(changes)
            if not looks_left or (is_calm and is_read):
                _check_idle(section)
                layout = plan.layout(index)
                added = reader.entries(changes, layout, has_ordering=index.has_ordering)
                _catch_up(section, copy, index, layout, added, extra, in_base_files=is_late)
                return True
        reader.load(changes)
        if not is_calm:
            section.ports.clock.sleep(_SECONDS_BETWEEN_LOOKS)
    raise AssertionError("the last attempt returns")


def _unsettled(section: Section) -> InstantTime | None:
    """A write with entries in the metadata table that is in flight, or about to be rolled back; None if there is none.

    Entries of the former are in the old shards. Those of the latter would stay in the new ones.
    """
    writes = (i.requested_at for i in section.timeline.pending() if i.action is not Action.INDEXING)
    pending = {*writes} | targets_of_rollbacks(section)
    return min((i.requested_at for i in section.metadata_timeline if i.requested_at in pending), default=None)


def _check_idle(section: Section) -> None:
    instant = _unsettled(section)
    if instant is not None:
        raise WriteConflictError(
            f"the write {instant} is in flight or about to be rolled back, and has entries in the index",
            hint="run the call again when it has completed or been rolled back",
        )


def _catch_up(
    section: Section,
    copy: Copy,
    index: StoredIndex,
    layout: ShardLayout,
    added: Mapping[str, Entries],
    extra: Mapping[str, str],
    *,
    in_base_files: bool,
) -> None:
    """Publishes a copy with the entries `added` since, in log files or in new base files.

    Shards of data partitions that came after the copy get all their entries from these.
    """
    folded = {
        file_id: added.get(file_id, Entries.of({}))
        for file_id in layout.file_ids
        if file_id not in copy.staged or (in_base_files and file_id in added)
    }
    anew = copy.staging.stage_changed([(copy.staged.get(id_), id_, entries) for id_, entries in folded.items()])
    staged = {**copy.staged, **{shard.file_id: shard for shard in anew}}
    logged = {file_id: entries for file_id, entries in added.items() if file_id not in folded}
    _publish(section, replace(copy, staged=staged), index, layout, logged, extra)


def _extra(section: Section, plan: NewForm, partition: str, *, was_written: bool) -> Mapping[str, str] | None:
    """Extra metadata of the delta commit: the guarantees that held before, or all of them if entries come from rows.

    None if it is unknown whether all hold: some did not before, and something `was_written` meanwhile.
    """
    definitions = stored_definitions(section)
    known, whole = next_extra(section, definitions), next_extra(section, definitions, built=partition)
    if not plan.is_anew or known == whole:
        return known
    return None if was_written else whole


def _publish(
    section: Section,
    copy: Copy,
    old: StoredIndex,
    layout: ShardLayout,
    added: Mapping[str, Entries],
    extra: Mapping[str, str],
) -> None:
    """Steps 2 to 9."""
    ready = section.config.metadata_partitions
    instant = section.next_time()
    try:
        with delta_commit(section, instant) as (ticket, _):
            stats = _store(section, copy, old, layout, instant) + _store_added(section, old, instant, added)
            complete_commit(section, ticket, instant, stats, extra)
    except CommitUnknownError:
        raise
    except Exception:
        set_ready(section, ready)  # The old shards are unchanged.
        raise
    if not old.file_ids <= set(layout.file_ids):
        clear_partition(section, old.partition, keep=instant)
    set_ready(section, ready)
    note_indexing(section, old.partition)


def _store(
    section: Section, copy: Copy, old: StoredIndex, layout: ShardLayout, instant: InstantTime
) -> tuple[WriteStat, ...]:
    """Steps 3 to 5."""
    now = section.ports.clock.now_ms()
    target = Target(section.ports.storage, old.partition, instant, now, old.has_ordering)
    kept = [file_id for file_id in layout.file_ids if file_id in old.file_ids]
    new = [file_id for file_id in layout.file_ids if file_id not in old.file_ids]
    stats = [*store_staged(target, [copy.staged[file_id] for file_id in kept], copy.meter, first=0)]
    set_ready(section, [name for name in section.config.metadata_partitions if name != old.partition])
    date = format_time(now, timeline_zone(section.config))
    create_shards(target.storage, old.partition, new, instant=instant, date=date)
    return (*stats, *store_staged(target, [copy.staged[id_] for id_ in new], copy.meter, first=len(kept)))


def _store_added(
    section: Section, old: StoredIndex, instant: InstantTime, added: Mapping[str, Entries]
) -> tuple[WriteStat, ...]:
    """Step 6."""
    writes = [
        ShardWrite(old.partition, file_id, entries, has_ordering=old.has_ordering)
        for file_id, entries in sorted(added.items())
    ]
    return write_shards(
        section.ports.storage,
        writes,
        instant=instant,
        token=new_write_token(len(old.file_ids)),
        created_ms=section.ports.clock.now_ms(),
    )
