"""The demo: writes to a new table, then every kind of read on small tables that Apache Hudi wrote."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakebed.api import Table, create_table, open_table
from lakebed.cli.output import TextOutput
from lakebed.cli.words import count, duration
from lakebed.engine.session import local_session
from lakebed.errors import LakebedError
from lakebed.reports.report import Report
from lakebed.reports.table import LookupReport, RowsReport
from lakebed.reports.timeline import timeline_report

if TYPE_CHECKING:
    from lakebed.write.writer import WriteResult

COLUMNS = ["id", "ts", "name", "amount", "region"]


@dataclass(frozen=True, slots=True)
class DemoCall:
    """A call that is about to be made: its purpose, and the Python code."""

    what: str
    call: str


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The result of the last call, and its duration."""

    seconds: float
    result: Report | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A call with its outcome."""

    what: str
    call: str
    seconds: float
    result: Report | None
    remark: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """A section of the demo; `steps` are the calls that were made in it."""

    title: str
    about: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole demo."""

    chapters: tuple[Chapter, ...]


Event: TypeAlias = Chapter | DemoCall | DemoOutcome


@dataclass(frozen=True, slots=True)
class _Sample:
    archive: str
    about: str
    where: str
    key: str | None = None


_INTRODUCTION = Chapter(
    "lakebed demo",
    "A new table, then four small ones that Apache Hudi wrote, all in this process: no Hudi, no jar, and no Spark "
    "until the end. Lines after >>> are Python. First calls take longer, because code is loaded and compiled.",
)
_SAMPLES = (
    _Sample(
        "hudi120_cow_part_upsert",
        "Copy-on-write, partitioned by region: each write makes new base files. An insert, an upsert and a delete.",
        where="region = 'eu' AND amount > 5",
        key="k007",
    ),
    _Sample(
        "hudi120_mor_part_compacted",
        "Merge-on-read: updates and deletes are in log files until a compaction merges them into base files. "
        "Reads merge the log files.",
        where="name = 'z1'",
        key="k001",
    ),
    _Sample(
        "hudi120_mor_nonpart_all_indexes",
        "Merge-on-read with every index: record, secondary (on name), expression, column statistics, bloom filters.",
        where="name = 'x4'",
        key="k009",
    ),
    _Sample(
        "hudi015_mor_part_event_time",
        "Merge-on-read written by Hudi 0.15, table version 6: another timeline and log format, but the same calls.",
        where="region = 'us'",
    ),
)
_OWN = Chapter(
    "A table of our own",
    "Merge-on-read, partitioned by city: created, loaded, updated, and read as of the load. "
    "Apache Hudi can read and write it.",
)
_TRIPS = ["trip", "city", "ts", "fare"]
_SPARK = Chapter("Spark", "The same snapshots as Spark DataFrames, still with no Hudi jar.")


def play() -> Iterator[Event]:
    """Runs the demo and yields its events; the tables are in a folder that is removed at the end."""
    yield _INTRODUCTION
    yield DemoCall("Without `columns`, Hudi's five meta columns come too.", f"import lakebed; columns = {COLUMNS}")
    with TemporaryDirectory(prefix="lakebed-demo-") as folder:
        yield _OWN
        yield from _play_writes(Path(folder, "trips"))
        paths = [_unpack(sample, Path(folder)) for sample in _SAMPLES]
        for sample, path in zip(_SAMPLES, paths, strict=True):
            yield Chapter(f"Table {path.name}", sample.about)
            yield from _play_table(sample, path)
        yield _SPARK
        yield from _play_spark([open_table(path) for path in paths])


def collect(events: Iterable[Event]) -> DemoReport:
    """Collects the events into one report."""
    chapters: list[Chapter] = []
    call: DemoCall | None = None
    for event in events:
        if isinstance(event, Chapter):
            chapters.append(event)
        elif isinstance(event, DemoCall):
            call = event
        elif call is not None:
            step = Step(call.what, call.call, event.seconds, event.result, event.remark)
            chapters[-1] = replace(chapters[-1], steps=(*chapters[-1].steps, step))
    return DemoReport(tuple(chapters))


def tell(events: Iterable[Event], output: TextOutput) -> None:
    """Shows events as they occur."""
    for event in events:
        if isinstance(event, Chapter):
            output.heading(event.title, event.about)
        elif isinstance(event, DemoCall):
            output.call(event.what, event.call)
        else:
            if event.result is not None:
                output.show(event.result)
            output.remark("; ".join(filter(None, (event.remark, f"took {duration(event.seconds)}"))))


def _unpack(sample: _Sample, folder: Path) -> Path:
    packed = files("lakebed.cli") / "demo_tables" / f"{sample.archive}.zip"
    with as_file(packed) as path, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        return folder / archive.namelist()[0].partition("/")[0]


def _play_table(sample: _Sample, path: Path) -> Iterator[Event]:
    yield DemoCall("Open it.", f"table = lakebed.open_table({str(path)!r})")
    start = perf_counter()
    table = open_table(path)
    yield DemoOutcome(perf_counter() - start)
    for call, run in _calls(table, sample):
        yield call
        start = perf_counter()
        result = run()
        yield DemoOutcome(perf_counter() - start, result)


def _play_writes(path: Path) -> Iterator[Event]:
    create = """import pyarrow as pa
schema = pa.schema([("trip", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
table = lakebed.create_table(path, schema=schema, key="trip", partition_by="city", ordering="ts", table_type="mor")"""
    yield DemoCall("Create it.", create)
    start = perf_counter()
    table = create_table(path, schema=_trip_schema(), key="trip", partition_by="city", ordering="ts", table_type="mor")
    yield DemoOutcome(perf_counter() - start)
    for call, run in _write_calls(table):
        yield call
        start = perf_counter()
        result = run()
        yield DemoOutcome(perf_counter() - start, *((None, result) if isinstance(result, str) else (result, "")))


def _trip_schema() -> pa.Schema:
    return pa.schema([("trip", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])


def _trip(number: int, ts: int, fare: float) -> dict[str, object]:
    return {"trip": f"t{number}", "city": ("oslo", "lima")[number % 2], "ts": ts, "fare": fare}


def _write_calls(table: Table) -> Iterator[tuple[DemoCall, Callable[[], Report | str]]]:
    def told(result: WriteResult) -> str:
        return (
            f"instant {result.instant}: {result.inserted} inserted, {result.updated} updated, {result.deleted} deleted"
        )

    first = [_trip(number, 1, 10.0 + number) for number in range(6)]
    yield DemoCall("Load six trips.", "table.upsert(rows)"), lambda: told(table.upsert(first))
    changed = [_trip(2, 2, 99.0), _trip(6, 2, 16.0), _trip(3, 0, -1.0)]
    yield (
        DemoCall("A newer fare, a new trip, and a late one, whose ts is smaller.", "table.upsert(more)"),
        lambda: told(table.upsert(changed)),
    )
    yield DemoCall("Delete two trips.", "table.delete(['t0', 't1'])"), lambda: told(table.delete(["t0", "t1"]))
    yield DemoCall("What is left.", "table.to_arrow(columns)"), lambda: _rows(table, _by_trip(table.to_arrow(_TRIPS)))
    loaded = "table.timeline.commits()[0].requested_at"
    yield (
        DemoCall("The table as it was after the load.", f"table.to_arrow(columns, as_of={loaded})"),
        lambda: _rows(table, _by_trip(table.to_arrow(_TRIPS, as_of=table.timeline.commits()[0].requested_at))),
    )
    yield DemoCall("What was done to it.", "table.timeline"), lambda: timeline_report(table)


def _by_trip(rows: pa.Table) -> pa.Table:
    return rows.sort_by("trip")


def _calls(table: Table, sample: _Sample) -> Iterator[tuple[DemoCall, Callable[[], Report]]]:
    where, first = sample.where, table.timeline.commits()[0].requested_at
    yield DemoCall("What was done to it.", "table.timeline"), lambda: timeline_report(table)
    yield (
        DemoCall("Its rows as they stand now.", "table.to_arrow(columns)"),
        lambda: _rows(table, table.to_arrow(COLUMNS)),
    )
    yield (
        DemoCall("Its rows right after the first commit.", f"table.to_arrow(columns, as_of={first!r})"),
        lambda: _rows(table, table.to_arrow(COLUMNS, as_of=first)),
    )
    yield (
        DemoCall("What was written after the first commit.", f"table.changes(since={first!r}, columns=columns)"),
        lambda: _rows(table, table.changes(since=first, columns=COLUMNS)),
    )
    yield (
        DemoCall("A filter.", f'table.to_arrow(columns, where="{where}")'),
        lambda: _rows(table, table.to_arrow(COLUMNS, where=where)),
    )
    yield (
        DemoCall("Which files that filter needs, and why.", f'table.explain(where="{where}")'),
        lambda: table.explain(where),
    )
    if sample.key is not None:
        keys = [sample.key]
        yield (
            DemoCall("One row by its record key.", f"table.lookup({keys}, columns)"),
            lambda: LookupReport(table.config.name, table.lookup(keys, COLUMNS), ()),
        )


def _play_spark(tables: list[Table]) -> Iterator[Event]:
    if find_spec("pyspark") is None:
        yield DemoCall("PySpark is not installed. To see this part:", "pip install 'lakebed[spark]'")
        return
    yield DemoCall("Start Spark.", "spark = lakebed.local_session()")
    start = perf_counter()
    try:
        spark = local_session("lakebed-demo")
    except LakebedError as error:
        yield DemoOutcome(perf_counter() - start, remark=f"Spark does not start here: {error.what}; {error.hint}")
        return
    yield DemoOutcome(perf_counter() - start)
    try:
        for table in tables:
            yield DemoCall(f"Table {table.config.name}.", "table.to_spark(columns).toArrow()")
            yield _compare(table)
    finally:
        spark.stop()


def _compare(table: Table) -> DemoOutcome:
    here = table.to_arrow(COLUMNS)
    start = perf_counter()
    there = table.to_spark(COLUMNS).toArrow()
    seconds = perf_counter() - start
    same = "the same" if _as_set(there) == _as_set(here) else "NOT the same"
    return DemoOutcome(seconds, remark=f"{count(there.num_rows, 'row')}, {same} as in process")


def _rows(table: Table, rows: pa.Table) -> RowsReport:
    return RowsReport(table.config.name, rows)


def _as_set(rows: pa.Table) -> set[tuple[object, ...]]:
    return set(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))
