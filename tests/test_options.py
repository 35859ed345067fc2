"""Options are texts from users: what means nothing is refused wherever it is given, before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.options import known_options
from lakebed.source.options import known_save_options
from lakebed.source.writer import plan_save

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
ROWS = pa.table({"id": ["a", "b"], "city": ["oslo", "lima"], "ts": [1, 1]}, SCHEMA)
FREE = {
    "as.of.instant",
    "hoodie.clustering.plan.strategy.partition.selected",
    "hoodie.clustering.plan.strategy.sort.columns",
    "hoodie.datasource.read.begin.instanttime",
    "hoodie.datasource.read.end.instanttime",
    "hoodie.datasource.write.partitionpath.field",
    "hoodie.datasource.write.partitions.to.delete",
    "hoodie.datasource.write.precombine.field",
    "hoodie.datasource.write.recordkey.field",
    "hoodie.datasource.write.table.name",
    "hoodie.table.name",
    "hoodie.table.ordering.fields",
    "hoodie.table.partition.fields",
    "hoodie.table.precombine.field",
    "hoodie.table.recordkey.fields",
}
"""Options with names, paths or times: no word or number is wrong by itself."""
LOCKS = ("wait_time_ms", "client.num_retries", "storage.validity.timeout.secs", "filesystem.expire", "zookeeper.port")
CHECKED = sorted(
    [key for key, outcome in known_options().items() if key not in FREE and outcome != "no effect"]
    + [f"hoodie.write.lock.{name}" for name in LOCKS]
)
SAVED = sorted(key for key, outcome in known_save_options().items() if key not in FREE and outcome != "no effect")
BAD = ("bogus", "-1", "1.5", "1_000", "٣", "nan", "inf", "1" * 30)


def tell(path: Path) -> dict[str, int]:
    """Every file below a folder, and when it was written."""
    return {str(file): file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def table_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("options") / "trips"
    table = lakebed.create_table(path, schema=SCHEMA, key="id", partition_by="city", ordering="ts", table_type="mor")
    table.upsert(ROWS)
    return path


def refused(call: Callable[[], object], key: str, value: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert key in str(caught.value)
    assert caught.value.hint
    if "has no effect" not in caught.value.what:
        assert value in caught.value.what
        assert any(word in caught.value.hint for word in ("use ", "give ", "leave ")), caught.value.hint


@pytest.mark.parametrize("key", CHECKED)
def test_a_bad_value_makes_no_table(tmp_path: Path, key: str) -> None:
    for value in BAD:
        if is_good(key, value):
            continue
        refused(
            lambda: lakebed.create_table(tmp_path / "t", schema=SCHEMA, key="id", ordering="ts", options={key: value}),  # noqa: B023
            key,
            value,
        )
        assert tell(tmp_path) == {}


@pytest.mark.parametrize("key", CHECKED)
def test_a_bad_value_writes_nothing(table_path: Path, key: str) -> None:
    before = tell(table_path)
    calls: tuple[Callable[[lakebed.Table], object], ...] = (
        lambda table: table.upsert(ROWS),
        lambda table: table.delete(["a"]),
        lambda table: table.delete_partitions("oslo"),
        lambda table: table.services.run(),
        lambda table: table.services.compact(),
        lambda table: table.indexes.create("record_index"),
        lambda table: table.doctor(repair=True),
    )
    for value in BAD:
        if is_good(key, value):
            continue
        for call in calls:
            refused(lambda: call(lakebed.open_table(table_path, options={key: value})), key, value)  # noqa: B023
    assert tell(table_path) == before


@pytest.mark.parametrize("key", SAVED)
def test_a_bad_value_saves_nothing(table_path: Path, tmp_path: Path, key: str) -> None:
    before = tell(table_path)
    about = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "city"}
    about["hoodie.datasource.write.precombine.field"] = "ts"
    for value in BAD:
        if is_good(key, value):
            continue
        for path in (table_path, tmp_path / "t"):
            options = {**about, key: value, "path": str(path)}
            refused(lambda: plan_save(options, SCHEMA, overwrite=False), key, value)  # noqa: B023
    assert tell(table_path) == before
    assert tell(tmp_path) == {}


def is_good(key: str, value: str) -> bool:
    """Of the bad values, one that an option takes: a growth factor has a fraction."""
    return key.endswith("growth.factor") and value == "1.5"


def test_every_number_and_word_is_told(table_path: Path) -> None:
    """What is allowed is in the hint."""
    wanted = {
        "hoodie.parquet.compression.codec": "uncompressed, snappy, gzip, zstd, lz4 or lz4_raw",
        "hoodie.parquet.max.file.size": "a whole number from 1 to ",
        "hoodie.parquet.small.file.limit": "a whole number from 0 to ",
        "hoodie.compact.inline": "true or false",
        "hoodie.index.type": "record_index",
        "hoodie.keep.min.commits": "a whole number from 1 to ",
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.layout.optimize.strategy": "linear, zorder or hilbert",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING",
        "hoodie.metadata.record.index.growth.factor": "a number from 1 to ",
    }
    for key, words in wanted.items():
        with pytest.raises(InvalidInputError) as caught:
            lakebed.open_table(table_path, options={key: "bogus"}).upsert(ROWS)
        assert words in caught.value.hint, key


def test_the_spelling_that_was_given_is_named(table_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"hoodie\.cleaner\.commits\.retained=none"):
        lakebed.open_table(table_path, options={"hoodie.cleaner.commits.retained": "none"}).upsert(ROWS)


@pytest.mark.parametrize("word", ["uncompressed", "snappy", "gzip", "zstd", "lz4", "lz4_raw"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_codecs_of_apache_hudi(tmp_path: Path, word: str, table_type: str) -> None:
    for number, spelled in enumerate((word, word.upper())):
        path = tmp_path / str(number)
        options = {"hoodie.parquet.compression.codec": spelled}
        table = lakebed.create_table(path, schema=SCHEMA, key="id", table_type=table_type, options=options)
        rows = pa.table({"id": [f"{i:04}" for i in range(400)], "city": ["oslo"] * 400, "ts": [7] * 400}, SCHEMA)
        table.upsert(rows)
        table.upsert(rows)
        assert table.to_arrow(["id"]).num_rows == 400
        columns = pq.ParquetFile(next(path.glob("*.parquet"))).metadata.row_group(0)
        codecs = {columns.column(number).compression for number in range(columns.num_columns)} - {"UNCOMPRESSED"}
        assert codecs == {word.upper().removesuffix("_RAW")} - {"UNCOMPRESSED"}  # As Arrow calls it.


@pytest.mark.filterwarnings("always")
def test_an_unknown_option_warns_once(tmp_path: Path) -> None:
    options = {"hoodie.bulkinsert.sort.modus": "none"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = lakebed.create_table(tmp_path, schema=SCHEMA, key="id", options=options)
        table.upsert(ROWS)
        table.services.run()
        table.doctor()
    assert len(caught) == 1
    assert "hoodie.bulkinsert.sort.modus has no effect; the nearest known one is hoodie.bulkinsert.sort.mode" in str(
        caught[0].message
    )
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("always")
def test_an_unknown_option_of_a_save_warns_once(tmp_path: Path) -> None:
    options = {"hoodie.bulkinsert.sort.modus": "none", "hoodie.datasource.write.recordkey.field": "id"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan_save({**options, "path": str(tmp_path)}, SCHEMA, overwrite=False)
    assert len(caught) == 1
