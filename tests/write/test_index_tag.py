"""Writes that find keys through the record index: in place, moved between partitions, late, or taken by another."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.table import open_handle
from lakebed.write.columnar import ColumnarPlane
from tables import TRIPS as SCHEMA

KINDS = ("cow", "mor")
STAY = {"hoodie.record.index.update.partition.path": "false"}
_NUMBERS = itertools.count()

Key = tuple[str, str, int]
"""Id, city and time of a row."""


def new_table(folder: Path, **given: Any) -> lakebed.Table:
    asked: dict[str, Any] = {"table_type": "mor", "indexes": ("record",), "ordering": "ts"}
    path = folder / f"t{next(_NUMBERS)}"
    return lakebed.create_table(path, schema=SCHEMA, key="id", partition_by="city", **asked | given)


def rows(*keys: Key) -> pa.Table:
    found = [{"id": id_, "city": city, "ts": ts, "fare": float(ts)} for id_, city, ts in keys]
    return pa.Table.from_pylist(found, SCHEMA)


def stored(table: lakebed.Table) -> list[Key]:
    return sorted((row["id"], row["city"], row["ts"]) for row in table.to_arrow().to_pylist())


def entries(table: lakebed.Table) -> list[tuple[str, str, str]]:
    """Keys, partitions and file ids in the record index."""
    metadata = open_handle(folder_of(table)).state().metadata
    assert isinstance(metadata, MetadataTable)
    found = read_record_index(metadata)
    return sorted(zip(*(found[name].to_pylist() for name in ("key", "partition", "file_id")), strict=True))


def scanned(table: lakebed.Table) -> list[tuple[str, str, str]]:
    """Keys, partitions and file ids of the rows."""
    found = table.to_arrow(columns=["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]).to_pylist()
    triples = (tuple(row.values()) for row in found)
    return sorted((key, partition, name.partition("_")[0]) for key, partition, name in triples)


def folder_of(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_whose_partition_changed_moves_in_one_commit(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind)
    table.upsert(rows(("a", "oslo", 1), ("b", "oslo", 1), ("c", "lima", 1)))
    result = table.upsert(rows(("a", "lima", 2), ("b", "oslo", 2)))
    assert stored(table) == [("a", "lima", 2), ("b", "oslo", 2), ("c", "lima", 1)]
    assert entries(table) == scanned(table)
    assert len(table.timeline.completed()) == 2
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_stays_in_its_partition_if_the_option_says_so(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind, options=STAY)
    table.upsert(rows(("a", "oslo", 1), ("b", "lima", 1)))
    result = table.upsert(rows(("a", "lima", 2)))
    assert [(key, partition) for key, partition, _ in scanned(table)] == [("a", "oslo"), ("b", "lima")]
    assert entries(table) == scanned(table)
    assert (result.inserted, result.updated) == (0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_row_does_not_move(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind)
    table.upsert(rows(("a", "oslo", 5), ("b", "oslo", 5)))
    table.upsert(rows(("a", "lima", 4), ("b", "lima", 5)))
    assert stored(table) == [("a", "oslo", 5), ("b", "lima", 5)]
    assert entries(table) == scanned(table)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_moved_away_may_come_back(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind)
    table.upsert(rows(("a", "oslo", 1), ("z", "oslo", 1)))
    table.upsert(rows(("a", "rome", 9)))
    table.delete(["a"])
    table.upsert(rows(("a", "oslo", 2)))
    assert stored(table) == [("a", "oslo", 2), ("z", "oslo", 1)]
    assert entries(table) == scanned(table)


def test_without_an_ordering_the_last_write_moves_the_row(tmp_path: Path) -> None:
    table = new_table(tmp_path, ordering=None)
    table.upsert(rows(("a", "oslo", 5)))
    table.upsert(rows(("a", "lima", 4)))
    assert stored(table) == [("a", "lima", 4)]


def test_one_batch_has_one_row_per_key_of_the_whole_table(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(("a", "oslo", 2), ("a", "lima", 3), ("a", "rome", 1)))
    assert stored(table) == [("a", "lima", 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_per_partition_knows_a_key_in_each(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind, indexes=("record_partitioned",))
    table.upsert(rows(("a", "oslo", 1), ("a", "lima", 1)))
    table.upsert(rows(("a", "oslo", 2), ("a", "rome", 2)))
    assert stored(table) == [("a", "lima", 1), ("a", "oslo", 2), ("a", "rome", 2)]
    table.delete(["a"])
    assert stored(table) == [] == entries(table)


@pytest.mark.parametrize("kind", KINDS)
def test_deletes_find_their_rows_wherever_they_are(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind)
    table.upsert(rows(("a", "oslo", 1), ("b", "oslo", 1), ("c", "lima", 1)))
    table.delete(["a", "nobody"])
    table.delete(rows(("c", "oslo", 9)))  # The row says another partition than the one the key is in.
    assert stored(table) == [("b", "oslo", 1)]
    assert entries(table) == scanned(table)


def test_no_data_file_is_read_to_find_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(*((f"k{n}", "oslo", 1) for n in range(50))))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a data file was read")

    monkeypatch.setattr("lakebed.read.file_slice.read_base_file", refuse)
    result = table.upsert(rows(*((f"k{n}", "oslo", 2) for n in range(25, 75))))
    assert (result.inserted, result.updated) == (25, 25)


def test_a_partial_update_cannot_move_a_row(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(("a", "oslo", 1)))
    with pytest.raises(lakebed.LakebedError, match="'fare'"):
        table.upsert(rows(("a", "lima", 2)).drop_columns(["fare"]), partial=True)
    assert stored(table) == [("a", "oslo", 1)]


def test_an_index_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    table = new_table(tmp_path, indexes=())
    table = lakebed.open_table(table._handle.storage.url, options={"hoodie.index.type": "RECORD_INDEX"})
    with pytest.raises(lakebed.LakebedError, match="no record index"):
        table.upsert(rows(("a", "oslo", 1)))
    assert not list(table.timeline)


@pytest.mark.parametrize("indexes", [("record",), ("record_partitioned",)])
def test_of_two_writes_that_insert_one_key_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexes: tuple[str, ...]
) -> None:
    table = new_table(tmp_path, indexes=indexes)
    table.upsert(rows(("z", "oslo", 1)))
    execute = ColumnarPlane.execute
    rival = iter([lambda: lakebed.open_table(folder_of(table)).upsert(rows(("a", "rome", 1), ("b", "rome", 1)))])

    def after_a_rival(self: ColumnarPlane, *given: Any) -> Any:
        for write in rival:
            write()
        return execute(self, *given)

    monkeypatch.setattr(ColumnarPlane, "execute", after_a_rival)
    with pytest.raises(lakebed.WriteConflictError, match="'a'"):
        table.upsert(rows(("a", "rome", 7)))
    assert stored(table) == [("a", "rome", 1), ("b", "rome", 1), ("z", "oslo", 1)]
    table.upsert(rows(("a", "rome", 7)))
    assert entries(table) == scanned(table)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_added_blindly_may_repeat_a_key(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, table_type=kind)
    table.insert(rows(("a", "oslo", 1), ("a", "lima", 2), ("b", "oslo", 1), ("a", "lima", 3)))
    assert [id_ for id_, _, _ in stored(table)] == ["a", "a", "a", "b"]
    assert [(key, city) for key, city, _ in entries(table)] == [("a", "lima"), ("b", "oslo")]


def test_a_result_and_its_commit_say_what_finding_keys_took(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(*((f"k{n}", "oslo", 1) for n in range(50))))
    result = table.upsert(rows(*((f"k{n}", "oslo", 2) for n in range(25, 75))))
    assert (result.metrics["keys_probed"], result.metrics["keys_found"]) == (50, 25)
    assert {"plan_ms", "write_ms", "commit_ms", "shards_probed", "cache_hits"} <= result.metrics.keys()
    state = open_handle(folder_of(table)).state()
    said = json.loads(state.documents.commit(state.timeline.commits()[-1]).extra_metadata["lakebed.metrics"])
    assert {**said, "commit_ms": result.metrics["commit_ms"]} == result.metrics


CITIES = st.sampled_from(["oslo", "lima", "rome"])
BATCH = st.lists(st.tuples(st.sampled_from("abcdef"), CITIES, st.integers(0, 9)), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(st.tuples(st.just("upsert"), BATCH), st.tuples(st.just("delete"), st.sets(st.sampled_from("abcdef")))),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)
@given(steps=STEPS)
def test_rows_and_index_are_those_of_a_model(tmp_path: Path, kind: str, steps: list[tuple[str, Any]]) -> None:
    table = new_table(tmp_path, table_type=kind)
    model: dict[str, Key] = {}
    for verb, given_rows in steps:
        if verb == "delete":
            table.delete(sorted(given_rows)) if given_rows else None
            model = {key: row for key, row in model.items() if key not in given_rows}
        else:
            table.upsert(rows(*given_rows))
            for row in given_rows:
                if row[0] not in model or row[2] >= model[row[0]][2]:
                    model[row[0]] = row
        assert stored(table) == sorted(model.values())
        assert entries(table) == scanned(table)
