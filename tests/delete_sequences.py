"""What becomes of one key under sequences of upserts and deletes, as Apache Hudi 1.2 has it.

Events are upserts of a row (U), of a row that `_hoodie_is_deleted` marks (D), both with an ordering value, and deletes
by key alone (X). Each is a write of its own. Whether a later upsert that is older than a delete is seen depends on the
kind of table: copy-on-write tables forget deletes, and with a record index Apache Hudi takes the key for new; otherwise
the delete lies in a log file of the key's file group, until that is compacted.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

EVENTS = ("U4", "U5", "U6", "D4", "D5", "D6", "X")
EVERY = tuple(" ".join(events) for events in itertools.product(EVENTS, repeat=3))
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("step", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
SHOWN_AGAIN = ("U5 X U4", "U6 X U4", "U6 X U5")
"""Without a record index Apache Hudi 1.2 shows the deleted row here: it compares what comes back with the base file."""

Outcome = int | None
"""The number of the event whose row is there in the end."""

OUTCOMES: dict[str, tuple[Outcome, Outcome, Outcome]] = {
    # By event time: copy-on-write, merge-on-read, merge-on-read with a record index.
    "U5 U4 U4": (0, 0, 0),
    "U5 U4 U5": (2, 2, 2),
    "U5 U4 U6": (2, 2, 2),
    "U5 U4 D4": (0, 0, 0),
    "U5 U4 D5": (None, None, None),
    "U5 U4 D6": (None, None, None),
    "U5 U4 X": (None, None, None),
    "U5 U5 U4": (1, 1, 1),
    "U5 U5 U5": (2, 2, 2),
    "U5 U5 U6": (2, 2, 2),
    "U5 U5 D4": (1, 1, 1),
    "U5 U5 D5": (None, None, None),
    "U5 U5 D6": (None, None, None),
    "U5 U5 X": (None, None, None),
    "U5 U6 U4": (1, 1, 1),
    "U5 U6 U5": (1, 1, 1),
    "U5 U6 U6": (2, 2, 2),
    "U5 U6 D4": (1, 1, 1),
    "U5 U6 D5": (1, 1, 1),
    "U5 U6 D6": (None, None, None),
    "U5 U6 X": (None, None, None),
    "U5 D4 U4": (0, 0, 0),
    "U5 D4 U5": (2, 2, 2),
    "U5 D4 U6": (2, 2, 2),
    "U5 D4 D4": (0, 0, 0),
    "U5 D4 D5": (None, None, None),
    "U5 D4 D6": (None, None, None),
    "U5 D4 X": (None, None, None),
    "U5 D5 U4": (2, None, 2),
    "U5 D5 U5": (2, 2, 2),
    "U5 D5 U6": (2, 2, 2),
    "U5 D5 D4": (None, None, None),
    "U5 D5 D5": (None, None, None),
    "U5 D5 D6": (None, None, None),
    "U5 D5 X": (None, None, None),
    "U5 D6 U4": (2, None, 2),
    "U5 D6 U5": (2, None, 2),
    "U5 D6 U6": (2, 2, 2),
    "U5 D6 D4": (None, None, None),
    "U5 D6 D5": (None, None, None),
    "U5 D6 D6": (None, None, None),
    "U5 D6 X": (None, None, None),
    "U5 X U4": (2, 0, 2),
    "U5 X U5": (2, 2, 2),
    "U5 X U6": (2, 2, 2),
    "U5 X D4": (None, None, None),
    "U5 X D5": (None, None, None),
    "U5 X D6": (None, None, None),
    "U5 X X": (None, None, None),
    "D6 U4 U4": (2, 2, 2),
    "D6 U4 U5": (2, 2, 2),
    "D6 U4 D5": (None, None, None),
    "D6 D4 U4": (2, 2, 2),
    "D6 D4 U5": (2, 2, 2),
    "D6 D4 D5": (None, None, None),
    "D6 X U4": (2, 2, 2),
    "D6 X U5": (2, 2, 2),
    "D6 X D5": (None, None, None),
}


@dataclass(frozen=True)
class Design:
    """A kind of table."""

    name: str
    table_type: str
    indexes: tuple[str, ...]
    by_event_time: bool

    def __str__(self) -> str:
        return f"{self.name}-{'event' if self.by_event_time else 'commit'}"

    @property
    def create_arguments(self) -> dict[str, Any]:
        """Arguments of create_table other than the path."""
        mode = "EVENT_TIME_ORDERING" if self.by_event_time else "COMMIT_TIME_ORDERING"
        return {
            "schema": SCHEMA,
            "key": "id",
            "ordering": "ts" if self.by_event_time else None,
            "table_type": self.table_type,
            "indexes": self.indexes,
            "options": {"hoodie.record.merge.mode": mode},
        }

    def outcome(self, sequence: str) -> Outcome:
        """What Apache Hudi has in the end, but for rows that it shows again."""
        events = sequence.split()
        if not self.by_event_time:
            return len(events) - 1 if events[-1][0] == "U" else None
        if sequence in SHOWN_AGAIN:
            return len(events) - 1
        return OUTCOMES[sequence][("cow", "mor", "mor-index").index(self.name)]


DESIGNS = tuple(
    Design(name, table_type, indexes, by_event_time)
    for by_event_time in (True, False)
    for name, table_type, indexes in (("cow", "cow", ()), ("mor", "mor", ()), ("mor-index", "mor", ("record",)))
)


def batches(sequences: tuple[str, ...], step: int) -> tuple[pa.Table, pa.Table]:
    """The rows that a step upserts, marked ones among them, and those that it deletes."""
    rows: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for sequence in sequences:
        event = sequence.split()[step]
        row = {"id": sequence, "ts": int(event[1:] or 0), "step": step, "_hoodie_is_deleted": event[0] == "D"}
        rows[event == "X"].append(row)
    return pa.Table.from_pylist(rows[False], SCHEMA), pa.Table.from_pylist(rows[True], SCHEMA)


def seen(rows: pa.Table) -> dict[str, int]:
    """Of each key that is there, the number of the event that wrote its row."""
    found = rows.select(["id", "step"]).to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    return {row["id"]: row["step"] for row in found}
