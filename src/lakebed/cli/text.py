"""Reports as text: the columns of each, their order, and which are dropped first on a narrow terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.cli.grid import Grid, GridColumn, grid
from lakebed.cli.words import NOTHING, count, duration, listed, readable, size
from lakebed.model.words import META_COLUMNS
from lakebed.read.prune import PruneStep
from lakebed.read.scan import Explanation
from lakebed.reports.report import Report, encode_json, plain
from lakebed.reports.services import DoctorReport, RepairReport, ServicesReport
from lakebed.reports.table import (
    CheckReport,
    ConfigReport,
    FilesReport,
    IndexesReport,
    LookupReport,
    RowsReport,
    SchemaReport,
    SliceEntry,
)
from lakebed.reports.timeline import TimelineEntry, TimelineReport, WriteSummary

if TYPE_CHECKING:
    from lakebed.services.doctor.finding import Finding
    from lakebed.services.doctor.under_way import UnderWay

_number = partial(GridColumn, align="right")
_STATES = {
    "completed": "green",
    "inflight": "yellow",
    "requested": "yellow",
    "ready": "green",
    "building": "yellow",
    "broken": "red",
    "unfinished": "red",
}
_META_RANK = 1_000_000  # Meta columns are dropped first, then columns from right to left.
_FACTS = (GridColumn("", style="bold"), GridColumn("", fit="wrap"))


def describe(report: Report) -> Iterator[Grid | str]:
    """A report as grids and remarks."""
    match report:
        case TimelineReport():
            return _timeline(report)
        case FilesReport():
            return _files(report)
        case SchemaReport():
            return _schema(report)
        case ConfigReport():
            return _config(report)
        case IndexesReport():
            return _indexes(report)
        case CheckReport():
            return _check(report)
        case RowsReport():
            return _rows(report)
        case LookupReport():
            return _lookup(report)
        case ServicesReport():
            return _services(report)
        case RepairReport():
            return _repair(report)
        case DoctorReport():
            return _doctor(report)
        case Explanation():
            return _explanation(report)


_TIMELINE = (
    GridColumn("requested", style="cyan"),
    GridColumn("requested at", rank=9),
    GridColumn("action"),
    GridColumn("state", rank=1, styles=_STATES),
    GridColumn("completed", rank=10, style="cyan"),
    GridColumn("completed at", rank=6),
    _number("took", rank=5),
    GridColumn("operation", rank=4),
    _number("inserted", rank=2),
    _number("updated", rank=2),
    _number("deleted", rank=2),
    _number("files", rank=8),
    _number("size", rank=7),
)
_MEASURED = (GridColumn("record index", rank=11), GridColumn("phases", rank=12))
"""Columns for metrics, which only lakebed's own writes record."""


def _timeline(report: TimelineReport) -> Iterator[Grid | str]:
    is_measured = any(entry.written is not None and entry.written.metrics for entry in report.instants)
    columns = (*_TIMELINE, *(_MEASURED if is_measured else ()))
    yield grid(columns, [_timeline_row(entry)[: len(columns)] for entry in report.instants])
    for entry in report.instants:
        if entry.problem:
            yield f"{entry.action} {entry.requested_at} cannot be read: {entry.problem}"
    pending = sum(entry.state != "completed" for entry in report.instants)
    zone = "in UTC" if report.timezone == "UTC" else "in the writers' local time"
    yield f"{count(len(report.instants), 'instant')}, {pending} pending; times are {zone}"


def _timeline_row(entry: TimelineEntry) -> tuple[str, ...]:
    return (
        entry.requested_at,
        readable(entry.requested_time),
        entry.action,
        entry.state,
        entry.completed_at or NOTHING,
        readable(entry.completed_time),
        duration(entry.duration_s),
        *_written_cells(entry.written),
    )


def _written_cells(written: WriteSummary | None) -> tuple[str, ...]:
    if written is None:
        return (NOTHING,) * 8
    rows = (f"{number:,}" for number in (written.inserted, written.updated, written.deleted, written.files))
    return (written.operation or NOTHING, *rows, size(written.bytes), *_measured_cells(written.metrics))


def _measured_cells(metrics: Mapping[str, int]) -> tuple[str, str]:
    """Lookups in the record index (keys found, keys looked up, shards), and durations of the phases of a write."""
    probed, found, shards = (metrics.get(name, 0) for name in ("keys_probed", "keys_found", "shards_probed"))
    phases = [f"{name[:-3]} {duration(taken / 1000)}" for name, taken in metrics.items() if name.endswith("_ms")]
    index = f"{found:,} of {count(probed, 'key')}, {count(shards, 'shard')}" if probed else NOTHING
    return index, ", ".join(phases) or NOTHING


_FILES: tuple[GridColumn, ...] = (
    GridColumn("partition", fit="shorten"),
    GridColumn("file group", fit="shorten", style="cyan"),
    GridColumn("base instant", rank=1),
    _number("base size", rank=2),
    _number("logs"),
    _number("log size", rank=2),
)


def _files(report: FilesReport) -> Iterator[Grid | str]:
    first = 0 if any(entry.partition for entry in report.slices) else 1
    yield grid(_FILES[first:], [_slice_row(entry)[first:] for entry in report.slices])
    total = sum(entry.base_bytes + entry.log_bytes for entry in report.slices)
    as_of = f" as of {report.as_of}" if report.as_of else ""
    yield f"{count(len(report.slices), 'file slice')}, {size(total)}{as_of}"


def _slice_row(entry: SliceEntry) -> tuple[str, ...]:
    base, logs = entry.base_file, entry.log_files
    return (
        entry.partition,
        entry.file_id,
        entry.base_instant,
        size(entry.base_bytes) if base else NOTHING,
        str(len(logs)),
        size(entry.log_bytes) if logs else NOTHING,
    )


def _schema(report: SchemaReport) -> Iterator[Grid | str]:
    columns = (GridColumn("column", style="cyan"), GridColumn("type", fit="wrap"), GridColumn("nullable"))
    yield grid(columns, [(c.name, c.type, "yes" if c.nullable else "no") for c in report.columns])


def _config(report: ConfigReport) -> Iterator[Grid | str]:
    facts = (
        ("table", report.table),
        ("type", report.table_type),
        ("version", f"{report.table_version} (timeline layout {report.timeline_layout})"),
        ("record key", listed(report.key_fields)),
        ("key generator", report.key_generator or NOTHING),
        ("partitioned by", listed(report.partition_fields)),
        ("partition folders", _partition_folders(report)),
        ("ordered by", listed(report.ordering_fields)),
        ("merge mode", report.merge_mode + (f" with {report.custom_merging}" if report.custom_merging else "")),
        ("meta columns", "filled" if report.has_meta_columns else "empty"),
        ("instants in", "UTC" if report.timeline_timezone == "UTC" else "the writers' local time"),
        ("base files", report.base_file_format),
        ("metadata table", listed(report.metadata_partitions)),
        ("being built", listed(report.metadata_partitions_inflight)),
    )
    yield grid(_FACTS, facts, has_header=False)
    columns = (GridColumn("property", style="cyan"), GridColumn("value", fit="wrap"))
    yield grid(columns, tuple(report.properties.items()))


def _partition_folders(report: ConfigReport) -> str:
    if not report.partition_fields:
        return NOTHING
    return "column=value" if report.hive_style_partitioning else "value"


def _indexes(report: IndexesReport) -> Iterator[Grid | str]:
    columns = (
        GridColumn("index", style="cyan"),
        GridColumn("kind", rank=2, fit="shorten"),
        GridColumn("columns", rank=1, fit="shorten"),
        GridColumn("state", styles=_STATES),
        _number("shards", rank=1),
        _number("size", rank=1),
    )
    if report.unusable:
        yield f"the metadata table is not used: {report.unusable}"
    elif not report.indexes:
        yield f"table {report.table} has no indexes"
    else:
        rows = [(i.name, i.kind, listed(i.columns), i.state, str(i.shards), size(i.bytes)) for i in report.indexes]
        yield grid(columns, rows)


def _services(report: ServicesReport) -> Iterator[Grid | str]:
    columns = (
        GridColumn("service"),
        GridColumn("instant", style="cyan"),
        GridColumn("state", fit="wrap"),
        GridColumn("what it did", rank=1, fit="shorten"),
    )
    if not report.services:
        yield f"nothing to do for {report.table}"
        return
    rows = []
    for entry in report.services:
        did = tuple(f"{name} {number:,}" for name, number in entry.counts.items())
        state = " ".join(entry.state.split())  # An error has its hint on a second line.
        rows.append((entry.service, entry.instant or NOTHING, state, listed(did)))
    yield grid(columns, rows)


def _check(report: CheckReport) -> Iterator[Grid | str]:
    check = report.check
    columns = (
        GridColumn("difference"),
        GridColumn("key", style="cyan", fit="wrap"),
        GridColumn("the index says", rank=1, fit="wrap"),
        GridColumn("it is", rank=1, fit="wrap"),
    )
    if check.examples:
        yield grid(columns, [(e.what, e.key, e.indexed or NOTHING, e.stored or NOTHING) for e in check.examples])
    if check.problem:
        yield check.problem
    kinds = ("missing", "extra", "different", "repeated")
    told = ", ".join(f"{getattr(check, kind)} {kind}" for kind in kinds if getattr(check, kind))
    if not told:
        yield f"{check.name} and the table agree: {count(check.checked, 'key')} checked"
    else:
        yield f"{check.name} and the table differ: {told}; {count(check.checked, 'key')} checked"


def _doctor(report: DoctorReport) -> Iterator[Grid | str]:
    if any(finding.outcome is not None for finding in report.findings):
        columns = (
            GridColumn("finding"),
            GridColumn("place", style="cyan", fit="wrap"),
            GridColumn("outcome", fit="wrap", styles={"repaired": "green"}),
        )
        yield grid(columns, [(f.kind, f.place, f.outcome or f"by hand: {f.repair}") for f in report.findings])
    else:
        yield from map(_finding, report.findings)
    if report.under_way:
        yield grid(_UNDER_WAY, [_under_way_row(each) for each in report.under_way])
    yield _verdict(report)


_UNDER_WAY = (
    GridColumn("under way", style="cyan", fit="wrap"),
    GridColumn("action"),
    GridColumn("state", styles=_STATES),
    GridColumn("owner", rank=2, fit="shorten"),
    _number("last sign of life"),
    _number("dead in", rank=1),
    _number("staged", rank=3),
)


def _under_way_row(each: UnderWay) -> tuple[str, ...]:
    return (
        each.place,
        each.action,
        each.state,
        each.owner or NOTHING,
        f"{duration(float(each.silent_s))} ago",
        NOTHING if each.dead_in_s is None else duration(float(each.dead_in_s)),
        size(each.staged_bytes) if each.staged_bytes else NOTHING,
    )


def _repair(report: RepairReport) -> Iterator[Grid | str]:
    yield from map(_finding, report.findings)
    yield f"repairing {count(len(report.findings), 'finding')}"


def _finding(finding: Finding) -> Grid:
    return grid(_FACTS, tuple(_finding_facts(finding)), has_header=False)


def _finding_facts(finding: Finding) -> Iterator[tuple[str, str]]:
    yield finding.kind, finding.place
    yield "  wrong", finding.problem
    if finding.blocks:
        yield "  blocks", finding.blocks
    yield from (("  such as", example) for example in finding.examples)
    yield "  repair" if finding.is_safe else "  by hand", finding.repair


def _verdict(report: DoctorReport) -> str:
    findings = report.findings
    if not findings:
        return f"{report.table} is healthy"
    repaired = sum(finding.is_repaired for finding in findings)
    if repaired or report.is_healthy:
        return f"{count(len(findings), 'finding')}, {repaired} repaired"
    safe = sum(finding.is_safe and finding.outcome is None for finding in findings)
    return f"{count(len(findings), 'finding')}, {safe} of which --repair fixes"


def _rows(report: RowsReport) -> Iterator[Grid | str]:
    yield _data_grid(report.rows)
    first = "the first " if report.more else ""
    yield f"{first}{count(report.rows.num_rows, 'row')}" + ("; --limit shows more" if report.more else "")


def _lookup(report: LookupReport) -> Iterator[Grid | str]:
    if report.rows.num_rows:
        yield _data_grid(report.rows)
    missing = f"; not in the table: {', '.join(report.missing)}" if report.missing else ""
    yield f"{count(report.rows.num_rows, 'row')}{missing}"


def _data_grid(table: pa.Table) -> Grid:
    columns = [_data_column(field, number) for number, field in enumerate(table.schema)]
    cells = [[_cell(value) for value in column.to_pylist(maps_as_pydicts="lossy")] for column in table.columns]
    return grid(columns, list(zip(*cells, strict=True)))


def _data_column(field: pa.Field, number: int) -> GridColumn:
    kind = field.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _number(field.name, rank=number)
    if field.name in META_COLUMNS:
        return GridColumn(field.name, rank=_META_RANK + number, fit="shorten", style="dim")
    return GridColumn(field.name, rank=number, fit="whole" if pa.types.is_temporal(kind) else "shorten")


def _cell(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    as_plain = plain(value)
    return as_plain if isinstance(as_plain, str) else encode_json(value, indent=None)


def _explanation(report: Explanation) -> Iterator[Grid | str]:
    reads = f"{count(report.slices, 'file slice')}, {report.slices_merged} merged with logs, {size(report.bytes)}"
    facts: Sequence[tuple[str, str]] = (
        ("table", report.table),
        ("as of", report.as_of or "now"),
        ("where", report.where or NOTHING),
        ("files from", report.files_from),
        ("reads", reads),
        ("planning", report.asked),
    )
    yield grid(_FACTS, facts, has_header=False)
    if report.steps:
        columns = (
            GridColumn("index", style="cyan"),
            GridColumn("used", styles={"yes": "green", "no": "dim"}),
            _number("slices before", rank=1),
            _number("after", rank=1),
            GridColumn("why", fit="wrap"),
        )
        yield grid(columns, [_step_row(step) for step in report.steps])


def _step_row(step: PruneStep) -> tuple[str, ...]:
    if not step.used:
        return step.index, "no", NOTHING, NOTHING, step.reason
    return step.index, "yes", str(step.slices_before), str(step.slices_after), step.reason
