"""Reads one file slice: the unit of work of every scan, in this process or in a Spark worker."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.filter.evaluate import to_arrow
from lakebed.filter.keys import key_columns, record_keys
from lakebed.filter.predicate import Predicate, columns_of
from lakebed.format.arrow import empty_table, flag_array, flags_of, text_array
from lakebed.format.avro.schema import arrow_schema
from lakebed.format.guard import decoding
from lakebed.format.log.blocks import decode_deletes, decode_records
from lakebed.format.log.file import BlockKind, HeaderKey
from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.model.words import COMMIT_TIME
from lakebed.read.columns import conform_array, conform_table, plan_columns
from lakebed.read.keyed_files import HeldStorage, find_base_rows, find_block_rows, may_hold
from lakebed.read.merge import EventKind, Part, Rules, merge_rules, merge_slice
from lakebed.storage import Storage
from lakebed.view.blocks import CountedInstants, FiledBlock, load_blocks

PARQUET = ".parquet"
LOOKUP_KEYS_MAX = 8
"""Maximum number of keys of a slice that are looked up one by one; each reads a page of every column."""
IS_DELETED = "_hoodie_is_deleted"
"""Name of a Boolean column that marks deletes in incoming rows and log records. Stored only if the table has it."""


@dataclass(frozen=True, slots=True)
class SliceTask:
    """What a worker needs to read a file slice. Picklable.

    `schema` is the table's, `columns` those to return. Rows are kept if they match `predicate`, if their key is among
    `keys`, and if the instant that wrote them is among `written_by`; None keeps all.
    """

    storage: Storage
    config: TableConfig
    file_slice: FileSlice
    schema: pa.Schema
    columns: tuple[str, ...]
    counted: CountedInstants
    predicate: Predicate | None = None
    keys: frozenset[str] | None = None
    written_by: frozenset[str] | None = None

    @property
    def few_keys(self) -> tuple[str, ...]:
        """The keys, sorted, if they are few enough to look up one by one; else empty."""
        is_few = self.keys is not None and 0 < len(self.keys) <= LOOKUP_KEYS_MAX and self.config.has_meta_columns
        return tuple(sorted(self.keys)) if is_few and self.keys else ()

    @property
    def output_schema(self) -> pa.Schema:
        """The schema of the returned rows."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    @property
    def needed_schema(self) -> pa.Schema:
        """The columns that must be read: those returned, and those that select or merge rows."""
        needed = set(self.columns) | (columns_of(self.predicate) if self.predicate is not None else set())
        needed |= {COMMIT_TIME} if self.written_by is not None else set()
        needed |= set(key_columns(self.config)) if self.keys is not None else set()
        if self.file_slice.logs:
            needed |= {*key_columns(self.config), *self.config.ordering_fields, IS_DELETED}
        return pa.schema([field for field in self.schema if field.name in needed])


def read_slice(task: SliceTask) -> pa.Table:
    """Reads the rows of a file slice that the task selects."""
    merged = bool(task.file_slice.logs)
    columns = plan_columns(task.needed_schema, task.file_slice.group.partition, task.config, merged=merged)
    rows = _merge(task, columns.stored) if merged else _read_base(task, columns.stored)
    if rows is None:
        return empty_table(task.output_schema)
    return _select(task, columns.complete(rows, path=str(task.file_slice.group)))


@dataclass(frozen=True, slots=True)
class SliceKeys:
    """Record keys of a slice: of its rows, and those that its log files delete (a key may be in both)."""

    live: pa.Array
    deleted: pa.Array


def read_keys(task: SliceTask) -> SliceKeys:
    """Reads the record keys of a file slice with log files."""
    schema = plan_columns(task.needed_schema, task.file_slice.group.partition, task.config, merged=True).stored
    parts = load_parts(task, schema)
    rows = merge_slice(parts.base, parts.logs, parts.rules, schema)
    deleted = [part.keys.filter(flag_array(part.kinds != EventKind.RECORD)) for part in parts.logs]
    return SliceKeys(record_keys(rows, task.config), pa.concat_arrays([text_array([]), *deleted]))


@dataclass(frozen=True, slots=True)
class SliceParts:
    """An unmerged file slice: its base file, and its log blocks in merge order."""

    base: Part | None
    logs: tuple[Part, ...]
    blocks: tuple[FiledBlock, ...]
    rules: Rules


def load_parts(task: SliceTask, schema: pa.Schema, *, with_base: bool = True) -> SliceParts:
    """Reads the columns of `schema` from each part of a slice: all rows, or those of the few keys of the task."""
    rules = merge_rules(task.config)
    ordering = () if rules is Rules.COMMIT_TIME else task.config.ordering_fields
    reader = HeldStorage(task.storage) if task.few_keys else task.storage
    blocks = load_blocks(reader, task.file_slice, layout=task.config.timeline_layout, counts=task.counted.includes)
    base = _read_base(task, schema) if with_base else None
    return SliceParts(
        None if base is None else _record_part(base, task.config, ordering),
        tuple(part for filed in blocks for part in _block_parts(filed, task, schema, ordering)),
        blocks,
        rules,
    )


def _read_base(task: SliceTask, schema: pa.Schema) -> pa.Table | None:
    base = task.file_slice.base
    if base is None:
        return None
    path = task.file_slice.path(base.name)
    table = None
    if task.few_keys and base.extension == PARQUET and base.size is not None:
        table = find_base_rows(task.storage, path, base.size, schema.names, task.few_keys)
    if table is None:
        table = read_base_file(task.storage, path, base.extension, schema)
    return conform_table(table, schema, path=path)


def _merge(task: SliceTask, schema: pa.Schema) -> pa.Table:
    parts = load_parts(task, schema)
    base, logs = parts.base, parts.logs
    if task.keys is not None:  # Keys merge independently, so rows of other keys are dropped first.
        wanted = text_array(sorted(task.keys))
        base = None if base is None else base.with_keys(wanted)
        logs = tuple(part.with_keys(wanted) for part in logs)
    return merge_slice(base, logs, parts.rules, schema)


def _block_parts(filed: FiledBlock, task: SliceTask, schema: pa.Schema, ordering: Sequence[str]) -> Iterator[Part]:
    kind, header = filed.block.kind, filed.block.header
    if kind in (BlockKind.DELETE, BlockKind.AVRO_DATA) and not may_hold(filed, task.few_keys):
        return
    if kind is BlockKind.DELETE:
        yield _delete_part(filed, schema, ordering)
    elif kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
        known = arrow_schema(header.get(HeaderKey.SCHEMA, ""), path=filed.path).names
        wanted = [name for name in schema.names if name in known]
        table = find_block_rows(filed, wanted, task.few_keys, task.storage.url) if task.few_keys else None
        if table is None:
            table = decode_records(filed.block, path=filed.path, columns=wanted)
        elif not table.num_rows:
            return
        table = conform_table(table, schema, path=filed.path)
        is_partial = header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"
        yield _record_part(table, task.config, ordering, columns=frozenset(known) if is_partial else None)
    else:
        raise CorruptTableError(f"a {kind.name} block in a data table", path=filed.path, offset=filed.block.offset)


def _record_part(
    table: pa.Table, config: TableConfig, ordering: Sequence[str], columns: frozenset[str] | None = None
) -> Part:
    kinds = np.full(table.num_rows, EventKind.RECORD, np.int8)
    if IS_DELETED in table.schema.names:
        kinds[flags_of(pc.is_in(table[IS_DELETED], value_set=flag_array(np.ones(1, bool))))] = EventKind.DELETE
    orders = tuple(_one_array(table[name]) for name in ordering)
    return Part(record_keys(table, config), kinds, orders, table, columns)


def _delete_part(filed: FiledBlock, schema: pa.Schema, ordering: Sequence[str]) -> Part:
    deletes = decode_deletes(filed.block, path=filed.path)
    always = flags_of(deletes["always"])
    kinds = np.where(always, EventKind.DELETE_ALWAYS, EventKind.DELETE).astype(np.int8)
    values = _one_array(deletes["ordering"])
    orders = tuple(
        _ordering_field(values, i, schema.field(name).type, len(ordering)) for i, name in enumerate(ordering)
    )
    return Part(_one_array(deletes["key"]), kinds, orders, None)


def _ordering_field(values: pa.Array, index: int, wanted: pa.DataType, count: int) -> pa.Array:
    """One of `count` ordering fields of deletes; several are stored as a struct. Null means no ordering value."""
    if values.null_count == len(values):
        return pa.nulls(len(values), wanted)
    return conform_array(pc.struct_field(values, str(index)) if count > 1 else values, wanted)


def _select(task: SliceTask, rows: pa.Table) -> pa.Table:
    if task.keys is not None:
        wanted = text_array(sorted(task.keys))
        rows = rows.filter(pc.is_in(record_keys(rows, task.config), value_set=wanted))
    if task.written_by is not None:
        rows = rows.filter(pc.is_in(rows[COMMIT_TIME], value_set=pa.array(sorted(task.written_by), pa.string())))
    if task.predicate is not None:
        rows = rows.filter(to_arrow(task.predicate, rows.schema))
    return rows.select(task.columns)


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def read_base_file(storage: Storage, path: str, extension: str, wanted: pa.Schema) -> pa.Table:
    """Those of the `wanted` columns that a base file has, with the file's types."""
    reader = _READERS.get(extension)
    if reader is None:
        raise UnsupportedTableError(
            f"{path}: base files of type {extension} are not supported",
            hint="lakebed reads Parquet, ORC and Lance base files; rewrite the table in one of these formats",
        )
    return reader(storage, path, wanted)


def _read_parquet(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    file = storage.arrow_file(path)
    with file, decoding(path, "the Parquet file"):
        dictionaries = [field.name for field in wanted if pa.types.is_dictionary(field.type)]
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us", read_dictionary=dictionaries)
        return parquet.read(columns=[name for name in wanted.names if name in parquet.schema_arrow.names])


def _read_orc(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    from pyarrow import orc  # Deferred: ORC is rare, and takes time to load.

    file = storage.arrow_file(path)
    with file, decoding(path, "the ORC file"):
        reader = orc.ORCFile(file)
        return reader.read(columns=[name for name in wanted.names if name in reader.schema.names])


def _read_lance(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    try:
        from lance.file import LanceFileReader  # Deferred: an optional dependency.
    except ImportError as error:
        raise UnsupportedTableError(
            f"{path}: Lance base files need the package pylance", hint="pip install 'lakebed[lance]'"
        ) from error
    # The Lance reader takes only paths, and does not support every store.
    with tempfile.NamedTemporaryFile(suffix=".lance") as copy:
        copy.write(storage.get(path))
        copy.flush()
        with decoding(path, "the Lance file"):
            table = LanceFileReader(copy.name).read_all().to_table()
            return table.select([name for name in wanted.names if name in table.schema.names])


_READERS: dict[str, Callable[[Storage, str, pa.Schema], pa.Table]] = {
    PARQUET: _read_parquet,
    ".orc": _read_orc,
    ".lance": _read_lance,
}
