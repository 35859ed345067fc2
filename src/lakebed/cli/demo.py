"""The demo: small tables that Apache Hudi wrote, looked at through each of lakebed's reads."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lakebed.api import Table, open_table
from lakebed.cli.inspect import report_timeline
from lakebed.cli.output import TextOutput
from lakebed.cli.reports import LookupReport, Report, RowsReport
from lakebed.cli.words import count, duration
from lakebed.errors import LakebedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
COLUMNS = ["id", "ts", "name", "amount", "region"]


@dataclass(frozen=True, slots=True)
class Chapter:
    """What the steps that follow are about."""

    title: str
    about: str


@dataclass(frozen=True, slots=True)
class Step:
    """One call: why it is made, what to type, how long it took and what it gave."""

    what: str
    call: str
    seconds: float
    result: Report | None = None
    remark: str = ""


Event: TypeAlias = Chapter | Step


@dataclass(frozen=True, slots=True)
class PlayedChapter:
    """A chapter with its steps."""

    title: str
    about: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole demo."""

    chapters: tuple[PlayedChapter, ...]


@dataclass(frozen=True, slots=True)
class _Sample:
    archive: str
    about: str
    where: str
    key: str | None = None


_INTRODUCTION = Chapter(
    "lakebed demo",
    "Four small tables that Apache Hudi wrote, read in this process: no Hudi, no jar, and until the end no Spark. Lines "
    "after >>> are what you would type in Python. First calls take longer, as code is loaded and compiled.",
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
        "Merge-on-read: updates and deletes wait in log files until a compaction merges them into base files. Reads merge "
        "what is still waiting.",
        where="amount < 4.5",
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
        "Merge-on-read as Hudi 0.15 left it, in table version 6: another timeline and other log files, but the same calls.",
        where="region = 'us'",
    ),
)
_SPARK = Chapter("Spark", "The same snapshots as Spark DataFrames, still with no Hudi jar.")


def play() -> Iterator[Event]:
    """The demo, event by event as it takes place, on tables in a folder that is removed at the end."""
    yield _INTRODUCTION
    yield Step("Without `columns`, Hudi's five meta columns come too.", f"import lakebed; columns = {COLUMNS}", 0.0)
    with TemporaryDirectory(prefix="lakebed-demo-") as folder:
        tables = [open_table(_unpack(sample, Path(folder))) for sample in _SAMPLES]
        for sample, table in zip(_SAMPLES, tables, strict=True):
            yield Chapter(f"Table {table.config.name}", sample.about)
            yield Step("Open the table.", f"table = lakebed.open_table({table.url!r})", 0.0)
            for what, call, run in _calls(table, sample):
                result, seconds = _timed(run)
                yield Step(what, call, seconds, result)
        yield _SPARK
        yield from _play_spark(tables)


def collect(events: Iterable[Event]) -> DemoReport:
    """The events as one value."""
    chapters: list[PlayedChapter] = []
    for event in events:
        if isinstance(event, Chapter):
            chapters.append(PlayedChapter(event.title, event.about, ()))
        else:
            last = chapters.pop()
            chapters.append(PlayedChapter(last.title, last.about, (*last.steps, event)))
    return DemoReport(tuple(chapters))


def tell(events: Iterable[Event], output: TextOutput) -> None:
    """Show events as they come."""
    for event in events:
        if isinstance(event, Chapter):
            output.heading(event.title, event.about)
            continue
        output.call(event.what, event.call)
        if event.result is not None:
            output.show(event.result)
        remarks = [event.remark, f"took {duration(event.seconds)}" if event.seconds else ""]
        if any(remarks):
            output.remark("; ".join(filter(None, remarks)))


def _unpack(sample: _Sample, folder: Path) -> Path:
    with as_file(files("lakebed.cli") / "demo_tables" / f"{sample.archive}.zip") as path, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        return folder / archive.namelist()[0].partition("/")[0]


def _calls(table: Table, sample: _Sample) -> Iterator[tuple[str, str, Callable[[], Report]]]:
    first = table.timeline.commits()[0].requested_at
    yield "What was done to it.", "table.timeline", lambda: report_timeline(table)
    yield "Its rows as they stand now.", "table.to_arrow(columns)", lambda: _rows(table, table.to_arrow(COLUMNS))
    yield (
        "Its rows right after the first commit.",
        f"table.to_arrow(columns, as_of={first!r})",
        lambda: _rows(table, table.to_arrow(COLUMNS, as_of=first)),
    )
    yield (
        "What was written after the first commit.",
        f"table.changes({first!r}, columns=columns)",
        lambda: _rows(table, table.changes(first, columns=COLUMNS)),
    )
    where = sample.where
    yield "A filter.", f'table.to_arrow(columns, "{where}")', lambda: _rows(table, table.to_arrow(COLUMNS, where))
    yield "Which files that filter needs, and why.", f'table.explain("{where}")', lambda: table.explain(where)
    if sample.key is not None:
        key = sample.key
        yield (
            "One row by its record key.",
            f"table.lookup([{key!r}], columns)",
            lambda: LookupReport(table.config.name, table.lookup([key], COLUMNS), ()),
        )


def _play_spark(tables: list[Table]) -> Iterator[Step]:
    if find_spec("pyspark") is None:
        yield Step("PySpark is not installed. To see this part:", "pip install 'lakebed[spark]'", 0.0)
        return
    from lakebed.engine.session import local_session

    try:
        spark, seconds = _timed(lambda: local_session("lakebed-demo", cores=2))
    except LakebedError as error:
        yield Step("Spark does not start here.", error.hint, 0.0, remark=error.what)
        return
    yield Step("Start Spark in this process.", "spark = lakebed.local_session()", seconds)
    for table in tables:
        yield _spark_step(table, spark)
    spark.stop()


def _spark_step(table: Table, spark: SparkSession) -> Step:
    here = table.to_arrow(COLUMNS)
    through_spark, seconds = _timed(lambda: Table(table._handle, spark).to_spark(COLUMNS).toArrow())
    same = _sorted_rows(here) == _sorted_rows(through_spark)
    remark = f"{count(through_spark.num_rows, 'row')}, {'the same as' if same else 'NOT the same as'} in process"
    return Step(f"Table {table.config.name}.", "table.to_spark(columns).toArrow()", seconds, remark=remark)


def _rows(table: Table, rows: pa.Table) -> RowsReport:
    return RowsReport(table.config.name, rows)


def _sorted_rows(rows: pa.Table) -> list[dict[str, object]]:
    return sorted(rows.to_pylist(), key=repr)


def _timed(run: Callable[[], T]) -> tuple[T, float]:
    start = perf_counter()
    result = run()
    return result, perf_counter() - start
