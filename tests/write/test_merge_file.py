from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.format.timeline.metadata import decode_commit
from lakebed.index.facts import FileFacts
from lakebed.model.words import META_COLUMNS
from lakebed.read.file_slice import read_slice
from lakebed.read.scan import plan_scan
from lakebed.table import open_handle
from lakebed.transaction.markers import load_markers
from lakebed.write.files.base import create_base_file
from lakebed.write.files.merge import merge_base_file
from lakebed.write.values import IS_DELETE, IS_INSERT, POSITION, WriteContext
from write_tasks import FIRST, SECOND, a_context, a_task, later, prepared, read_file

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("region", pa.string()), ("note", pa.string())])
COMMIT_TIME = {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
Row = dict[str, Any]


def a_row(key: str, ts: int | None = 0, note: str | None = "old") -> Row:
    return {"id": key, "ts": ts, "region": "eu", "note": note}


def a_file(rows: Sequence[Row], schema: pa.Schema = SCHEMA, **about: Any) -> tuple[WriteContext, FileFacts]:
    """A base file with some rows, and the context of the write that is to follow."""
    context = a_context(schema, **about)
    (written,) = create_base_file(a_task(context, prepared(pa.Table.from_pylist(list(rows), schema))))
    return later(context), written


def incoming(rows: Sequence[Row], deletes: Sequence[Row] = (), schema: pa.Schema = SCHEMA) -> pa.Table:
    table = prepared(pa.Table.from_pylist([*rows, *deletes], schema))
    flags = pa.array([False] * len(rows) + [True] * len(deletes))
    return table.append_column(IS_DELETE, flags) if deletes else table


def bare_deletes(keys: Sequence[str]) -> pa.Table:
    rows = incoming([], [a_row(key) for key in keys])
    return rows.select(["_hoodie_record_key", "_hoodie_partition_path", IS_DELETE])


def merged(context: WriteContext, before: FileFacts, rows: pa.Table) -> tuple[FileFacts, list[Row]]:
    (written,) = merge_base_file(a_task(context, rows, onto=before))
    return written, read_file(context, written.stat.path).to_pylist()


def data_of(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in META_COLUMNS} for row in rows]


def test_updates_take_their_places_and_inserts_follow():
    context, before = a_file([a_row(key) for key in "abc"], stats=["note"])
    written, rows = merged(context, before, incoming([a_row("d", 1, "new"), a_row("b", 1, "new")]))
    assert data_of(rows) == [a_row("a"), a_row("b", 1, "new"), a_row("c"), a_row("d", 1, "new")]
    stat = written.stat
    assert (stat.num_writes, stat.num_updates, stat.num_inserts, stat.num_deletes) == (4, 1, 1, 0)
    assert (stat.prev_commit, stat.prev_base_file) == (FIRST, before.stat.path.removeprefix("eu/"))
    assert (stat.file_id, stat.partition) == (before.stat.file_id, "eu")
    assert stat.path != before.stat.path
    assert stat.file_size == stat.total_write_bytes == len(context.storage.get(stat.path))
    assert (written.inserted_keys.to_pylist(), written.deleted_keys.to_pylist()) == (["d"], [])
    assert [(stats.min_value, stats.max_value) for stats in written.column_stats] == [("new", "old")]
    assert stat.path in load_markers(context.storage, SECOND)


def test_copied_rows_keep_who_wrote_them_but_not_the_file_name():
    context, before = a_file([a_row(key) for key in "ab"])
    written, rows = merged(context, before, incoming([a_row("b", 1), a_row("c", 1)]))
    assert [row["_hoodie_commit_time"] for row in rows] == [FIRST, SECOND, SECOND]
    assert rows[0]["_hoodie_commit_seqno"] == f"{FIRST}_3_0"
    assert {row["_hoodie_commit_seqno"] for row in rows[1:]} == {f"{SECOND}_3_0", f"{SECOND}_3_1"}
    assert {row["_hoodie_file_name"] for row in rows} == {written.stat.path.removeprefix("eu/")}
    assert [row["_hoodie_record_key"] for row in rows] == ["a", "b", "c"]
    assert {row["_hoodie_partition_path"] for row in rows} == {"eu"}


def test_the_footer_knows_all_keys():
    context, before = a_file([a_row(key) for key in "mno"])
    written, _ = merged(context, before, incoming([a_row("x")], [a_row("m", 5)]))
    footer = decode_parquet_footer(context.storage.get(written.stat.path), path="")
    assert (footer.rows, footer.key_min, footer.key_max) == (3, "n", "x")
    assert all(footer.bloom.might_contain(key) for key in "nox")
    assert not footer.bloom.might_contain("m")


@pytest.mark.parametrize(("new", "range_"), [("b", ("b", "o")), ("x", ("m", "x")), ("n", ("m", "o"))])
def test_new_keys_widen_the_range_in_the_footer(new: str, range_: tuple[str, str]):
    context, before = a_file([a_row(key) for key in "mno"])
    written, _ = merged(context, before, incoming([a_row(new, 1)]))
    footer = decode_parquet_footer(context.storage.get(written.stat.path), path="")
    assert (footer.key_min, footer.key_max) == range_
    assert all(footer.bloom.might_contain(key) for key in ("m", "n", "o", new))


def test_text_that_repeats_itself_stays_a_dictionary():
    """Values that no row has any more leave the statistics, nulls stay nulls."""
    notes = ["aaa", None, "old", "older"]
    context, before = a_file([a_row(f"k{at:03}", 0, notes[at % 4]) for at in range(400)], stats=["note"])
    assert decode_parquet_footer(context.storage.get(before.stat.path), path="").repetitive >= {"note", "region"}
    changes = [a_row(f"k{at:03}", 1, None if at == 4 else "new") for at in range(0, 404, 4)]
    written, rows = merged(context, before, incoming(changes))
    expected = {**{f"k{at:03}": notes[at % 4] for at in range(400)}, **{row["id"]: row["note"] for row in changes}}
    assert {row["id"]: row["note"] for row in rows} == expected
    assert [(s.min_value, s.max_value, s.null_count) for s in written.column_stats] == [("new", "older", 101)]
    again, rows = merged(context, written, incoming([a_row("k000", 2, "newest")]))
    assert {row["id"]: row["note"] for row in rows} == {**expected, "k000": "newest"}
    assert decode_parquet_footer(context.storage.get(again.stat.path), path="").repetitive >= {"note", "region"}


def test_text_of_rows_that_lost_is_not_in_the_file():
    context, before = a_file([a_row(f"k{at:03}", 5, "old") for at in range(100)], stats=["note"])
    written, _ = merged(context, before, incoming([a_row("k001", 1, "a loser"), a_row("z", 1, None)]))
    assert [(s.min_value, s.max_value, s.null_count) for s in written.column_stats] == [("old", "old", 1)]
    assert b"loser" not in context.storage.get(written.stat.path)


def test_places_that_tagging_found_are_taken():
    context, before = a_file([a_row(key) for key in "abc"])
    rows = incoming([a_row("c", 1, "new"), a_row("d", 1, "new")])
    known = rows.append_column(POSITION, pa.array([2, -1])).append_column(IS_INSERT, pa.array([False, True]))
    unknown = rows.append_column(POSITION, pa.array([-1, -1])).append_column(IS_INSERT, pa.array([False, True]))
    for tagged in (known, unknown):
        written, found = merged(context, before, tagged)
        assert data_of(found) == [a_row("a"), a_row("b"), a_row("c", 1, "new"), a_row("d", 1, "new")]
        assert (written.stat.num_updates, written.inserted_keys.to_pylist()) == (1, ["d"])


def test_if_every_row_is_deleted_the_file_has_none():
    context, before = a_file([a_row(key) for key in "ab"], stats=["id"])
    written, rows = merged(context, before, bare_deletes(["a", "b"]))
    assert rows == []
    assert (written.stat.num_writes, written.stat.num_deletes) == (0, 2)
    assert [(s.column, s.min_value, s.max_value, s.value_count) for s in written.column_stats] == [
        ("id", None, None, 0)
    ]
    assert written.deleted_keys.to_pylist() == ["a", "b"]
    data = context.storage.get(written.stat.path)
    assert pq.read_metadata(pa.BufferReader(data)).num_row_groups == 0
    footer = decode_parquet_footer(data, path="")
    assert (footer.key_min, footer.bloom.might_contain("a")) == (None, False)
    again, rows = merged(context, written, incoming([a_row("c")]))
    assert (data_of(rows), again.stat.num_inserts) == ([a_row("c")], 1)


def test_rows_that_are_added_blindly_repeat_keys():
    context, before = a_file([a_row(key) for key in "ab"])
    task = replace(a_task(context, incoming([a_row("b", -1), a_row("b", -2)]), onto=before), is_blind=True)
    (written,) = merge_base_file(task)
    rows = data_of(read_file(context, written.stat.path).to_pylist())
    assert rows == [a_row("a"), a_row("b"), a_row("b", -1), a_row("b", -2)]
    assert (written.stat.num_inserts, written.stat.num_updates) == (2, 0)
    changed, rows = merged(context, written, incoming([a_row("b", 7, "new")]))
    assert data_of(rows) == [a_row("a"), a_row("b", 7, "new"), a_row("b", -1), a_row("b", -2)]
    assert changed.stat.num_updates == 1


# Which row wins


@pytest.mark.parametrize(
    ("stored", "ours", "wins"),
    [(5, 6, True), (5, 5, True), (5, 4, False), (None, 4, True), (5, None, False), (None, None, True)],
)
def test_by_event_time_a_row_loses_to_a_greater_ordering_value(stored, ours, wins):
    context, before = a_file([a_row("a", stored)])
    written, rows = merged(context, before, incoming([a_row("a", ours, "new")]))
    assert rows[0]["note"] == ("new" if wins else "old")
    assert rows[0]["_hoodie_commit_time"] == (SECOND if wins else FIRST)
    assert written.stat.num_updates == wins


@pytest.mark.parametrize(
    ("stored", "ours", "wins"), [(5, 6, True), (5, 5, True), (5, 4, False), (5, None, True), (None, 4, True)]
)
def test_a_delete_with_an_ordering_value_goes_by_it(stored, ours, wins):
    context, before = a_file([a_row("a", stored)])
    written, rows = merged(context, before, incoming([], [a_row("a", ours)]))
    assert (len(rows), written.stat.num_deletes, len(written.deleted_keys)) == (not wins, wins, wins)


def test_a_delete_without_ordering_columns_always_wins():
    context, before = a_file([a_row("a", 99), a_row("b", 99)])
    written, rows = merged(context, before, bare_deletes(["b", "other"]))
    assert (data_of(rows), written.deleted_keys.to_pylist()) == ([a_row("a", 99)], ["b"])
    assert (written.stat.num_deletes, written.stat.num_inserts) == (1, 0)


@pytest.mark.parametrize(
    ("kind", "stored", "ours", "wins"),
    [
        (pa.float64(), math.nan, 9.0, False),
        (pa.float64(), 9.0, math.nan, True),
        (pa.float64(), math.nan, math.nan, True),
        (pa.float64(), None, math.nan, True),
        (pa.float64(), math.nan, None, False),
        (pa.string(), "b", "a", False),
        (pa.string(), "b", "ba", True),
        (pa.bool_(), True, False, False),
    ],
)
def test_ordering_fields_of_other_types(kind, stored, ours, wins):
    schema = SCHEMA.set(1, pa.field("ts", kind))
    context, before = a_file([a_row("a", stored)], schema)
    _, rows = merged(context, before, incoming([a_row("a", ours, "new")], schema=schema))
    assert rows[0]["note"] == ("new" if wins else "old")


@pytest.mark.parametrize(
    ("ours", "wins"), [((2, "a"), True), ((1, "z"), True), ((1, "m"), True), ((1, "a"), False), ((0, "z"), False)]
)
def test_several_ordering_fields_compare_one_after_the_other(ours, wins):
    context, before = a_file([a_row("a", 1, "m")], properties={"hoodie.table.ordering.fields": "ts,note"})
    written, _ = merged(context, before, incoming([a_row("a", *ours)]))
    assert written.stat.num_updates == wins


def test_rows_without_the_ordering_field_are_refused():
    context, before = a_file([a_row("a")])
    with pytest.raises(InvalidInputError, match="ts"):
        merged(context, before, incoming([a_row("a")]).drop_columns(["ts"]))


def test_custom_merging_is_refused():
    context, before = a_file([a_row("a")], properties={"hoodie.record.merge.mode": "CUSTOM"})
    with pytest.raises(UnsupportedTableError):
        merged(context, before, incoming([a_row("a")]))


# Schemas that differ


def test_a_partial_update_leaves_the_other_columns_alone():
    context, before = a_file([a_row(key, note=f"note {key}") for key in "abc"])
    some = incoming([a_row("b", 7), a_row("d", 8)]).drop_columns(["note"])
    _, rows = merged(context, before, some)
    expected = [a_row("a", note="note a"), a_row("b", 7, "note b"), a_row("c", note="note c"), a_row("d", 8, None)]
    assert data_of(rows) == expected
    assert [row["_hoodie_commit_time"] for row in rows] == [FIRST, SECOND, FIRST, SECOND]


def test_new_columns_and_wider_types():
    narrow = pa.schema([("id", pa.string()), ("ts", pa.int32()), ("region", pa.string())])
    context, before = a_file([{"id": "a", "ts": 1, "region": "eu"}, {"id": "b", "ts": 5, "region": "eu"}], narrow)
    context = replace(context, schema=SCHEMA)
    _, rows = merged(context, before, incoming([a_row("a", 2**40, "new"), a_row("b", 4, "late")]))
    assert data_of(rows) == [a_row("a", 2**40, "new"), a_row("b", 5, None)]


def test_stored_partition_values_are_copied_as_they_are():
    odd = {**a_row("a"), "region": "somewhere else"}
    context, before = a_file([odd, a_row("b")])
    _, rows = merged(context, before, incoming([a_row("b", 1)]))
    assert data_of(rows) == [odd, a_row("b", 1)]


def test_nested_columns_are_merged_whole():
    pair = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    schema = pa.schema([*SCHEMA, ("pair", pair), ("tags", pa.map_(pa.string(), pa.int64()))])
    old = {**a_row("a"), "pair": {"x": 1, "y": ["p", None]}, "tags": [("k", 1)]}
    new = {**a_row("b", 1), "pair": {"x": None, "y": []}, "tags": [("k", 2), ("l", None)]}
    context, before = a_file([old, {**a_row("b"), "pair": None, "tags": None}], schema)
    _, rows = merged(context, before, incoming([new], schema=schema))
    assert data_of(rows) == [old, new]


# Against a model


NOTES = st.one_of(st.none(), st.sampled_from(["x", "y", "z"]))
TIMES = st.one_of(st.none(), st.integers(0, 3))
KEYS = st.sampled_from("abcdefgh")
ROWS = st.lists(st.builds(a_row, KEYS, TIMES, NOTES), unique_by=lambda row: row["id"], max_size=8)
CHANGES = st.lists(
    st.tuples(st.builds(a_row, KEYS, TIMES, NOTES), st.booleans()), unique_by=lambda change: change[0]["id"], max_size=8
)


def model(stored: Sequence[Row], changes: Sequence[tuple[Row, bool]], by_event_time: bool) -> tuple[list[Row], Any]:
    """The rows of the new file, and the keys that were updated, inserted and deleted, spelled out row by row."""
    rows = {row["id"]: row for row in stored}
    updated, inserted, deleted = [], [], []
    for row, is_delete in changes:
        before = rows.get(row["id"])
        if before is None:
            if not is_delete:
                inserted.append(row["id"])
                rows[row["id"]] = row
        elif not by_event_time or (is_delete and row["ts"] is None) or rank(row) >= rank(before):
            (deleted if is_delete else updated).append(row["id"])
            rows[row["id"]] = row
    return [row for key, row in rows.items() if key not in deleted], (updated, inserted, deleted)


def rank(row: Row) -> float:
    return -math.inf if row["ts"] is None else row["ts"]


@given(ROWS.filter(bool), CHANGES, st.booleans())
@settings(max_examples=60)
def test_merging_is_what_the_model_says(stored, changes, by_event_time):
    context, before = a_file(stored, properties={} if by_event_time else COMMIT_TIME)
    deletes = [row for row, is_delete in changes if is_delete]
    rows = incoming([row for row, is_delete in changes if not is_delete], deletes)
    ordered = sorted(changes, key=lambda change: change[1])
    written, found = merged(context, before, rows)
    expected, (updated, inserted, deleted) = model(stored, ordered, by_event_time)
    assert data_of(found) == expected
    changed = {*updated, *inserted}
    assert {row["id"] for row in found if row["_hoodie_commit_time"] == SECOND} == changed
    stat = written.stat
    assert (stat.num_updates, stat.num_inserts, stat.num_deletes) == (len(updated), len(inserted), len(deleted))
    assert (written.inserted_keys.to_pylist(), written.deleted_keys.to_pylist()) == (inserted, deleted)
    assert len({row["_hoodie_commit_seqno"] for row in found}) == len(found) == stat.num_writes


# Against Apache Hudi


@pytest.mark.parametrize("name", ["hudi120_mor_part_compacted", "hudi120_mor_nonpart_event_time_deletes"])
def test_slices_with_logs_are_merged_first(unpack, name):
    state = open_handle(str(unpack(name).path)).state()
    plan = plan_scan(state)
    schema = pa.schema([field for field in plan.schema if field.name not in META_COLUMNS])
    (context, _), seen = a_file([a_row("a")]), 0
    for task in plan.tasks:
        context = replace(context, storage=_Copy(state.storage, context.storage), config=state.config, schema=schema)
        context = replace(context, counts=task.counted)
        group = task.file_slice.group
        rows = prepared(schema.empty_table(), partition=group.partition)
        (written,) = merge_base_file(a_task(context, rows, onto=task.file_slice))
        found = read_file(context, written.stat.path)
        expected = read_slice(task).drop_columns(["_hoodie_file_name"])
        assert found.select(expected.column_names).to_pylist() == expected.to_pylist()
        seen += len(task.file_slice.logs)
    assert seen


class _Copy:
    """Reads a real table, writes elsewhere."""

    def __init__(self, real, other):
        self._real, self._other = real, other

    def __getattr__(self, name):
        return getattr(self._other if name in ("create", "find") else self._real, name)

    def get(self, path):
        found = self._other.find(path)
        return self._real.get(path) if found is None else found


def test_the_file_that_was_replaced_need_not_stay_in_memory(monkeypatch):
    context, before = a_file([a_row(key) for key in "abcd"])
    dismissed = []
    monkeypatch.setattr(type(context.storage), "dismiss", lambda storage, path: dismissed.append(path))
    merged(context, before, incoming([a_row("d", 1)]))
    assert dismissed == [before.stat.path]


def test_a_commit_says_of_a_merge_what_that_of_hudi_says(unpack):
    folder = unpack("hudi120_cow_part_upsert").path / ".hoodie" / "timeline"
    commits = [decode_commit(path.read_bytes(), path=path.name) for path in folder.glob("*.commit")]
    (theirs,) = [commit.write_stats["eu"][0] for commit in commits if commit.operation == "UPSERT"]
    context, before = a_file([a_row(key) for key in "abcd"])
    (ours, _) = merged(context, before, incoming([a_row("d", 1), a_row("e", 1)]))
    for name in ("num_writes", "num_updates", "num_inserts", "num_deletes", "base_file", "log_files", "log_version"):
        assert getattr(ours.stat, name) == getattr(theirs, name)
    assert theirs.prev_base_file.endswith(f"{theirs.prev_commit}.parquet")
    assert ours.stat.prev_base_file.endswith(f"{ours.stat.prev_commit}.parquet")
