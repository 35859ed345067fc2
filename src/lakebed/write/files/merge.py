"""Updates a file group of a copy-on-write table: stored and incoming rows become a new base file.

Rows keep their order: an update takes the position of the row that it replaces, and new rows follow. So a sorted file
stays nearly sorted, and compresses and prunes as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidInputError
from lakebed.format.arrow import without_unused
from lakebed.format.bloom import BloomKind, bloom_capacity, extend_bloom
from lakebed.format.parquet_footer import BaseFileFooter, decode_parquet_footer
from lakebed.index.facts import FileFacts
from lakebed.kernels.buffers import Bools, Int64s
from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.model.words import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakebed.read.columns import key_copy
from lakebed.read.file_slice import PARQUET, SliceTask, read_slice
from lakebed.read.merge import Rules, merge_rules
from lakebed.transaction.markers import write_markers
from lakebed.write.files.base import (
    KnownKeys,
    base_file_table,
    constant,
    data_columns,
    file_schema,
    meta_columns,
    new_stat,
    release_slice,
    store_base_file,
    with_entries,
)
from lakebed.write.rows.columns import joined
from lakebed.write.tag.files import find_places
from lakebed.write.values import IS_DELETE, IS_INSERT, POSITION, WriteContext, WriteTask

_REPEATED = pa.dictionary(pa.int32(), pa.string())
_PARTITION_FIELDS = "hoodie.table.partition.fields"


def merge_base_file(task: WriteTask) -> tuple[FileFacts, ...]:
    """Writes the file group's next base file: the rows of its slice merged with the task's rows.

    The table's merge rules decide between rows of the same key. The new file may have no rows. Blind inserts are added
    whatever their keys.
    """
    context, before = task.context, _slice_of(task)
    incoming = task.rows.read()
    footer = _read_footer(context, before)
    stored = read_stored(context, before, footer)
    release_slice(context, before)
    merge = _append(stored, incoming) if task.is_blind else _merge(stored, incoming, context.config)
    stat = new_stat(task, task.group)
    stat = replace(
        stat,
        prev_commit=before.base.instant if before.base else None,
        prev_base_file=before.base.name if before.base else None,
        num_updates=len(merge.updates),
        num_inserts=len(merge.inserts),
        num_deletes=len(merge.deletes),
    )
    write_markers(context.storage, context.instant, (stat.path,), task.token)
    keys = joined(incoming[RECORD_KEY])
    inserted, deleted = keys.take(pa.array(merge.inserts)), keys.take(pa.array(merge.deletes))
    known = None if len(deleted) else _known_keys(footer, inserted)
    columns = dict(zip(stored.column_names, stored.columns, strict=True))
    del stored  # Each column is freed once it is merged: the rest needs the memory.
    table = _merged_table(task, columns, incoming, merge)
    written = store_base_file(context, table, stat, known)
    return (replace(with_entries(written, _entered(incoming, merge, context), context), deleted_keys=deleted),)


def _entered(incoming: pa.Table, merge: _Merge, context: WriteContext) -> pa.Table:
    """The rows that get index entries, with the columns that these need."""
    ordering = context.entry_ordering
    is_current = ordering is not None and ordering.is_current
    columns = [name for name in (RECORD_KEY, ordering and ordering.field) if name in incoming.column_names]
    rows = np.concatenate([merge.inserts, merge.updates]) if is_current else merge.inserts
    return incoming.select(columns).take(pa.array(rows))


def _read_footer(context: WriteContext, before: FileSlice) -> BaseFileFooter | None:
    """The footer of the base file, if it is Parquet and the slice has no log files."""
    if before.base is None or before.logs or before.base.extension != PARQUET:
        return None
    path = before.path(before.base.name)
    with context.storage.arrow_file(path) as file:
        return decode_parquet_footer(file, path=path)


def _known_keys(footer: BaseFileFooter | None, inserted: pa.Array) -> KnownKeys | None:
    """The keys known from the footer of the base file, extended by new ones, which is faster than a scan of all keys.

    None if the footer has no key range, or no Bloom filter over exactly its rows that can be extended.
    """
    bloom = footer.bloom if footer is not None else None
    if footer is None or bloom is None or footer.key_min is None or footer.key_max is None:
        return None
    if bloom.kind is not BloomKind.DYNAMIC or bloom.key_count != footer.rows:
        return None
    if bloom_capacity(footer.rows + len(inserted)) > bloom.capacity:
        return None  # The keys outgrow this filter; a new one is built from all keys.
    outer = pa.concat_arrays([pa.array([footer.key_min, footer.key_max], pa.string()), inserted.cast(pa.string())])
    return KnownKeys(extend_bloom(bloom, inserted), outer)


@dataclass(frozen=True, slots=True)
class _Merge:
    """The source of each row of the new file.

    `sources` has a number per row: stored rows count from 0, incoming ones follow. `kept` has the number of the stored
    row at that position, -1 for a new row. `inserts`, `updates` and `deletes` are numbers of incoming rows.
    """

    sources: Int64s
    kept: Int64s
    inserts: Int64s
    deletes: Int64s
    updates: Int64s

    @property
    def only_adds(self) -> bool:
        """Whether all stored rows are unchanged."""
        return not len(self.updates) and not len(self.deletes)


def _merge(stored: pa.Table, incoming: pa.Table, config: TableConfig) -> _Merge:
    places = _known_places(incoming)
    if places is None:
        # Plain inserts may repeat a key within a file; an update then changes the first, as in Apache Hudi.
        places = find_places(joined(stored[RECORD_KEY]), joined(incoming[RECORD_KEY]))
    is_delete = _is_delete(incoming)
    is_new = places < 0
    wins = ~is_new
    wins[wins] = _accepted(stored, incoming, places, is_delete, merge_rules(config), config.ordering_fields)
    updates, deletes = np.flatnonzero(wins & ~is_delete), np.flatnonzero(wins & is_delete)
    inserts = np.flatnonzero(is_new & ~is_delete)
    count = stored.num_rows
    sources, kept = np.arange(count), np.arange(count)
    sources[places[updates]] = count + updates
    if len(deletes):
        kept = np.delete(kept, places[deletes])
        sources = sources[kept]
    return _Merge(
        sources=np.concatenate([sources, count + inserts]),
        kept=np.concatenate([kept, np.full(len(inserts), -1)]),
        inserts=inserts,
        deletes=deletes,
        updates=updates,
    )


def _append(stored: pa.Table, incoming: pa.Table) -> _Merge:
    inserts = np.flatnonzero(~_is_delete(incoming))
    kept = np.concatenate([np.arange(stored.num_rows), np.full(len(inserts), -1)])
    sources = np.concatenate([np.arange(stored.num_rows), stored.num_rows + inserts])
    return _Merge(sources, kept, inserts, np.empty(0, np.int64), np.empty(0, np.int64))


def _known_places(incoming: pa.Table) -> Int64s | None:
    """The position of each incoming key among the stored rows, from tagging; None if some are unknown.

    They are unknown if the slice has log files, and for the only file of a partition, where tagging looks up no keys.
    """
    if POSITION not in incoming.schema.names or IS_INSERT not in incoming.schema.names:
        return None
    places: Int64s = incoming[POSITION].to_numpy()
    is_unknown = (places < 0) & ~incoming[IS_INSERT].to_numpy()
    return None if is_unknown.any() else places


def _accepted(
    stored: pa.Table, incoming: pa.Table, places: Int64s, is_delete: Bools, rules: Rules, ordering: Sequence[str]
) -> Bools:
    """Whether each incoming row that has a position wins against the stored row there.

    With event-time ordering, a row loses to a greater ordering value. A delete without ordering value always wins.
    """
    rows = np.flatnonzero(places >= 0)
    if rules is not Rules.EVENT_TIME or not ordering:
        return np.ones(len(rows), bool)
    missing = [name for name in ordering if name not in incoming.schema.names]
    always = is_delete[rows]
    if missing:
        _check_deletes_only(always, missing)
        return always
    theirs = [joined(stored[name]).take(pa.array(places[rows])) for name in ordering]
    ours = [joined(incoming[name]).take(pa.array(rows)).cast(theirs[i].type) for i, name in enumerate(ordering)]
    for values in ours:
        always &= values.is_null().to_numpy(zero_copy_only=False)
    wins: Bools = always | _at_least(ours, theirs)
    return wins


def _check_deletes_only(is_delete: Bools, missing: Sequence[str]) -> None:
    if not is_delete.all():
        raise InvalidInputError(
            f"rows have no {', '.join(missing)}, which decides whether they are newer than the table's",
            hint="give the table's ordering fields in every update",
        )


def _at_least(ours: Sequence[pa.Array], theirs: Sequence[pa.Array]) -> Bools:
    """Where `ours` are not less than `theirs`; several fields compare lexicographically."""
    result = np.ones(len(ours[0]), bool)
    undecided = result.copy()
    for left, right in zip(ours, theirs, strict=True):
        is_greater, is_equal = _compare(left, right)
        result[undecided] = (is_greater | is_equal)[undecided]
        undecided &= is_equal
    return result


def _compare(left: pa.Array, right: pa.Array) -> tuple[Bools, Bools]:
    """Where `left` is greater than `right`, and where they are equal; null is lowest, NaN highest."""
    is_greater = pc.or_(pc.fill_null(pc.greater(left, right), False), pc.and_not(left.is_valid(), right.is_valid()))
    is_equal = pc.or_(pc.fill_null(pc.equal(left, right), False), pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        ours, theirs = left.is_null(nan_is_null=True), right.is_null(nan_is_null=True)
        ours, theirs = pc.and_(ours, left.is_valid()), pc.and_(theirs, right.is_valid())
        is_greater, is_equal = pc.or_(is_greater, pc.and_not(ours, theirs)), pc.or_(is_equal, pc.and_(ours, theirs))
    return is_greater.to_numpy(zero_copy_only=False), is_equal.to_numpy(zero_copy_only=False)


def _merged_table(task: WriteTask, stored: dict[str, pa.ChunkedArray], incoming: pa.Table, merge: _Merge) -> pa.Table:
    """All columns of the new file. A column that the incoming rows lack keeps its stored values.

    Removes columns from `stored` as they are merged.
    """
    context, count = task.context, len(merge.sources)
    _, seqnos, *_ = meta_columns(incoming, context.instant, task.number, "")
    names = constant(task.group.partition, count), constant("", count)
    keys = _gather_keys(stored.pop(RECORD_KEY), joined(incoming[RECORD_KEY]), merge)
    meta = [
        _gather(stored.pop(COMMIT_TIME), constant(context.instant, incoming.num_rows), merge),
        _gather(stored.pop(COMMIT_SEQNO), seqnos, merge),
        keys,
        *names,
    ]
    fresh = data_columns(incoming, context)
    copied = key_copy(fresh.schema, context.config)
    columns = [
        keys
        if name == copied
        else _gather(stored.pop(name), joined(fresh[name]), merge)
        if name in incoming.schema.names
        else joined(stored.pop(name)).take(pa.array(merge.kept, mask=merge.kept < 0))
        for name in fresh.schema.names
    ]
    fields = [field.with_type(values.type) for field, values in zip(fresh.schema, columns, strict=True)]
    return base_file_table(meta, pa.table(columns, schema=pa.schema(fields)))


def _gather_keys(stored: pa.ChunkedArray, incoming: pa.Array, merge: _Merge) -> pa.ChunkedArray:
    """Record keys, which updates do not change. Chunked, because one array would copy most of the file."""
    inserted = incoming.take(pa.array(merge.inserts))
    kept = stored if not len(merge.deletes) else stored.take(pa.array(merge.kept[merge.kept >= 0]))
    return pa.chunked_array([*kept.chunks, inserted])


def _gather(stored: pa.ChunkedArray, incoming: pa.Array, merge: _Merge) -> pa.Array:
    if pa.types.is_dictionary(stored.type) and not pa.types.is_dictionary(incoming.type):
        incoming = incoming.dictionary_encode()
    if merge.only_adds:
        gathered = joined(pa.chunked_array([*stored.chunks, incoming.take(pa.array(merge.inserts))]))
    else:
        gathered = joined(pa.chunked_array([*stored.chunks, incoming])).take(pa.array(merge.sources))
    # The Parquet writer stores unused dictionary values too, and includes them in min/max.
    return without_unused(gathered) if pa.types.is_dictionary(gathered.type) else gathered


def read_stored(context: WriteContext, file_slice: FileSlice, footer: BaseFileFooter | None = None) -> pa.Table:
    """Reads a slice for merging: commit time, sequence number, record key, and data columns in the file schema.

    Columns of repetitive text, according to the footer, are read as dictionaries, which are also written as such.
    """
    meta = [(COMMIT_TIME, _REPEATED), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string())]
    repetitive = frozenset() if footer is None else footer.repetitive
    data = [
        field.with_type(_REPEATED) if field.type == pa.string() and field.name in repetitive else field
        for field in file_schema(context)
    ]
    schema = pa.schema([*(pa.field(*column) for column in meta), *data])
    # Reads would take partition columns from the path; the new file must contain what the old one contains.
    as_stored = {key: value for key, value in context.config.properties.items() if key != _PARTITION_FIELDS}
    config = TableConfig(as_stored, context.config.path)
    return read_slice(SliceTask(context.storage, config, file_slice, schema, tuple(schema.names), context.counts))


def _slice_of(task: WriteTask) -> FileSlice:
    assert task.file_slice is not None, "a merge has a file slice"
    return task.file_slice


def _is_delete(incoming: pa.Table) -> Bools:
    if IS_DELETE not in incoming.schema.names:
        return np.zeros(incoming.num_rows, bool)
    flags: Bools = incoming[IS_DELETE].to_numpy()
    return flags
