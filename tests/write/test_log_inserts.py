"""New keys in log files alone: on merge-on-read tables with a record index, which says where they are."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.read.scan import plan_scan, read_arrow
from lakebed.table import open_handle
from lakebed.write.assign import Space, small_files
from lakebed.write.values import FileSizing
from tables import TRIPS as SCHEMA

CITIES = ("oslo", "lima")
INDEXES = (("record",), ("record_partitioned",))
_NUMBERS = itertools.count()


def new_table(folder: Path, **given: Any) -> lakebed.Table:
    asked: dict[str, Any] = {"table_type": "mor", "indexes": ("record",), "ordering": "ts"}
    path = folder / f"t{next(_NUMBERS)}"
    return lakebed.create_table(path, schema=SCHEMA, key="id", partition_by="city", **asked | given)


def row(number: int, ts: int) -> dict[str, Any]:
    return {"id": f"k{number}", "city": CITIES[number % 2], "ts": ts, "fare": float(ts)}


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.Table.from_pylist([row(*pair) for pair in pairs], SCHEMA)


def stored(table: lakebed.Table) -> dict[str, int]:
    found = table.to_arrow(columns=["id", "ts"]).to_pylist()
    assert len({each["id"] for each in found}) == len(found)
    return {each["id"]: each["ts"] for each in found}


def slices_of(table: lakebed.Table, city: str) -> list[FileSlice]:
    return [each for each in table.files() if each.group.partition == city]


def check_index(table: lakebed.Table) -> None:
    """Every row has its entry, and every entry its row."""
    state = open_handle(str(table).partition("'")[2].rpartition("'")[0]).state()
    assert isinstance(state.metadata, MetadataTable)
    scan = read_arrow(plan_scan(state))
    ids = [name.partition("_")[0] for name in scan["_hoodie_file_name"].to_pylist()]
    columns = (scan["_hoodie_record_key"].to_pylist(), scan["_hoodie_partition_path"].to_pylist(), ids)
    entries = read_record_index(state.metadata)
    assert sorted(zip(*(entries[name].to_pylist() for name in ("key", "partition", "file_id")), strict=True)) == sorted(
        zip(*columns, strict=True)
    )


@pytest.mark.parametrize("indexes", INDEXES)
def test_new_keys_go_to_the_log_of_a_small_file_group(tmp_path: Path, indexes: tuple[str, ...]) -> None:
    table = new_table(tmp_path, indexes=indexes)
    table.upsert(rows((0, 1), (2, 1), (4, 1)))
    (before,) = slices_of(table, "oslo")
    assert not before.logs

    table.upsert(rows((2, 2), (6, 2)))
    table.upsert(rows((8, 3)))

    (after,) = slices_of(table, "oslo")
    assert (after.base, len(after.logs)) == (before.base, 2)
    assert stored(table) == {"k0": 1, "k2": 2, "k4": 1, "k6": 2, "k8": 3}
    assert table.lookup(["k6", "k8", "k9"])["id"].to_pylist() == ["k6", "k8"]
    check_index(table)


@pytest.mark.parametrize("indexes", INDEXES)
def test_keys_that_only_a_log_has_are_updated_deleted_and_inserted_again(
    tmp_path: Path, indexes: tuple[str, ...]
) -> None:
    table = new_table(tmp_path, indexes=indexes)
    table.upsert(rows((0, 1)))
    table.upsert(rows((2, 1), (4, 1)))

    result = table.upsert(rows((2, 5)))
    assert (result.updated, result.inserted) == (1, 0)
    assert stored(table) == {"k0": 1, "k2": 5, "k4": 1}

    result = table.delete(["k2", "k4"])
    assert result.deleted == 2
    assert stored(table) == {"k0": 1}
    check_index(table)

    result = table.upsert(rows((2, 3)))
    assert (result.updated, result.inserted) == (0, 1)
    assert stored(table) == {"k0": 1, "k2": 3}
    assert len(slices_of(table, "oslo")) == 2, "not over the delete"
    check_index(table)


def test_what_the_index_does_not_know_is_new_whatever_was_deleted_when(tmp_path: Path) -> None:
    """As on a copy-on-write table, and in Apache Hudi: new keys are never added over a delete."""
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (2, 1)))
    table.delete(rows((2, 9)).select(["id", "city"]))
    marked = rows((0, 8)).append_column("_hoodie_is_deleted", pa.array([True]))
    table.upsert(marked)
    assert stored(table) == {}

    result = table.upsert(rows((0, 3), (2, 3), (4, 3)))

    assert (result.inserted, result.updated, result.deleted) == (3, 0, 0)
    assert stored(table) == {"k0": 3, "k2": 3, "k4": 3}
    first, other = sorted(slices_of(table, "oslo"), key=lambda each: len(each.logs), reverse=True)
    assert (len(first.logs), len(other.logs)) == (3, 0), "what was never deleted goes to the log"
    check_index(table)
    table.delete(["k0"])
    assert table.upsert(rows((0, 1))).inserted == 1
    assert len(slices_of(table, "oslo")) == 3, "both others have deleted it"
    assert stored(table) == {"k0": 1, "k2": 3, "k4": 3}
    check_index(table)


@pytest.mark.parametrize(("log_format", "rooms"), [("parquet", [Space(0, 50)]), ("avro", [Space(0, 63), Space(1, 25)])])
def test_logs_count_when_file_groups_are_filled(log_format: Any, rooms: list[Space]) -> None:
    sizing = FileSizing(target_bytes=1000, small_bytes=900, log_format=log_format)
    slices = [a_slice("a", 300, 100, 100), a_slice("b", None, 1000, 1140), a_slice("busy", 10), a_slice("big", 900)]
    busy = frozenset({slices[2].group})

    assert small_files(slices, sizing, 10.0, excluded=busy, with_logs=True) == {"oslo": rooms}
    assert small_files(slices, sizing, 10.0, excluded=busy) == {}


def a_slice(file_id: str, base_bytes: int | None, *log_bytes: int) -> FileSlice:
    instant = InstantTime("20261115235530634")
    base = None if base_bytes is None else BaseFile("b", file_id, "0", instant, ".parquet", base_bytes)
    logs = tuple(LogFile(f"l{at}", file_id, instant, 1, "0", size=size) for at, size in enumerate(log_bytes))
    return FileSlice(FileGroupId("oslo", file_id), instant, base, logs)


def test_without_a_record_index_new_keys_are_written_to_base_files(tmp_path: Path) -> None:
    table = new_table(tmp_path, indexes=())
    table.upsert(rows((0, 1)))
    table.upsert(rows((2, 1)))
    (only,) = slices_of(table, "oslo")
    assert not only.logs
    assert stored(table) == {"k0": 1, "k2": 1}


def test_rows_that_are_added_blindly_stay_beside_those_with_their_key(tmp_path: Path) -> None:
    table = new_table(tmp_path, indexes=("record_partitioned",))
    table.insert(rows((0, 1)))
    table.insert(rows((0, 2)))
    assert sorted(table.to_arrow(columns=["ts"])["ts"].to_pylist()) == [1, 2]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 9), min_size=1, max_size=4)),
        st.tuples(st.just("rollback"), st.none()),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("indexes", INDEXES)
@settings(
    max_examples=15,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@example(steps=[("upsert", [(0, 1)]), ("upsert", [(2, 1)]), ("delete", [2]), ("upsert", [(2, 0)]), ("rollback", None)])
@given(steps=STEPS)
def test_any_order_of_operations_leaves_what_the_model_has(
    tmp_path: Path, indexes: tuple[str, ...], steps: list[tuple[str, Any]]
) -> None:
    table = new_table(tmp_path, indexes=indexes)
    history: list[dict[str, int]] = [{}]
    for verb, what in steps:
        if verb == "rollback":
            if len(history) > 1:
                table.rollback(table.timeline.commits()[-1].requested_at)
            history = history[:-1] or [{}]
        else:
            history.append(dict(history[-1]))
            play(table, verb, what, history[-1])
        assert stored(table) == history[-1]
        check_index(table)


def play(table: lakebed.Table, verb: str, what: list[Any], model: dict[str, int]) -> None:
    if verb == "upsert":
        table.upsert(rows(*what))
        for number, ts in what:
            model[f"k{number}"] = max(ts, model.get(f"k{number}", ts))
    else:
        table.delete([f"k{number}" for number in what])
        for number in what:
            model.pop(f"k{number}", None)
