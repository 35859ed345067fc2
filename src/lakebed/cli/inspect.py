"""From an open table to the values that the commands show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakebed.api import Table, handle_of
from lakebed.cli.reports import (
    ColumnEntry,
    ConfigReport,
    FilesReport,
    IndexesReport,
    LookupReport,
    RowsReport,
    SchemaReport,
    SliceEntry,
    TimelineEntry,
    TimelineReport,
    Written,
)
from lakebed.cli.spark_types import spark_type
from lakebed.cli.words import moment
from lakebed.engine.threads import map_tasks
from lakebed.errors import CorruptTableError
from lakebed.metadata import Unusable
from lakebed.model.commit import CommitMetadata
from lakebed.model.files import FileSlice
from lakebed.model.instant import Instant
from lakebed.model.words import RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import SNAPSHOT, plan_scan
from lakebed.table import TableState
from lakebed.write.metrics import read_metrics


def report_timeline(table: Table) -> TimelineReport:
    """Every instant of the active timeline, and what each completed write wrote."""
    state = _state(table)
    zone = state.config.timeline_timezone
    entries = map_tasks(state.timeline.instants, lambda instant: _entry(state, instant))
    return TimelineReport(state.config.name, zone, tuple(entries))


def report_files(table: Table, as_of: str | None = None) -> FilesReport:
    """The file slices that a snapshot reads, by partition."""
    slices = sorted(table.files(as_of), key=lambda file_slice: file_slice.group)
    return FilesReport(table.config.name, as_of, tuple(_slice_entry(file_slice) for file_slice in slices))


def report_schema(table: Table) -> SchemaReport:
    """The columns of the newest snapshot."""
    columns = tuple(ColumnEntry(field.name, spark_type(field.type), field.nullable) for field in table.schema)
    return SchemaReport(table.config.name, columns)


def report_config(table: Table) -> ConfigReport:
    """The table's properties and what follows from them."""
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


def report_indexes(table: Table) -> IndexesReport:
    """The table's indexes, or why they cannot be used."""
    metadata = _state(table).metadata
    unusable = metadata.reason if isinstance(metadata, Unusable) else None
    return IndexesReport(table.config.name, unusable, table.indexes.list())


def report_lookup(table: Table, keys: Sequence[str], columns: Sequence[str] | None = None) -> LookupReport:
    """The rows of record keys, and which keys have none."""
    asked = None if columns is None else list(dict.fromkeys([*columns, RECORD_KEY]))
    rows = table.lookup(keys, asked)
    found = set(rows[RECORD_KEY].to_pylist())
    missing = tuple(key for key in dict.fromkeys(keys) if key not in found)
    return LookupReport(table.config.name, rows if columns is None else rows.select(columns), missing)


def report_rows(
    table: Table,
    *,
    limit: int,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    as_of: str | None = None,
    mode: str = SNAPSHOT,
) -> RowsReport:
    """The first `limit` rows of a read; slices that they do not need are not opened."""
    plan = plan_scan(_state(table), columns=columns, where=where, as_of=as_of, mode=mode)
    parts = [plan.schema.empty_table()]
    count = 0
    for part in _read_in_waves(plan.tasks):
        parts.append(part)
        count += part.num_rows
        if count > limit:
            break
    return RowsReport(table.config.name, pa.concat_tables(parts).slice(0, limit), more=count > limit)


def _state(table: Table) -> TableState:
    return handle_of(table).state()


def _read_in_waves(tasks: Sequence[SliceTask]) -> Iterator[pa.Table]:
    """The slices' rows in order: one slice, then two at once, then four, so that few rows cost little."""
    start, wave = 0, 1
    while start < len(tasks):
        yield from map_tasks(tasks[start : start + wave], read_slice)
        start, wave = start + wave, wave * 2


def _entry(state: TableState, instant: Instant) -> TimelineEntry:
    utc = state.config.timeline_timezone == "UTC"
    # Timeline layout 1 names instants by requested time alone; what stands for the completion time there is a copy.
    completed_at = instant.completed_at if state.config.timeline_layout > 1 else None
    written, problem = _written(state, instant)
    return TimelineEntry(
        requested_at=instant.requested_at,
        requested_time=_iso(instant.requested_at, utc=utc),
        action=str(instant.action),
        state=str(instant.state),
        completed_at=completed_at,
        completed_time=_iso(completed_at, utc=utc) if completed_at else None,
        duration_s=_seconds_between(instant.requested_at, completed_at) if completed_at else None,
        written=written,
        problem=problem,
    )


def _written(state: TableState, instant: Instant) -> tuple[Written | None, str | None]:
    if not (instant.is_completed and instant.action.changes_data):
        return None, None
    try:
        return _sum_up(state.documents.commit(instant)), None
    except CorruptTableError as error:  # The other instants are still worth seeing, all the more so then.
        return None, error.what


def _sum_up(commit: CommitMetadata) -> Written:
    stats = tuple(commit.stats)
    return Written(
        operation=commit.operation.lower() if commit.operation else None,
        inserted=sum(stat.num_inserts for stat in stats),
        updated=sum(stat.num_updates for stat in stats),
        deleted=sum(stat.num_deletes for stat in stats),
        files=len(stats),
        bytes=sum(stat.total_write_bytes for stat in stats),
        replaced_file_groups=sum(len(file_ids) for file_ids in commit.replaced_file_ids.values()),
        metrics=read_metrics(commit.extra_metadata),
    )


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


def _iso(instant: str, *, utc: bool) -> str | None:
    at = moment(instant)
    return None if at is None else at.isoformat(timespec="milliseconds") + ("Z" if utc else "")


def _seconds_between(start: str, end: str) -> float | None:
    begun, done = moment(start), moment(end)
    return (done - begun).total_seconds() if begun and done else None
