"""What a table should hold: a plain dictionary, changed by the plainest code that says what each operation means."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Place = tuple[str | None, str]
"""Partition value and record key."""
Rows = dict[Place, Row]

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
DELETED = "_hoodie_is_deleted"
COMMIT = "_hoodie_commit_time"


@dataclass
class Model:
    """Rows by partition and key; each has its columns, and under COMMIT the instant of the write that it is of."""

    is_partitioned: bool
    by_event_time: bool
    columns: list[str]
    rows: Rows = field(default_factory=dict)
    is_global: bool = False
    """A key is in one partition at most, because an index over the whole table says where it is."""
    had_record_index: bool = False
    """There is a record index, or there was one when some of the rows were written."""
    history: list[tuple[str, Rows]] = field(default_factory=list)
    """Every completed write and service that is not undone, with the rows after it."""
    peak: int = 0
    """How long the history has ever been: when it was, a clean may have removed what is older."""
    savepoints: list[str] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    """Keys that were deleted at some time."""
    moved: set[str] = field(default_factory=set)
    """Keys that changed their partition at some time."""
    deletes: dict[str, Any] = field(default_factory=dict)
    """Greatest ordering value of deletes that have one, by key: what is older need not come back."""

    def partition_of(self, row: Row) -> str | None:
        """Null and empty values share a folder, whose rows read as null."""
        value = row.get("part")
        return None if not self.is_partitioned or value in ("", NO_VALUE) else value

    def find(self, row: Row) -> Place:
        """Where the row with the key of `row` is, or is to be."""
        own = (self.partition_of(row), key_of(row))
        if self.is_global and own not in self.rows:
            return next((place for place in self.rows if place[1] == own[1]), own)
        return own

    def upsert(self, rows: Iterable[Row], instant: str) -> None:
        """New keys are added; rows of others are replaced in the columns that are given, unless they are newer."""
        rows = list(rows)
        self.note_columns(rows)
        for row in self.combine(rows):
            place = self.find(row)
            old = self.rows.get(place)
            if row.get(DELETED):
                self.note_delete(row)
            if old is not None and self.is_late(row, old):
                continue
            self.rows.pop(place, None)
            if not row.get(DELETED):
                if old is not None and place[0] != self.partition_of(row):
                    self.moved.add(place[1])
                self.add(row, instant, old)

    def note_columns(self, rows: Iterable[Row]) -> None:
        """New columns are the table's, whatever becomes of the rows that bring them."""
        for row in rows:
            self.columns += [name for name in row if name not in self.columns and name != DELETED]

    def combine(self, rows: Iterable[Row]) -> list[Row]:
        """Of rows for one key the one with the greatest ordering value, the last of equal ones."""
        kept: dict[object, Row] = {}
        for row in rows:
            name = key_of(row) if self.is_global else (self.partition_of(row), key_of(row))
            if name not in kept or not self.by_event_time or rank(row["ts"]) >= rank(kept[name]["ts"]):
                kept[name] = row
        return list(kept.values())

    def is_late(self, row: Row, old: Row) -> bool:
        """Whether a row is older than the stored one. A delete without an ordering value never is."""
        if not self.by_event_time or (row.get(DELETED) and row["ts"] is None):
            return False
        return rank(row["ts"]) < rank(old["ts"])

    def add(self, row: Row, instant: str, old: Row | None = None) -> None:
        """Puts a row where it belongs; columns that it lacks are those of `old`, or null."""
        self.note_columns([row])
        values = {name: row.get(name, (old or {}).get(name)) for name in self.columns}
        place = (self.partition_of(row), key_of(row))
        if self.is_partitioned:
            values["part"] = place[0]
        self.rows[place] = {**values, COMMIT: instant}

    def insert(self, rows: Iterable[Row], instant: str) -> None:
        """Adds rows whose keys are new."""
        for row in rows:
            self.add(row, instant)

    def overwrite(self, rows: Iterable[Row], instant: str, *, whole: bool) -> None:
        """The rows are all that their partitions, or the table, have then."""
        given = self.combine(rows)
        named = {self.partition_of(row) for row in given}
        self.rows = {} if whole else {place: row for place, row in self.rows.items() if place[0] not in named}
        self.insert(given, instant)

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes rows by key, wherever they are."""
        gone = {*keys}
        self.deleted |= gone
        self.rows = {place: row for place, row in self.rows.items() if place[1] not in gone}

    def delete_rows(self, rows: Iterable[Row]) -> None:
        """Deletes rows by key and partition."""
        for row in rows:
            self.deleted.add(key_of(row))
            self.rows.pop(self.find(row), None)

    def delete_partitions(self, partitions: Iterable[str | None]) -> None:
        """Deletes all rows of partitions."""
        gone = {*partitions}
        self.deleted |= {place[1] for place in self.rows if place[0] in gone}
        self.rows = {place: row for place, row in self.rows.items() if place[0] not in gone}

    def note_delete(self, row: Row) -> None:
        """Remembers a delete, and its ordering value."""
        key = key_of(row)
        self.deleted.add(key)
        if key not in self.deletes or rank(self.deletes[key]) < rank(row["ts"]):
            self.deletes[key] = row["ts"]

    def completed(self, instants: Iterable[str]) -> None:
        """Notes that instants have completed, after which the table is as it is now."""
        self.history += [(instant, copy.deepcopy(self.rows)) for instant in instants]
        self.peak = max(self.peak, len(self.history))

    def undo_after(self, count: int) -> None:
        """Sets the table back to when it had so many completed instants."""
        del self.history[count:]
        self.rows = copy.deepcopy(self.history[-1][1]) if self.history else {}
        left = {instant for instant, _ in self.history}
        self.savepoints = [instant for instant in self.savepoints if instant in left]


def key_of(row: Row) -> str:
    """The record key."""
    return row["id"]


def rank(value: Any) -> tuple[int, Any]:
    """Ordering values as they compare: null is lowest, NaN highest."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def spelled(row: Row) -> tuple[tuple[str, str], ...]:
    """A row in a form that compares: NaN equals NaN, and zero differs from minus zero; nulls are left out."""
    return tuple(sorted((name, repr(value)) for name, value in row.items() if value is not None))
