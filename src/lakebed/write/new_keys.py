"""Keys that a write adds: their index entries are encoded early, and the commit checks that they are still new."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.commit.prepared import NewKeys, PreparedCommit
from lakebed.engine.engines import Engine
from lakebed.engine.exchange import Shelf, StagedFile
from lakebed.errors import WriteConflictError
from lakebed.index.key_batches import KeyChanges, NewTables, PreparedKeys, ShardCache, default_cache, prepare_keys
from lakebed.index.keys import KEY_INDEX, KeyShards, find_key_index, is_partitioned, key_index_files, keys_are_indexed
from lakebed.index.kind import Update
from lakebed.index.lost import has_lost_keys
from lakebed.index.update import CurrentStats
from lakebed.metadata import MetadataTable
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.table import TableState
from lakebed.transaction.section import Section
from lakebed.transaction.times import instant_ms, timeline_zone
from lakebed.write.plan import Picked, WritePlan
from lakebed.write.tag.index import find_taken
from lakebed.write.values import IS_DELETE, WriteContext, WriteTask


def prepare_entries(
    state: TableState, context: WriteContext, plan: WritePlan, tables: NewTables | None
) -> PreparedKeys | None:
    """Starts encoding the index entries of new keys; None if only the written files tell which keys are new."""
    metadata = find_key_index(state)
    if plan.counts is None or metadata is None:
        return None
    if is_partitioned(metadata) or context.entry_ordering is not None:
        return None
    keys = [_new_keys(task) for task in plan.tasks]
    if None in keys:
        return None
    moment = instant_ms(context.instant, timeline_zone(context.config))
    update = Update(
        instant=context.instant,
        instant_ms=moment,
        partitions=(KEY_INDEX,),
        groups={KEY_INDEX: tuple(each.group.file_id for each in metadata.slices(KEY_INDEX))},
        definitions=state.definitions,
        stats=CurrentStats(metadata, lambda _: ()),
    )
    return prepare_keys([change for change in keys if change is not None], update, created_ms=moment, tables=tables)


def _new_keys(task: WriteTask) -> KeyChanges | None:
    """The keys that a task adds to its file group; None if not known before it has run."""
    rows = task.rows
    if not isinstance(rows, Picked) or rows.new_keys is None or IS_DELETE in rows.table.column_names:
        return None
    if len(rows.assignment.revived):  # A delete with a greater ordering value may win.
        return None
    return KeyChanges(task.group.partition, task.group.file_id, rows.new_keys if len(rows.new_keys) else None)


def check_new_keys(
    state: TableState, prepared: PreparedCommit, section: Section, cache: ShardCache, engine: Engine
) -> None:
    """Raises WriteConflictError if another write inserted one of our new keys: the table would have it twice."""
    is_alone = all(i.requested_at in prepared.seen for i in section.timeline.commits())
    if prepared.new_keys is None or (is_alone and keys_are_indexed(section.config.metadata_partitions)):
        return
    current = state.at(section.config, section.timeline, section.metadata_timeline)
    metadata = find_key_index(current)
    if metadata is None:
        _check_dropped(current)
        return
    taken = _taken_keys(prepared.new_keys, metadata, cache, engine)
    if len(taken):
        raise WriteConflictError(
            f"another write inserted {len(taken)} of the same keys meanwhile, {taken[0].as_py()!r} among them",
            hint="run the write again: it will update them",
        )


def _check_dropped(current: TableState) -> None:
    """Raises WriteConflictError if the record index was lost; if it was dropped, keys need not be unique any more."""
    if has_lost_keys(current):
        raise WriteConflictError(
            "the record index was lost while this write ran: its new keys cannot be checked for duplicates",
            hint="rebuild the index with table.doctor(repair=True), then run the write again",
        )


def _taken_keys(new_keys: NewKeys, metadata: MetadataTable, cache: ShardCache, engine: Engine) -> pa.Array:
    """The new keys that have an index entry by now; those of a large write are looked up by its tasks."""
    if callable(new_keys):
        return _taken_in(new_keys(), metadata, cache)
    found = engine.map(new_keys.files, FindTaken(new_keys.shelf, key_index_files(metadata)))
    return pa.chunked_array(found, pa.string())


@dataclass(frozen=True, slots=True)
class FindTaken:
    """Finds the new keys in a staged file that have an index entry."""

    shelf: Shelf
    index: KeyShards

    def __call__(self, file: StagedFile) -> pa.Array:
        """The keys that were found."""
        (table,) = self.shelf.read([file.range(0, file.rows)])
        return _taken_in(table, self.index, default_cache())


def _taken_in(new_keys: pa.Table, index: KeyShards, cache: ShardCache) -> pa.Array:
    keys, paths = (new_keys[name].unify_dictionaries().combine_chunks() for name in (RECORD_KEY, PARTITION_PATH))
    return find_taken(keys, paths, index, cache)
