"""The history checker, judged by histories made by hand: legal ones pass, and each anomaly is called by its name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from .checker import History, Read, Told, Write, find_anomalies


def _write(number: int, completed: str | None, saw: Mapping[str, tuple[int, ...]], **more: object) -> Write:
    write = Write(number, "w", f"t{number}", dict.fromkeys(saw, True), saw, told=Told.OK, completed_at=completed)
    for name, value in more.items():
        setattr(write, name, value)
    return write


def _read(seen: str, rows: Mapping[str, tuple[int, ...]], client: str = "r", at: int = 100) -> Read:
    alive = {key: (numbers, True) for key, numbers in rows.items()}
    return Read(client, frozenset(seen.split()), alive, at, at)


def _history(*events: Write | Read) -> History:
    writes = {event.instant: event for event in events if isinstance(event, Write)}
    return History(writes, [event for event in events if isinstance(event, Read)])


FIRST = _write(1, "c1", {"a": (), "b": ()})
LEGAL = {
    "nothing happened": (),
    "one write": (FIRST, _read("t1", {"a": (1,), "b": (1,)})),
    "one after the other": (FIRST, _write(2, "c2", {"a": (1,)}), _read("t1 t2", {"a": (1, 2), "b": (1,)})),
    "an older snapshot": (FIRST, _write(2, "c2", {"a": (1,)}), _read("t1", {"a": (1,), "b": (1,)})),
    "side by side on two keys": (FIRST, _write(2, "c3", {"a": (1,)}), _write(3, "c2", {"b": (1,)})),
    "write skew": (
        FIRST,
        _write(2, "c2", {"a": (1,)}),
        _write(3, "c3", {"b": (1,)}),
        _read("t1", {"a": (1,), "b": (1,)}),
    ),
    "failed and not there": (
        FIRST,
        _write(2, None, {"a": (1,)}, told=Told.FAILED),
        _read("t1", {"a": (1,), "b": (1,)}),
    ),
    "unknown and there": (_write(1, "c1", {"a": ()}, told=Told.UNKNOWN), _read("t1", {"a": (1,)})),
    "unknown and not there": (_write(1, None, {"a": ()}, told=Told.UNKNOWN), _read("", {})),
    "taken back": (FIRST, _write(2, "c2", {"a": (1,)}, unpublished=50), _read("t1", {"a": (1,), "b": (1,)})),
    "taken back before it was told to have failed": (
        _write(1, "c1", {"a": ()}, told=Told.FAILED, unpublished=50, answered=60),
    ),
    "seen before it was taken back": (
        FIRST,
        _write(2, "c2", {"a": (1,)}, unpublished=150),
        _read("t1 t2", {"a": (1, 2), "b": (1,)}),
        _read("t1", {"a": (1,), "b": (1,)}, at=200),
    ),
}
ILLEGAL = {
    "lost write": (_write(1, None, {"a": ()}),),
    "ghost write": (_write(1, "c1", {"a": ()}, told=Told.FAILED),),
    "ghost write: taken back later": (_write(1, "c1", {"a": ()}, told=Told.FAILED, unpublished=50, answered=40),),
    "lost update": (FIRST, _write(2, "c2", {"a": (1,)}), _write(3, "c3", {"a": (1,)})),
    "dirty base": (FIRST, _write(2, "c2", {"a": (1,)}, unpublished=9), _write(3, "c3", {"a": (1, 2)})),
    "dirty read": (FIRST, _write(2, None, {"a": (1,)}, told=Told.FAILED), _read("t1 t2", {"a": (1, 2), "b": (1,)})),
    "dirty read of nobody's": (FIRST, _read("t1 t9", {"a": (1,), "b": (1,)})),
    "not a prefix": (
        FIRST,
        _write(2, "c2", {"a": (1,)}),
        _write(3, "c3", {"b": (1,)}),
        _read("t1 t3", {"a": (1,), "b": (1, 3)}),
    ),
    "wrong read: vanished": (FIRST, _read("t1", {"a": (1,)})),
    "wrong read: half a write": (
        FIRST,
        _write(2, "c2", {"a": (1,), "b": (1,)}),
        _read("t1 t2", {"a": (1, 2), "b": (1,)}),
    ),
    "wrong read: order": (
        FIRST,
        _write(2, "c2", {"a": (1,)}),
        _write(3, "c3", {"a": (1, 2)}),
        _read("t1 t2 t3", {"a": (1, 3, 2), "b": (1,)}),
    ),
    "back in time": (
        FIRST,
        _write(2, "c2", {"a": (1,)}),
        _read("t1 t2", {"a": (1, 2), "b": (1,)}),
        _read("t1", {"a": (1,), "b": (1,)}, at=200),
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_history(name: str) -> None:
    assert find_anomalies(_history(*LEGAL[name])) == []


@pytest.mark.parametrize("name", ILLEGAL)
def test_anomaly_is_found(name: str) -> None:
    kind = name.partition(":")[0].partition(" of ")[0]
    assert any(found.startswith(kind) for found in find_anomalies(_history(*ILLEGAL[name])))
