"""Writes through the public API against a plain dictionary: any order of operations, both table types."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lakebed
from tables import TRIPS as SCHEMA

CITIES = ("oslo", "lima", "rome")
Rows = dict[tuple[str, str], dict[str, Any]]

NUMBERS = itertools.count()


def new_table(folder: Path, table_type: str, **given: Any) -> lakebed.Table:
    asked = {"schema": SCHEMA, "key": "id", "partition_by": "city", "ordering": "ts", "table_type": table_type} | given
    return lakebed.create_table(folder / f"t{next(NUMBERS)}", **asked)


def row(number: int, ts: int, fare: float = 0.0) -> dict[str, Any]:
    return {"id": f"k{number}", "city": CITIES[number % 3], "ts": ts, "fare": fare or float(ts)}


def merged(model: Rows, rows: list[dict[str, Any]]) -> None:
    """What event-time ordering makes of rows: the greatest ts stays, of equal ones the last."""
    for each in rows:
        key = (each["city"], each["id"])
        if key not in model or each["ts"] >= model[key]["ts"]:
            model[key] = each


def folder_of(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]


def stored(table: lakebed.Table, **options: Any) -> list[dict[str, Any]]:
    rows = table.to_arrow(columns=SCHEMA.names, **options).to_pylist()
    return sorted(rows, key=lambda each: (each["city"], each["id"], each["ts"]))


def expected(model: Rows) -> list[dict[str, Any]]:
    return sorted(model.values(), key=lambda each: (each["city"], each["id"], each["ts"]))


def check(table: lakebed.Table, model: Rows) -> None:
    assert stored(table) == expected(model)
    url = folder_of(table)
    assert stored(lakebed.open_table(url, options={"hoodie.metadata.enable": "false"})) == expected(model)
    assert not table.timeline.pending()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=8)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 12), min_size=1, max_size=4)),
        st.tuples(st.just("overwrite"), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), min_size=1)),
        st.tuples(st.just("delete_partitions"), st.sampled_from(CITIES)),
        st.tuples(st.just("rollback"), st.none()),
    ),
    min_size=1,
    max_size=6,  # More, and the metadata table is compacted, after which a write can no longer be rolled back.
)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_any_order_of_operations_leaves_what_the_model_has(
    tmp_path: Path, table_type: str, steps: list[tuple[str, Any]]
) -> None:
    table = new_table(tmp_path, table_type)
    history: list[Rows] = [{}]
    for step in steps:
        history = history[:-1] if step[0] == "rollback" and len(history) > 1 else [*history, dict(history[-1])]
        play(table, step, history)
        check(table, history[-1])


def play(table: lakebed.Table, step: tuple[str, Any], history: list[Rows]) -> None:
    model = history[-1]
    match step:
        case ("upsert", pairs):
            rows = [row(number, ts) for number, ts in pairs]
            table.upsert(pa.Table.from_pylist(rows, SCHEMA))
            merged(model, rows)
        case ("delete", numbers):
            table.delete([f"k{number}" for number in numbers])
            for number in numbers:
                model.pop((CITIES[number % 3], f"k{number}"), None)
        case ("overwrite", pairs):
            rows = [row(number, ts) for number, ts in pairs]
            table.overwrite(rows)
            for key in [key for key in model if key[0] in {each["city"] for each in rows}]:
                del model[key]
            merged(model, rows)
        case ("delete_partitions", city):
            if city not in {file_slice.group.partition for file_slice in table.files()}:
                with pytest.raises(lakebed.InvalidInputError, match="no files in the partition"):
                    table.delete_partitions(city)
                history.pop()  # No commit was made of it.
                return
            table.delete_partitions(city)
            for key in [key for key in model if key[0] == city]:
                del model[key]
        case ("rollback", _):
            if table.timeline.commits():
                table.rollback(table.timeline.commits()[-1].requested_at)


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    return new_table(tmp_path, request.param)


def test_many_small_commits_keep_the_metadata_table_small(table: lakebed.Table) -> None:
    model: Rows = {}
    for ts in range(1, 36):
        rows = [row(ts % 7, ts), row(ts, ts)]
        table.upsert(rows)
        merged(model, rows)
    check(table, model)
    folder = Path(folder_of(table), ".hoodie/metadata")
    assert len(list((folder / "files").glob("*.hfile"))) >= 2, "it was compacted"
    assert len(list((folder / "files").iterdir())) < 36, "and cleaned"


def test_time_travel_sees_every_commit_as_it_was(table: lakebed.Table) -> None:
    model: Rows = {}
    seen = []
    for ts in range(1, 5):
        rows = [row(number, ts) for number in range(ts, ts + 4)]
        result = table.upsert(rows)
        merged(model, rows)
        seen.append((result.instant, expected(model)))
    for instant, rows in seen:
        assert stored(table, as_of=instant) == rows


def test_a_result_says_what_was_written(table: lakebed.Table) -> None:
    first = table.upsert([row(number, 1) for number in range(6)])
    assert (first.operation, first.inserted, first.updated, first.deleted) == ("UPSERT", 6, 0, 0)
    second = table.upsert([row(5, 2), row(6, 2)])
    assert (second.inserted, second.updated) == (1, 1)
    assert second.instant > first.completed_at > first.instant
    third = table.delete(["k1", "k2", "unknown"])
    assert (third.operation, third.deleted) == ("DELETE", 2)
    assert all(Path(folder_of(table), path).exists() for path in third.files)


def test_a_result_says_what_the_write_asked_of_the_store(table: lakebed.Table) -> None:
    result = table.upsert([row(0, 1)])
    assert result.jobs == 0
    assert result.requests.creates >= len(result.files) + 3, "three files of the timeline at least"
    assert result.requests.bytes_written > sum(Path(folder_of(table), path).stat().st_size for path in result.files)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hoodie.datasource.write.operation", "insert", r"table\.insert"),
        ("hoodie.datasource.write.table.type", "MERGE_ON_READ", "table_type"),
        ("hoodie.clean.async.enabled", "true", "false"),
        ("hoodie.index.type", "GLOBAL_SIMPLE", "auto, simple, bloom, record_index,"),
        ("hoodie.parquet.max.file.size", "0", "from 1 to"),
    ],
)
def test_options_that_would_be_passed_over_are_refused(table: lakebed.Table, key: str, value: str, says: str) -> None:
    with pytest.raises(lakebed.InvalidInputError, match=says):
        lakebed.open_table(folder_of(table), options={key: value}).upsert([row(0, 1)])
    assert not list(table.timeline)


def test_partial_updates_keep_the_other_columns(table: lakebed.Table) -> None:
    table.upsert([row(0, 1, 10.0), row(1, 1, 11.0)])
    table.upsert([{"id": "k0", "city": CITIES[0], "ts": 2}, {"id": "k2", "city": CITIES[2], "ts": 2}], partial=True)
    found = {each["id"]: (each["ts"], each["fare"]) for each in stored(table)}
    assert found == {"k0": (2, 10.0), "k1": (1, 11.0), "k2": (2, None)}


def test_new_columns_and_wider_types(tmp_path: Path) -> None:
    for table_type in ("cow", "mor"):
        narrow = pa.schema([("id", pa.string()), ("n", pa.int32()), ("f", pa.float32())])
        table = new_table(tmp_path, table_type, schema=narrow, partition_by=None, ordering=None)
        table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2], "f": [0.5, 1.5]}, narrow))
        wide = pa.schema([("id", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("new", pa.string())])
        table.upsert(pa.table({"id": ["b", "c"], "n": [2**40, 3], "f": [2.5, 3.5], "new": ["x", None]}, wide))
        found = table.to_arrow(columns=wide.names).sort_by("id")
        assert found.schema == wide
        assert found.to_pylist() == [
            {"id": "a", "n": 1, "f": 0.5, "new": None},
            {"id": "b", "n": 2**40, "f": 2.5, "new": "x"},
            {"id": "c", "n": 3, "f": 3.5, "new": None},
        ]
        with pytest.raises(lakebed.InvalidInputError, match="'n'"):
            table.upsert([{"id": "d", "n": "text"}])


def test_the_later_of_two_writers_on_a_file_group_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path, "cow")
    table.upsert([row(number, 1) for number in range(6)])
    url = folder_of(table)
    other = lakebed.open_table(url)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([row(0, 3)], SCHEMA)

    from lakebed.write.columnar import ColumnarPlane

    original = ColumnarPlane.execute

    def interrupted(self: Any, *arguments: Any) -> Any:
        written = original(self, *arguments)
        ColumnarPlane.execute = original  # type: ignore[method-assign]
        other.upsert([row(0, 2)])
        return written

    ColumnarPlane.execute = interrupted  # type: ignore[method-assign]
    try:
        with pytest.raises(lakebed.WriteConflictError):
            table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, rows()))
    finally:
        ColumnarPlane.execute = original  # type: ignore[method-assign]
    assert not table.timeline.pending()
    model: Rows = {}
    merged(model, [row(number, 1) for number in range(6)] + [row(0, 2)])
    check(table, model)
    table.upsert([row(0, 3)])
    merged(model, [row(0, 3)])
    check(table, model)


BAD_ROWS = {
    "null key": ([{"id": None, "city": "oslo", "ts": 1, "fare": 1.0}], "id"),
    "no key column": ([{"city": "oslo", "ts": 1, "fare": 1.0}], "id"),
    "wrong type": ([{"id": "a", "city": "oslo", "ts": "soon", "fare": 1.0}], "ts"),
    "partition that climbs out": ([{"id": "a", "city": "..", "ts": 1, "fare": 1.0}], "city|path|\\.\\."),
    "not rows": (42, "int"),
    "duplicate column": (pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"]), "id"),
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_refused_before_anything_is_written(table: lakebed.Table, bad: tuple[Any, str]) -> None:
    table.upsert([row(0, 1)])
    before = list(table.timeline)
    with pytest.raises(lakebed.InvalidInputError, match=bad[1]):
        table.upsert(bad[0])
    assert list(table.timeline) == before
    check(table, {(CITIES[0], "k0"): row(0, 1)})


def test_a_table_is_not_created_over_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(lakebed.InvalidInputError, match=r"notes\.txt"):
        lakebed.create_table(tmp_path, schema=SCHEMA, key="id")
    folder = tmp_path / "t"
    lakebed.create_table(folder, schema=SCHEMA, key="id")
    with pytest.raises(lakebed.InvalidInputError, match="already"):
        lakebed.create_table(folder, schema=SCHEMA, key="id")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"key": "nope"}, "nope"),
        ({"ordering": "nope"}, "nope"),
        ({"partition_by": "nope"}, "nope"),
        ({"table_type": "cov"}, "cov"),
        ({"indexes": ["recrod"]}, "recrod"),
        ({"key": []}, "key"),
        ({"ordering": None, "options": {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}}, "order"),
    ],
)
def test_a_table_that_cannot_be_is_not_created(tmp_path: Path, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(lakebed.InvalidInputError, match=says):
        lakebed.create_table(tmp_path / "t", **({"schema": SCHEMA, "key": "id", "ordering": "ts"} | asked))
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()


@pytest.mark.parametrize("real_table", ["hudi015_cow_part_upsert", "hudi102_cow_part_upsert"], indirect=True)
def test_older_table_versions_are_refused_with_the_upgrade_command(real_table: Any) -> None:
    table = lakebed.open_table(real_table.path)
    with pytest.raises(lakebed.UnsupportedTableError, match="upgrade"):
        table.delete(["k001"])


LITTLE = """
import sys
import lakebed, pyarrow as pa
rows = pa.table({"id": ["a", "b"], "city": ["oslo", "lima"], "ts": [1, 1]})
table = lakebed.create_table(sys.argv[1], schema=rows.schema, key="id", partition_by="city", ordering="ts")
table.upsert(rows)
result = table.upsert([{"id": "a", "city": "oslo", "ts": 2}, {"id": "c", "city": "oslo", "ts": 2}])
table.delete(["b"])
print(result.updated, table.to_arrow().num_rows, *{"numba", "llvmlite", "pyspark"} & set(sys.modules))
"""


def test_writing_a_few_rows_does_not_load_compiled_code(tmp_path: Path) -> None:
    """Which takes seconds to compile on a new machine: the first thing that a user tries answers at once."""
    done = subprocess.run(
        [sys.executable, "-c", LITTLE, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "2"]
