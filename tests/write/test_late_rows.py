"""Ordering values in the record index: late rows are told without reading, and arrival order does not matter."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.index.record.definition import are_current
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.index import EntryOrdering
from lakebed.table import open_handle
from tables import TRIPS as SCHEMA

KINDS = ("cow", "mor")
OPTION = "lakebed.record.index.ordering"
UTC = timezone.utc
_NUMBERS = itertools.count()

Key = tuple[str, str, int | None]
"""Id, city and time of a row."""


def new_table(folder: Path, mode: str = "on", **given: Any) -> lakebed.Table:
    asked: dict[str, Any] = {"table_type": "mor", "indexes": ("record",), "ordering": "ts", "schema": SCHEMA}
    path = folder / f"t{next(_NUMBERS)}"
    return lakebed.create_table(path, key="id", partition_by="city", options={OPTION: mode}, **asked | given)


def rows(*keys: Key) -> pa.Table:
    found = [{"id": id_, "city": city, "ts": ts, "fare": float(ts or 0)} for id_, city, ts in keys]
    return pa.Table.from_pylist(found, SCHEMA)


def stored(table: lakebed.Table) -> list[Key]:
    return sorted((row["id"], row["city"], row["ts"]) for row in table.to_arrow().to_pylist())


def folder_of(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]


def metadata_of(table: lakebed.Table) -> MetadataTable:
    metadata = open_handle(folder_of(table)).state().metadata
    assert isinstance(metadata, MetadataTable)
    return metadata


def bounds(table: lakebed.Table) -> dict[str, int | None]:
    """The ordering value in each entry."""
    found = read_record_index(metadata_of(table))
    return dict(zip(found["key"].to_pylist(), found["ordering_value"].to_pylist(), strict=True))


def is_current(table: lakebed.Table) -> bool:
    return are_current(metadata_of(table), EntryOrdering("ts", is_current=True))


def check_index(table: lakebed.Table) -> None:
    """Entries are where the rows are, and no value is above that of its row."""
    found = table.indexes.validate("record_index")
    assert found.is_sound, found.examples


@contextmanager
def no_data_is_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a data file was read")

    with monkeypatch.context() as patch:
        for place in ("lakebed.read.file_slice.read_base_file", "lakebed.read.file_slice.load_blocks"):
            patch.setattr(place, refuse)
        yield


@pytest.mark.parametrize("indexes", [("record",), ("record_partitioned",)])
@pytest.mark.parametrize("kind", KINDS)
def test_late_rows_of_a_partition_are_left_out_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, indexes: tuple[str, ...]
) -> None:
    table = new_table(tmp_path, table_type=kind, indexes=indexes)
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)))
    with no_data_is_read(monkeypatch):
        result = table.upsert(rows(("a", "oslo", 4), ("b", "oslo", -9)))
    assert (result.metrics["rows_late"], result.metrics["records_read"], result.files) == (2, 0, ())
    assert stored(table) == [("a", "oslo", 5), ("b", "oslo", 5)]
    check_index(table)


@pytest.mark.parametrize("kind", KINDS)
def test_late_rows_of_other_partitions_are_left_out_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = new_table(tmp_path, table_type=kind)
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)))
    with no_data_is_read(monkeypatch):
        result = table.upsert(rows(("a", "lima", 4), ("new", "lima", 1)))
    assert (result.metrics["rows_late"], result.metrics["records_read"]) == (1, 0)
    assert stored(table) == [("a", "oslo", 5), ("b", "oslo", 5), ("new", "lima", 1)]
    check_index(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_above_the_bound_is_compared_with_what_is_stored(tmp_path: Path, kind: str) -> None:
    """An update in place logs no entry, so that 7 is above what the entry says, and below what is stored."""
    table = new_table(tmp_path, table_type=kind)
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)))
    table.upsert(rows(("a", "oslo", 9), ("b", "oslo", 9)))
    assert bounds(table) == {"a": 5, "b": 5}
    result = table.upsert(rows(("a", "lima", 7), ("b", "lima", 9)))
    assert (result.metrics["rows_late"], result.metrics["records_read"]) == (1, 2)
    assert stored(table) == [("a", "oslo", 9), ("b", "lima", 9)]
    assert bounds(table) == {"a": 5, "b": 9}
    check_index(table)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_that_are_kept_current_say_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    table = new_table(tmp_path, "current", table_type=kind)
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5), ("c", "oslo", 5)))
    table.upsert(rows(("a", "oslo", 9), ("b", "oslo", 9), ("c", "oslo", 1)))
    assert bounds(table) == {"a": 9, "b": 9, "c": 5}
    monkeypatch.setattr("lakebed.write.tag.index._is_late", None)
    result = table.upsert(rows(("a", "lima", 7), ("b", "lima", 9), ("c", "rome", 6)))
    assert (result.metrics["rows_late"], result.metrics["records_read"]) == (1, 0)
    assert stored(table) == [("a", "oslo", 9), ("b", "lima", 9), ("c", "rome", 6)]
    assert bounds(table) == {"a": 9, "b": 9, "c": 6}
    check_index(table)


@pytest.mark.parametrize("kind", KINDS)
def test_of_equal_values_the_later_commit_wins(tmp_path: Path, kind: str) -> None:
    for mode in ("on", "current"):
        table = new_table(tmp_path, mode, table_type=kind)
        table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)))
        table.upsert(rows(("a", "lima", 5)))
        table.upsert(rows(("b", "oslo", 5)).set_column(3, "fare", pa.array([7.0])))
        assert stored(table) == [("a", "lima", 5), ("b", "oslo", 5)]
        assert table.lookup(["b"])["fare"].to_pylist() == [7.0]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_value_are_compared_as_ever(tmp_path: Path, kind: str) -> None:
    """Null is below all values: such a row loses against any other, and is replaced by any."""
    for mode in ("on", "current"):
        table = new_table(tmp_path, mode, table_type=kind)
        table.upsert(rows(("a", "oslo", None), ("b", "oslo", 5)))
        assert bounds(table) == {"a": None, "b": 5}
        table.upsert(rows(("a", "lima", -3), ("b", "lima", None)))
        assert stored(table) == [("a", "lima", -3), ("b", "oslo", 5)]
        check_index(table)


def test_deletes_that_are_late_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flagged = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = new_table(tmp_path, schema=flagged)
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)).append_column("_hoodie_is_deleted", pa.array([False] * 2)))
    late = rows(("a", "oslo", 4), ("b", "lima", 4)).append_column("_hoodie_is_deleted", pa.array([True] * 2))
    with no_data_is_read(monkeypatch):
        assert table.upsert(late).metrics["rows_late"] == 2
    assert stored(table) == [("a", "oslo", 5), ("b", "oslo", 5)]
    table.delete(["a"])  # One without a value always applies.
    assert stored(table) == [("b", "oslo", 5)]
    check_index(table)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [1, 2]),
        (pa.date32(), [date(1969, 1, 1), date(2026, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, 2, 3, 4, UTC)]),
    ],
)
def test_integers_dates_and_times_have_numbers(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    schema = SCHEMA.set(2, pa.field("ts", kind))
    table = new_table(tmp_path, schema=schema)
    early, late = (pa.Table.from_pylist([{"id": "a", "city": "oslo", "ts": v, "fare": 1.0}], schema) for v in values)
    table.upsert(late)
    assert table.upsert(early).metrics["rows_late"] == 1
    assert table.to_arrow(columns=["ts"])["ts"].to_pylist() == [values[1]]
    assert None not in bounds(table).values()


@pytest.mark.parametrize("asked", ["on", "current"])
def test_tables_whose_values_have_no_number_are_refused(tmp_path: Path, asked: str) -> None:
    for schema, ordering in (
        (SCHEMA, None),
        (SCHEMA, "fare"),
        (SCHEMA, ("ts", "fare")),
        (SCHEMA, "id"),
    ):
        with pytest.raises(lakebed.LakebedError, match="cannot carry"):
            new_table(tmp_path, asked, schema=schema, ordering=ordering)
    with pytest.raises(lakebed.LakebedError, match="off, on or current"):
        new_table(tmp_path, "sometimes")
    table = new_table(tmp_path, "off", ordering="fare")
    table.upsert(rows(("a", "oslo", 1)))
    with pytest.raises(lakebed.LakebedError, match="cannot carry"):
        lakebed.open_table(folder_of(table), options={OPTION: asked}).indexes.create("record_index", rebuild=True)
    assert table.indexes.validate("record_index").is_sound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", ["record", "record_partitioned"])
def test_an_index_on_rows_that_are_there_has_their_values(tmp_path: Path, kind: str, index: str) -> None:
    table = new_table(tmp_path, "off", table_type=kind, indexes=())
    table.upsert(rows(("a", "oslo", 5), ("b", "lima", 5)))
    table.upsert(rows(("a", "oslo", 9), ("c", "lima", None)))
    table = lakebed.open_table(folder_of(table), options={OPTION: "current"})
    table.indexes.create("record_index", kind=index)
    assert bounds(table) == {"a": 9, "b": 5, "c": None}
    assert is_current(table)
    table.indexes.reshard("record_index", shards=3)
    assert bounds(table) == {"a": 9, "b": 5, "c": None}
    table.indexes.create("bloom", kind="bloom")
    assert is_current(table)
    assert table.upsert(rows(("a", "oslo", 8))).metrics["rows_late"] == 1
    check_index(table)


def test_a_writer_that_knows_of_no_values_ends_what_entries_say(tmp_path: Path) -> None:
    """Entries written without values lie among others; updates that are not found by the index end the chain."""
    table = new_table(tmp_path, "current")
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)))
    assert is_current(table)
    simple = lakebed.open_table(folder_of(table), options={"hoodie.index.type": "SIMPLE"})
    simple.upsert(rows(("a", "oslo", 9), ("c", "oslo", 1)))
    assert not is_current(table)
    result = table.upsert(rows(("a", "lima", 7)))
    assert (result.metrics["rows_late"], result.metrics["records_read"]) == (1, 0)  # Its own entry is a lower bound.
    assert not is_current(table)
    assert table.upsert(rows(("b", "lima", 7))).metrics["records_read"] == 1
    lakebed.open_table(folder_of(table), options={OPTION: "current"}).indexes.create("record_index", rebuild=True)
    assert is_current(table)
    assert stored(table) == [("a", "oslo", 9), ("b", "lima", 7), ("c", "oslo", 1)]
    check_index(table)


def test_values_that_mean_another_column_are_not_used(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(("a", "oslo", 5)))
    path = Path(folder_of(table)) / ".hoodie/.index_defs/index.json"
    definitions = json.loads(path.read_text())
    definitions["indexDefinitions"]["record_index"]["indexOptions"]["lakebed.orderingField"] = "fare"
    path.write_text(json.dumps(definitions))
    table = lakebed.open_table(folder_of(table))
    result = table.upsert(rows(("a", "lima", 4)))
    assert (result.metrics["rows_late"], result.metrics["records_read"]) == (1, 1)
    table.upsert(rows(("b", "lima", 4)))
    assert bounds(table) == {"a": 5, "b": None}


@pytest.mark.parametrize("kind", KINDS)
def test_values_outlive_compactions_clustering_and_rollbacks(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind)
    for turn in range(12):  # After ten of them the metadata table is compacted.
        table.upsert(rows(("a", "oslo", turn), (f"k{turn}", "oslo", turn)))
    assert bounds(table) == {"a": 0, **{f"k{turn}": turn for turn in range(12)}}
    last = table.upsert(rows(("z", "oslo", 1)))
    table.rollback(last.instant)
    table.services.cluster(order_by=["fare"])
    assert bounds(table) == {"a": 11, **{f"k{turn}": turn for turn in range(12)}}
    check_index(table)


def test_many_keys_are_told_from_key_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    many = [f"k{n}" for n in range(3000)]
    table.upsert(rows(*((key, "oslo", n) for n, key in enumerate(many))))
    for _ in range(2):  # Built, and taken from the cache.
        with no_data_is_read(monkeypatch):
            result = table.upsert(rows(*((key, "lima", n - 1) for n, key in enumerate(many))))
        assert result.metrics["rows_late"] == 3000
    assert result.metrics["cache_hits"] > 0
    assert table.upsert(rows(*((key, "lima", n) for n, key in enumerate(many[:50])))).inserted == 50


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["oslo", "lima", "rome"]), st.integers(0, 99)),
    min_size=2,
    max_size=6,
    unique_by=lambda event: (event[0], event[2]),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["on", "current"])
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)
@given(events=EVENTS, data=st.data())
def test_the_order_of_arrival_does_not_matter(
    tmp_path: Path, kind: str, mode: str, events: list[tuple[str, str, int]], data: st.DataObject
) -> None:
    """Each event in a commit of its own, in any order, in place or moving: the newest of each key stays."""
    newest = {event[0]: event for event in sorted(events, key=lambda event: event[2])}
    table = new_table(tmp_path, mode, table_type=kind)
    for event in data.draw(st.permutations(events)):
        table.upsert(rows(event))
        check_index(table)
    assert stored(table) == sorted(newest.values())
    if mode == "current":
        assert is_current(table)
        assert bounds(table) == {key: event[2] for key, event in newest.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_entries_with_and_without_values_lie_together(tmp_path: Path, kind: str) -> None:
    """Half of the entries were written without values, as another engine does, then compacted with the others."""
    table = new_table(tmp_path, table_type=kind)
    path = Path(folder_of(table)) / ".hoodie/.index_defs/index.json"
    with_values = path.read_text()
    definitions = json.loads(with_values)
    for option in ("lakebed.orderingField", "lakebed.orderingIsCurrent"):
        del definitions["indexDefinitions"]["record_index"]["indexOptions"][option]
    expected: dict[str, int | None] = {}
    for turn in range(13):
        path.write_text(json.dumps(definitions) if turn % 2 else with_values)
        lakebed.open_table(folder_of(table)).upsert(rows((f"k{turn}", "oslo", turn + 5)))
        expected[f"k{turn}"] = None if turn % 2 else turn + 5
    path.write_text(with_values)
    table = lakebed.open_table(folder_of(table))
    assert bounds(table) == expected
    result = table.upsert(rows(*((key, "lima", 4) for key in expected)))
    assert (result.metrics["rows_late"], result.metrics["records_read"]) == (13, 6)
    assert {city for _, city, _ in stored(table)} == {"oslo"}
    check_index(table)
