"""The history checker, judged by histories made by hand: legal ones pass, and each anomaly is called by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from .checker import CONFLICTS, find_anomalies
from .history import Commit, History, Log, Read, Told, Write, encode_rows, load_history
from .register import Row

CONFLICT = "WriteConflictError: commit t1 changed the same data as this write"
Event = Write | Read | Commit


def _write(number: int, keys: str = "a b", at: int = 0, told: Told = Told.OK, **more: Any) -> Write:
    """A write that runs for five moments from `at`, ten times its number if not given."""
    began = at or number * 10
    instant, completed_at = (f"t{number}", f"c{number}") if told is Told.OK else (None, None)
    ended = None if told is Told.UNKNOWN else began + 5
    given = {"ended": ended, "instant": instant, "completed_at": completed_at} | more
    return Write(number, "w", tuple(keys.split()), began, told=told, **given)


def _commit(number: int, lists: Mapping[str, tuple[int, ...]], at: int = 0) -> Commit:
    """The commit of a write: it completes at `at`, or in the order of the numbers."""
    rows = tuple(Row(key, numbers, f"t{number}") for key, numbers in lists.items())
    return Commit(f"t{number}", f"c{at or number}", rows)


def _read(lists: Mapping[str, tuple[int, ...]], at: int = 1000, client: str = "r", **more: Any) -> Read:
    rows = tuple(Row(key, numbers, f"t{numbers[-1]}") for key, numbers in lists.items())
    return Read(client, at, at + 1, **{"rows": rows, **more})


def _history(*events: Event) -> History:
    writes = {event.number: event for event in events if isinstance(event, Write)}
    reads = [event for event in events if isinstance(event, Read)]
    return History(writes, reads, tuple(event for event in events if isinstance(event, Commit)))


FIRST = (_write(1), _commit(1, {"a": (1,), "b": (1,)}))
SECOND = (_write(2, saw={"a": (1,), "b": (1,)}), _commit(2, {"a": (1, 2), "b": (1, 2)}))
ON_A = (_write(2, "a", saw={"a": (1,)}), _commit(2, {"a": (1, 2)}))
ON_B = (_write(3, "b", at=20, saw={"b": (1,)}), _commit(3, {"b": (1, 3)}))
FAILED = _write(2, told=Told.FAILED, error=CONFLICT)
ROLLED_BACK = _write(2, told=Told.FAILED, error="RolledBackError: taken for dead")
KILLED = _write(2, told=Told.UNKNOWN, instant="t2")
KILLED_EARLY = _write(2, told=Told.UNKNOWN)

LEGAL: dict[str, tuple[Event, ...]] = {
    "nothing happened": (),
    "one write": (*FIRST, _read({"a": (1,), "b": (1,)})),
    "one after the other": (*FIRST, *SECOND, _read({"a": (1, 2), "b": (1, 2)})),
    "side by side, each on its own key": (*FIRST, *ON_A, *ON_B, _read({"a": (1, 2), "b": (1, 3)})),
    "a read that began before the second was done": (*FIRST, *SECOND, _read({"a": (1,), "b": (1,)}, at=24)),
    "a read of what is not reported yet": (*FIRST, *SECOND, _read({"a": (1, 2), "b": (1, 2)}, at=21)),
    "a read of a table without rows": (_read({}, at=5), *FIRST),
    "lost against another": (
        *FIRST,
        *SECOND,
        _write(3, at=21, told=Told.FAILED, error=CONFLICT),
        _read({"a": (1, 2), "b": (1, 2)}),
    ),
    "rolled back while paused": (*FIRST, ROLLED_BACK, _read({"a": (1,), "b": (1,)})),
    "killed before the commit": (*FIRST, KILLED, _read({"a": (1,), "b": (1,)})),
    "killed after the commit": (*FIRST, KILLED, SECOND[1], _read({"a": (1, 2), "b": (1, 2)})),
    "killed after the commit, not seen by a later read that began before it": (
        *FIRST,
        KILLED,
        SECOND[1],
        _read({"a": (1,), "b": (1,)}, at=30),
        _read({"a": (1, 2), "b": (1, 2)}, at=40),
    ),
    "two readers, one of them behind": (
        *FIRST,
        KILLED,
        SECOND[1],
        _read({"a": (1, 2), "b": (1, 2)}, at=30, client="r"),
        _read({"a": (1,), "b": (1,)}, at=30, client="s"),
    ),
}
ILLEGAL: dict[str, tuple[Event, ...]] = {
    "lost write": (*FIRST, _write(2), _read({"a": (1,), "b": (1,)})),
    "ghost write": (*FIRST, FAILED, SECOND[1]),
    "stranger": (*FIRST, SECOND[1]),
    "written twice": (
        *FIRST,
        KILLED_EARLY,
        SECOND[1],
        Commit("t3", "c3", (Row("a", (1, 2, 2), "t3"), Row("b", (1, 2, 2), "t3"))),
    ),
    "lost update: the list of the first is gone": (*FIRST, _write(2), _commit(2, {"a": (2,), "b": (2,)})),
    "lost update: appended to an old snapshot": (
        *FIRST,
        *SECOND,
        _write(3, "a", saw={"a": (1,)}),
        _commit(3, {"a": (1, 3)}),
    ),
    "lost update: the row is right, but by luck": (*FIRST, _write(2, "a", saw={"a": ()}), _commit(2, {"a": (1, 2)})),
    "completion times": (_write(1, completed_at="c5"), _commit(1, {"a": (1,), "b": (1,)}, at=5), *SECOND),
    "wrong completion time": (_write(1), _commit(1, {"a": (1,), "b": (1,)}, at=7)),
    "wrong instant": (_write(1, instant="t9"), FIRST[1]),
    "wrong instant: in a row": (*FIRST, _read({}, rows=(Row("a", (1,), "t1"), Row("b", (1,), "t0")))),
    "half a commit: one of its rows is missing": (*FIRST, SECOND[0], _commit(2, {"a": (1, 2)})),
    "half a commit: two writes in one": (
        *FIRST,
        SECOND[0],
        _write(7, told=Told.UNKNOWN),
        _commit(2, {"a": (1, 2), "b": (1, 7)}),
    ),
    "half a commit: in a snapshot": (*FIRST, KILLED, SECOND[1], _read({"a": (1, 2), "b": (1,)})),
    "not a prefix": (
        *FIRST,
        _write(2, "a", told=Told.UNKNOWN),
        ON_A[1],
        *ON_B,
        _read({"a": (1,), "b": (1, 3)}),
    ),
    "dirty read of a write that failed": (*FIRST, ROLLED_BACK, _read({"a": (1, 2), "b": (1, 2)})),
    "dirty read of a write that was killed": (*FIRST, KILLED, _read({"a": (1, 2), "b": (1, 2)})),
    "wrong list": (*FIRST, *SECOND, _read({"a": (2, 1), "b": (1, 2)})),
    "duplicate key": (*FIRST, _read({}, rows=(*FIRST[1].rows, FIRST[1].rows[0]))),
    "stale read": (*FIRST, *SECOND, _read({"a": (1,), "b": (1,)}, at=26)),
    "stale read: a key that vanished": (*FIRST, _read({})),
    "back in time": (
        *FIRST,
        KILLED,
        SECOND[1],
        _read({"a": (1, 2), "b": (1, 2)}, at=30),
        _read({"a": (1,), "b": (1,)}, at=40),
    ),
    "failed read": (*FIRST, _read({}, error="CorruptTableError: no such file")),
    "wrong error": (*FIRST, _write(2, told=Told.FAILED, error="AssertionError: a time was drawn twice")),
    "needless conflict": (*FIRST, FAILED),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_history(name: str) -> None:
    assert find_anomalies(_history(*LEGAL[name])) == []


@pytest.mark.parametrize("name", ILLEGAL)
def test_anomaly_is_found_and_no_other(name: str) -> None:
    kind = name.partition(":")[0].partition(" of ")[0]
    found = find_anomalies(_history(*ILLEGAL[name]))
    assert found
    assert all(anomaly.startswith(kind) for anomaly in found), found


def test_errors_that_are_allowed_are_no_anomalies() -> None:
    history = _history(*FIRST, _write(2, told=Told.FAILED, error="LockUnavailableError: ran out"))
    assert find_anomalies(history) != []
    assert find_anomalies(history, (*CONFLICTS, "LockUnavailableError")) == []


def test_whoever_stood_still_may_have_to_begin_anew() -> None:
    expired = "SnapshotExpiredError: the metadata table was compacted and cleaned"
    slept, swift = (_write(2, told=Told.FAILED, error=expired) for _ in range(2))
    assert find_anomalies(_history(*FIRST, replace(slept, ended=slept.began + 3_000_000_000))) == []
    assert find_anomalies(_history(*FIRST, swift)) != []


def test_logs_become_a_history(tmp_path: Path) -> None:
    writer, reader = Log(tmp_path, "writer-0.1"), Log(tmp_path, "reader")
    writer.add("invoke", number=1, keys=["a"])
    writer.add("planned", number=1, instant="t1", saw={"a": []})
    writer.add("ok", number=1, instant="t1", completed_at="c1")
    writer.add("invoke", number=2, keys=["a"])
    writer.add("failed", number=2, error=CONFLICT)
    writer.add("invoke", number=3, keys=["a"])
    writer.add("planned", number=3, instant="t3", saw={"a": [1]})
    reader.add("read", began=0, rows=encode_rows([Row("a", (1,), "t1")]), error="")
    with (tmp_path / "writer-0.1.jsonl").open("ab") as file:
        file.write(b'{"at": 12, "event": "ok", "num')  # Killed in the middle of a line.

    history = load_history(tmp_path)

    told = [(write.told, write.instant, write.saw, write.completed_at) for write in history.writes.values()]
    assert told == [
        (Told.OK, "t1", {"a": ()}, "c1"),
        (Told.FAILED, None, {}, None),
        (Told.UNKNOWN, "t3", {"a": (1,)}, None),
    ]
    assert history.writes[2].error == CONFLICT
    assert [read.rows for read in history.reads] == [(Row("a", (1,), "t1"),)]
