"""Reports of a table: its configuration, columns, file slices, indexes and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.api import Table, handle_of
from lakebed.engine.engines import map_tasks
from lakebed.metadata import Unusable
from lakebed.model.files import FileSlice
from lakebed.model.words import RECORD_KEY
from lakebed.observe import SILENT, Observer
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import SNAPSHOT, plan_scan

if TYPE_CHECKING:
    from lakebed.index.check import IndexCheck
    from lakebed.services.indexing.indexes import IndexInfo

_WORDS = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """The configuration of a table, and its properties sorted by key."""

    table: str
    table_type: str
    table_version: int
    timeline_layout: int
    timeline_timezone: str
    base_file_format: str
    key_fields: tuple[str, ...]
    key_generator: str
    partition_fields: tuple[str, ...]
    hive_style_partitioning: bool
    ordering_fields: tuple[str, ...]
    merge_mode: str
    custom_merging: str
    has_meta_columns: bool
    metadata_partitions: tuple[str, ...]
    metadata_partitions_inflight: tuple[str, ...]
    properties: Mapping[str, str]


def config_report(table: Table) -> ConfigReport:
    """The configuration and properties of a table."""
    config = table.config
    return ConfigReport(
        table=config.name,
        table_type=str(config.table_type),
        table_version=config.version,
        timeline_layout=config.timeline_layout,
        timeline_timezone=config.timeline_timezone,
        base_file_format=config.base_file_format,
        key_fields=config.key_fields,
        key_generator=config.key_generator,
        partition_fields=config.partition_fields,
        hive_style_partitioning=config.hive_style_partitioning,
        ordering_fields=config.ordering_fields,
        merge_mode=str(config.merge_mode),
        custom_merging=config.custom_merging,
        has_meta_columns=config.has_meta_columns,
        metadata_partitions=config.metadata_partitions,
        metadata_partitions_inflight=config.metadata_partitions_inflight,
        properties=dict(sorted(config.properties.items())),
    )


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """One column, with its Spark SQL type."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """The columns of the newest snapshot."""

    table: str
    columns: tuple[ColumnEntry, ...]


def schema_report(table: Table) -> SchemaReport:
    """The columns of the newest snapshot."""
    columns = tuple(ColumnEntry(field.name, spark_type(field.type), field.nullable) for field in table.schema)
    return SchemaReport(table.config.name, columns)


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """One file slice: a base file (None if it has log files only) and its log files."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    base_bytes: int
    log_files: tuple[str, ...]
    log_bytes: int


@dataclass(frozen=True, slots=True)
class FilesReport:
    """The file slices that a snapshot reads."""

    table: str
    as_of: str | None
    slices: tuple[SliceEntry, ...]


def files_report(table: Table, as_of: str | None = None) -> FilesReport:
    """The file slices that a snapshot reads, by partition."""
    slices = sorted(table.files(as_of), key=lambda file_slice: file_slice.group)
    return FilesReport(table.config.name, as_of, tuple(_slice_entry(file_slice) for file_slice in slices))


def _slice_entry(file_slice: FileSlice) -> SliceEntry:
    base = file_slice.base
    return SliceEntry(
        partition=file_slice.group.partition,
        file_id=file_slice.group.file_id,
        base_instant=file_slice.base_instant,
        base_file=base.name if base else None,
        base_bytes=base.size or 0 if base else 0,
        log_files=tuple(log.name for log in file_slice.logs),
        log_bytes=sum(log.size or 0 for log in file_slice.logs),
    )


@dataclass(frozen=True, slots=True)
class IndexesReport:
    """The indexes of a table; `unusable` is the reason if the metadata table cannot be used."""

    table: str
    unusable: str | None
    indexes: tuple[IndexInfo, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of comparing an index with the rows."""

    table: str
    is_sound: bool
    check: IndexCheck


def indexes_report(table: Table) -> IndexesReport:
    """The table's indexes, or why they cannot be used."""
    metadata = handle_of(table).state().metadata
    unusable = metadata.reason if isinstance(metadata, Unusable) else None
    return IndexesReport(table.config.name, unusable, table.indexes.list())


def check_report(table: Table, name: str, *, examples: int, observer: Observer = SILENT) -> CheckReport:
    """Compares an index with the rows; lists at most `examples` of each kind of difference."""
    check = table.indexes.validate(name, examples=examples, observer=observer)
    return CheckReport(table.config.name, check.is_sound, check)


@dataclass(frozen=True, slots=True)
class RowsReport:
    """Rows of a table; `more` if the read has further rows."""

    table: str
    rows: pa.Table
    more: bool = False


@dataclass(frozen=True, slots=True)
class LookupReport:
    """The rows of the given record keys, and the keys that are not in the table."""

    table: str
    rows: pa.Table
    missing: tuple[str, ...]


def rows_report(
    table: Table,
    *,
    limit: int,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    as_of: str | None = None,
    mode: str = SNAPSHOT,
) -> RowsReport:
    """The first `limit` rows of a read; no more slices are opened than needed."""
    plan = plan_scan(handle_of(table).state(), columns=columns, where=where, as_of=as_of, mode=mode)
    parts = [plan.schema.empty_table()]
    count = 0
    for part in _read_in_waves(plan.tasks):
        parts.append(part)
        count += part.num_rows
        if count > limit:
            break
    return RowsReport(table.config.name, pa.concat_tables(parts).slice(0, limit), more=count > limit)


def lookup_report(table: Table, keys: Sequence[str], columns: Sequence[str] | None = None) -> LookupReport:
    """Looks up record keys; reports rows and missing keys."""
    asked = None if columns is None else list(dict.fromkeys([*columns, RECORD_KEY]))
    rows = table.lookup(keys, asked)
    found = set(rows[RECORD_KEY].to_pylist())
    missing = tuple(key for key in dict.fromkeys(keys) if key not in found)
    return LookupReport(table.config.name, rows if columns is None else rows.select(columns), missing)


def _read_in_waves(tasks: Sequence[SliceTask]) -> Iterator[pa.Table]:
    """The rows of the slices in order: reads one slice, then two at once, then four, so that a small limit is cheap."""
    start, wave = 0, 1
    while start < len(tasks):
        yield from map_tasks(tasks[start : start + wave], read_slice)
        start, wave = start + wave, wave * 2


def spark_type(kind: pa.DataType) -> str:
    """The type in Spark SQL, e.g. `bigint` or `array<struct<a:int>>`; the Arrow name of types that Spark lacks."""
    if kind in _WORDS:
        return _WORDS[kind]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _nested(kind)


def _nested(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_type(field.type)}' for field in kind)}>"
    return str(kind)
