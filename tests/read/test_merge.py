"""Merging against a plain model: one dictionary, one event at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.read.merge import EventKind, Part, Rules, merge_slice

SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("b", pa.string())])


@dataclass(frozen=True)
class Event:
    key: str
    kind: EventKind
    ts: int | None
    a: str | None = None
    b: str | None = None


def part(events: list[Event], *, deletes: bool = False, columns: frozenset[str] | None = None) -> Part:
    keys = pa.array([event.key for event in events], pa.string())
    kinds = np.array([event.kind for event in events], np.int8)
    ordering = (pa.array([event.ts for event in events], pa.int64()),)
    rows = None if deletes else pa.Table.from_pylist([vars_of(event) for event in events], SCHEMA)
    return Part(keys, kinds, ordering, rows, columns)


def vars_of(event: Event) -> dict[str, object]:
    return {"key": event.key, "ts": event.ts, "a": event.a, "b": event.b}


def model(base: list[Event], blocks: list[list[Event]], rules: Rules) -> dict[str, Event]:
    """What the rules say, spelled out event by event."""
    state = {event.key: event for event in base}
    in_logs: dict[str, Event] = {}
    for event in (event for block in blocks for event in block):
        if rules in (Rules.COMMIT_TIME, Rules.EVENT_TIME):
            if newer_wins(state.get(event.key), event, rules):
                state[event.key] = event
        elif newer_wins_v6(in_logs.get(event.key), event):
            in_logs[event.key] = event
    for key, event in in_logs.items():
        older = state.get(key)
        may_lose = rules is Rules.EVENT_TIME_V6 and event.kind is EventKind.RECORD and older is not None
        if not (may_lose and rank(older) > rank(event)):
            state[key] = event
    return {key: event for key, event in state.items() if event.kind is EventKind.RECORD}


def rank(event: Event) -> float:
    return float("-inf") if event.ts is None else event.ts


def newer_wins(older: Event | None, newer: Event, rules: Rules) -> bool:
    if older is None or rules is Rules.COMMIT_TIME:
        return True
    if EventKind.DELETE_ALWAYS in (older.kind, newer.kind):
        return True
    return rank(newer) >= rank(older)


def newer_wins_v6(older: Event | None, newer: Event) -> bool:
    if older is None or newer.kind is EventKind.DELETE_ALWAYS:
        return True
    if newer.kind is EventKind.RECORD and older.kind is not EventKind.RECORD:
        return True
    return rank(newer) >= rank(older)


KEYS = st.sampled_from("abcde")
TIMES = st.one_of(st.none(), st.integers(0, 3))
RECORDS = st.builds(
    Event, KEYS, st.just(EventKind.RECORD), TIMES, st.text("xyz", max_size=2), st.text("xyz", max_size=2)
)
DELETES = st.one_of(
    st.builds(Event, KEYS, st.just(EventKind.DELETE), st.integers(0, 3)),
    st.builds(Event, KEYS, st.just(EventKind.DELETE_ALWAYS), st.none()),
)
BLOCKS = st.lists(st.one_of(st.lists(RECORDS, max_size=6), st.lists(DELETES, min_size=1, max_size=4)), max_size=5)


@pytest.mark.parametrize("rules", list(Rules))
@given(base=st.lists(RECORDS, max_size=5, unique_by=lambda event: event.key), blocks=BLOCKS)
def test_merge_is_the_model(rules: Rules, base: list[Event], blocks: list[list[Event]]) -> None:
    parts = [part(block, deletes=bool(block) and block[0].kind is not EventKind.RECORD) for block in blocks]
    merged = merge_slice(part(base), parts, rules, SCHEMA)
    expected = model(base, blocks, rules)
    assert sorted(merged["key"].to_pylist()) == sorted(expected)
    for row in merged.to_pylist():
        assert row == vars_of(expected[row["key"]])


@given(
    blocks=st.lists(st.lists(RECORDS, min_size=1, max_size=6), max_size=5),
    partial=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_partial_updates_keep_the_other_columns(blocks: list[list[Event]], partial: list[bool]) -> None:
    base = [Event(key, EventKind.RECORD, 0, f"{key}0", f"{key}0") for key in "abcde"]
    parts, expected = [], {event.key: vars_of(event) for event in base}
    for block, is_partial in zip(blocks, partial, strict=False):
        parts.append(part(block, columns=frozenset({"key", "ts", "a"}) if is_partial else None))
        for event in block:
            changed = {"key": event.key, "ts": event.ts, "a": event.a} if is_partial else vars_of(event)
            expected[event.key] = {**expected[event.key], **changed}
    merged = merge_slice(part(base), parts, Rules.COMMIT_TIME, SCHEMA)
    assert sorted(merged.to_pylist(), key=lambda row: row["key"]) == [expected[key] for key in sorted(expected)]


def test_a_repeated_key_in_the_base_file_changes_once() -> None:
    base = [
        Event("a", EventKind.RECORD, 1, "first"),
        Event("a", EventKind.RECORD, 1, "second"),
        Event("b", EventKind.RECORD, 1),
    ]
    merged = merge_slice(part(base), [part([Event("a", EventKind.RECORD, 2, "new")])], Rules.EVENT_TIME, SCHEMA)
    assert sorted(str(row["a"]) for row in merged.to_pylist()) == ["None", "new", "second"]


def test_several_ordering_fields_compare_one_after_the_other() -> None:
    def row(key: str, first: int, second: int, a: str) -> Part:
        rows = pa.Table.from_pylist([{"key": key, "ts": first, "a": a, "b": None}], SCHEMA)
        orders = (pa.array([first]), pa.array([second]))
        return Part(pa.array([key]), np.array([EventKind.RECORD], np.int8), orders, rows)

    logs = [row("k", 2, 1, "later second field"), row("k", 1, 9, "smaller first field")]
    merged = merge_slice(row("k", 2, 0, "base"), logs, Rules.EVENT_TIME, SCHEMA)
    assert merged["a"].to_pylist() == ["later second field"]


INT64 = np.iinfo(np.int64)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.int8(), -128, 127),
        (pa.int64(), INT64.min, INT64.max),
        (pa.uint64(), 0, 2**64 - 1),
        (pa.float64(), -0.5, float("nan")),
        (pa.timestamp("us", "UTC"), -1, 0),
        (pa.date32(), -1, 0),
        (pa.string(), "10", "9"),
        (pa.decimal128(9, 2), "-1.00", "0.50"),
        (pa.int64(), None, INT64.min),
    ],
    ids=str,
)
def test_ordering_values_of_any_type(kind: pa.DataType, low: object, high: object) -> None:
    def events(keys: str, values: list[object], name: str) -> Part:
        rows = pa.table({"key": list(keys), "ts": [0] * len(keys), "a": [name] * len(keys), "b": [name] * len(keys)})
        orders = (pa.array(values).cast(kind) if pa.types.is_decimal(kind) else pa.array(values, kind),)
        return Part(pa.array(list(keys)), np.zeros(len(keys), np.int8), orders, rows.cast(SCHEMA))

    base = events("abcd", [low, high, low, high], "base")
    merged = merge_slice(base, [events("abd", [high, low, high], "log")], Rules.EVENT_TIME, SCHEMA)
    winners = dict(zip(merged["key"].to_pylist(), merged["a"].to_pylist(), strict=True))
    assert winners == {"a": "log", "b": "base", "c": "base", "d": "log"}


def test_a_base_row_that_wins_is_given_once_and_one_marked_deleted_not_at_all() -> None:
    base = [
        Event("a", EventKind.RECORD, 5, "base"),
        Event("a", EventKind.RECORD, 5, "again"),
        Event("b", EventKind.DELETE, 5),
    ]
    rows = part([Event(event.key, EventKind.RECORD, event.ts, event.a) for event in base])
    marked = Part(rows.keys, np.array([event.kind for event in base], np.int8), rows.ordering, rows.rows)
    late = part([Event("a", EventKind.RECORD, 1, "late"), Event("b", EventKind.RECORD, 1, "late")])
    merged = merge_slice(marked, [late], Rules.EVENT_TIME, SCHEMA)
    assert sorted(merged["a"].to_pylist()) == ["again", "base"]
