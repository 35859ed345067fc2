"""Giving a record index another number of shards.

How many shards there are is told by a listing, for ever and for every engine, so old and new ones cannot lie side by
side. A delta commit of the metadata table gives every shard a new base file, and for most of the work nobody sees it:

    1  delta commit t        requested and in flight
    2  base files            of the shards that are there already; readers and crashes know nothing of them
    3  configuration         does not name the index: reads go without it
    4  shards                that are new, with their base files
    5  delta commit t        completed
    6  old files             go if shards become fewer; else they stay for readers that have begun
    7  configuration         names the index again, and an indexing instant tells of it

A crash before 3 leaves the old index, after 7 the new one; in between there is none, until it is created again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from lakebed.engine.threads import map_bounded
from lakebed.errors import CommitUnknownError, InvalidInputError, WriteConflictError
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.entries import Entries, split_entries
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import create_shards
from lakebed.metadata.current_entries import next_extra
from lakebed.metadata.merging import merge_shard
from lakebed.metadata.record_index import RECORD_INDEX, is_partitioned
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.instant import InstantTime
from lakebed.services.indexing.create import fresh_state
from lakebed.services.indexing.keys import Layout, global_layout, partitioned_layout
from lakebed.services.indexing.request import KINDS, check_shards
from lakebed.services.indexing.shards import Meter, Progress, Source, Target, join_unique, store_shards
from lakebed.services.indexing.steps import (
    clear_partition,
    complete_commit,
    delta_commit,
    record_indexing,
    set_ready,
    settle,
    stored_definition,
)
from lakebed.table import TableState
from lakebed.transaction.section import Section
from lakebed.transaction.times import format_time, timeline_zone
from lakebed.transaction.transactions import Transactions

_SLICES_PER_PASS = 64
"""Old shards whose entries are held at once, if they are many."""


def reshard_index(
    transactions: Transactions, table: TableState, name: str, shards: int, progress: Progress | None = None
) -> None:
    """Spreads the entries of the record index over `shards` shards, of each data partition if it is partitioned."""
    check_shards(shards)
    if KINDS.get(name, name) != RECORD_INDEX:
        raise InvalidInputError(f"{name} cannot be given other shards", hint="record_index can")
    transactions.rollbacks.run()
    with transactions.section() as section:
        settle(transactions, section)
        state = fresh_state(table, section)
        old = _OldIndex.of(state)
        layout = old.layout(shards)
        if old.file_ids != set(layout.file_ids):
            _check_idle(section)
            _reshard(section, old, layout, progress)


@dataclass(frozen=True, slots=True)
class _OldIndex:
    """The index as it is."""

    metadata: MetadataTable
    slices: tuple[FileSlice, ...]

    @classmethod
    def of(cls, state: TableState) -> _OldIndex:
        if not isinstance(state.metadata, MetadataTable) or not state.metadata.has(RECORD_INDEX):
            raise InvalidInputError(
                f"table {state.config.name} has no record index", hint='create it: create("record_index")'
            )
        return cls(state.metadata, state.metadata.slices(RECORD_INDEX))

    @property
    def file_ids(self) -> set[str]:
        return {file_slice.group.file_id for file_slice in self.slices}

    @property
    def has_ordering(self) -> bool:
        definition = self.metadata.definitions.get(RECORD_INDEX)
        return definition is not None and definition.ordering is not None

    def layout(self, shards: int) -> Layout:
        partitions = {data_partition_of_group(file_id) or "" for file_id in self.file_ids}
        if not is_partitioned(self.metadata):
            return global_layout(partitions, shards)
        return partitioned_layout(dict.fromkeys(partitions, shards))

    def source(self, layout: Layout) -> Source:
        """The entries as they are stored, for other shards."""

        def entries(file_slice: FileSlice, wanted: Collection[str]) -> Mapping[str, Entries]:
            file_id = file_slice.group.file_id
            shard = self.metadata.shard(RECORD_INDEX, file_id)
            has_base = file_slice.base is not None
            merged = merge_shard(shard, RECORD_INDEX, has_base=has_base, has_ordering=self.has_ordering)
            new_shards = layout.shards[data_partition_of_group(file_id) or ""]
            return split_entries(Entries(merged.keys, merged.values, _NOTHING), new_shards, wanted=wanted)

        def read(wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
            return map_bounded(self.slices, lambda file_slice: entries(file_slice, wanted))

        passes = -(-len(self.slices) // _SLICES_PER_PASS)
        return Source(read, len(self.slices), join_unique, max(passes, 1))


_NOTHING = Entries.of({}).deletes


def _check_idle(section: Section) -> None:
    """Raises while a write that is under way has entries in the metadata table: they lie in the old shards."""
    pending = {i.requested_at for i in section.timeline.pending()}
    twins = sorted(i.requested_at for i in section.metadata_timeline if i.requested_at in pending)
    if twins:
        raise WriteConflictError(
            f"the write {twins[0]} is about to complete and has put entries into the index",
            hint="run the call again when it has completed or was rolled back",
        )


def _reshard(section: Section, old: _OldIndex, layout: Layout, progress: Progress | None) -> None:
    ready = section.config.metadata_partitions
    instant = section.next_time()
    try:
        with delta_commit(section, instant) as ticket:
            stats = _store(section, old, layout, instant, progress)
            complete_commit(section, ticket, instant, stats, next_extra(section, stored_definition(section)))
    except CommitUnknownError:
        raise
    except Exception:
        set_ready(section, ready)  # The old shards are as they were.
        raise
    if not old.file_ids <= set(layout.file_ids):
        clear_partition(section.ports.storage, RECORD_INDEX, keep=instant)
    set_ready(section, ready)
    record_indexing(section, RECORD_INDEX)


def _store(
    section: Section, old: _OldIndex, layout: Layout, instant: InstantTime, progress: Progress | None
) -> tuple[WriteStat, ...]:
    """Steps 2 to 4."""
    source, now = old.source(layout), section.ports.clock.now_ms()
    target = Target(section.ports.storage, RECORD_INDEX, instant, now, old.has_ordering)
    meter = Meter(2 * source.pieces * source.passes + len(layout.file_ids), progress)
    kept = [file_id for file_id in layout.file_ids if file_id in old.file_ids]
    new = [file_id for file_id in layout.file_ids if file_id not in old.file_ids]
    stats = store_shards(target, source, kept, meter, all_shards=True)
    set_ready(section, [name for name in section.config.metadata_partitions if name != RECORD_INDEX])
    date = format_time(now, timeline_zone(section.config))
    create_shards(target.storage, RECORD_INDEX, new, instant=instant, date=date)
    return stats + store_shards(target, source, new, meter, all_shards=True)
