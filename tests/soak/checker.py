"""Judges a history: which of the promises of the protocol it breaks.

The commits of the surviving table, in completion order, are the version order. Replaying them gives every list that
any snapshot may have shown: a row tells between which two commits its snapshot stands, and all rows of one snapshot
must agree on a place. That makes the check exact, and linear in what was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from .history import Commit, History, Read, Told, Write
from .register import Row

CONFLICTS = ("WriteConflictError", "RolledBackError")
"""What a writer may be told that lost against others."""
_CONFLICT = "WriteConflictError"
_EXPIRED = "SnapshotExpiredError"
_STOOD_STILL_NS = 2_000_000_000


@dataclass(slots=True)
class _Order:
    """The version order: for each key its final list, and the place of the commit that wrote each of its numbers."""

    commits: tuple[Commit, ...]
    lists: dict[str, list[int]] = field(default_factory=dict)
    places: dict[str, list[int]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    """The place of each number that was committed."""


def find_anomalies(history: History, allowed: Iterable[str] = CONFLICTS) -> list[str]:
    """What is wrong with a history; nothing if snapshot isolation and the protocol's promises allow it.

    `allowed` are the errors that writers may see.
    """
    order, found = _replay(history)
    return [
        *found,
        *_wrong_answers(history, order),
        *_wrong_errors(history, order, frozenset(allowed)),
        *_wrong_reads(history, order),
    ]


def _replay(history: History) -> tuple[_Order, list[str]]:
    order, found = _Order(history.commits), []
    for place, commit in enumerate(history.commits):
        if place and commit.completed_at <= history.commits[place - 1].completed_at:
            found.append(f"completion times: that of {commit.instant} is not after the one before it")
        numbers = {row.numbers[-1] for row in commit.rows if row.numbers}
        if len(numbers) != 1:
            found.append(f"half a commit: {commit.instant} shows the writes {sorted(numbers)}, not one")
        found += _wrong_rows(history, order, commit)
        for row in commit.rows:
            order.lists.setdefault(row.key, []).append(row.numbers[-1])
            order.places.setdefault(row.key, []).append(place)
        for number in sorted(numbers):
            if number in order.numbers:
                found.append(f"written twice: {number}, by {commit.instant} again")
            order.numbers[number] = place
            found += _wrong_commit(history.writes.get(number), number, commit)
    return order, found


def _wrong_rows(history: History, order: _Order, commit: Commit) -> Iterator[str]:
    """Each row must be the list as it was, and one number more; and that list is what its writer saw."""
    for row in commit.rows:
        was, number = tuple(order.lists.get(row.key, ())), row.numbers[-1]
        if row.numbers[:-1] != was:
            yield f"lost update: {commit.instant} made {_tail(row.numbers)} of {row.key}, which was {_tail(was)}"
        write = history.writes.get(number)
        if write is not None and row.key in write.saw and write.saw[row.key] != was:
            yield f"lost update: {number} saw {row.key}={_tail(write.saw[row.key])}, which was {_tail(was)}"


def _wrong_commit(write: Write | None, number: int, commit: Commit) -> Iterator[str]:
    """What the commit of a number says, against what its client knows."""
    if write is None:
        yield f"stranger: {commit.instant} wrote {number}, which nobody asked for"
        return
    if write.told is Told.FAILED:
        yield f"ghost write: {number} was reported as failed and is there, as {commit.instant}: {write.error}"
    if write.instant is not None and write.instant != commit.instant:
        yield f"wrong instant: {number} was written by {commit.instant}, its writer knows it as {write.instant}"
    if write.completed_at is not None and write.completed_at != commit.completed_at:
        yield f"wrong completion time: {write.completed_at} was told for {number}, {commit.completed_at} is there"
    keys = tuple(sorted(row.key for row in commit.rows))
    if keys != tuple(sorted(write.keys)):
        yield f"half a commit: {number} was to change {sorted(write.keys)} and changed {list(keys)}"


def _wrong_answers(history: History, order: _Order) -> Iterator[str]:
    for write in history.writes.values():
        if write.told is Told.OK and write.number not in order.numbers:
            yield f"lost write: {write.number} of {write.client} was reported as done, as {write.instant}, and is gone"


def _wrong_errors(history: History, order: _Order, allowed: frozenset[str]) -> Iterator[str]:
    """Who loses is told so, and by nothing else; and a conflict needs a winner."""
    winners = [history.writes[number] for number in order.numbers if number in history.writes]
    for write in history.writes.values():
        if write.told is Told.OK or not write.error:
            continue
        kind = write.error.partition(":")[0]
        if kind not in allowed and not (kind == _EXPIRED and _stood_still(write)):
            yield f"wrong error: {write.number} of {write.client} ({write.instant}) ended with {write.error}"
        elif kind == _CONFLICT and not any(_overlap(write, winner) for winner in winners):
            yield f"needless conflict: nothing was committed while {write.number} ran: {write.error}"


def _stood_still(write: Write) -> bool:
    """Whether a write took so long that what it had seen of the metadata table may have been cleaned meanwhile."""
    return write.ended is not None and write.ended - write.began > _STOOD_STILL_NS


def _overlap(one: Write, other: Write) -> bool:
    ends_after = other.ended is None or other.ended > one.began
    return ends_after and (one.ended is None or other.began < one.ended)


def _wrong_reads(history: History, order: _Order) -> Iterator[str]:
    acknowledged = _acknowledged(history.writes, order)
    floors: dict[str, int] = {}
    for read in history.reads:
        if read.error:
            yield f"failed read: {read.client} got {read.error}"
            continue
        problems = [*_duplicates(read), *_wrong_lists(history, order, read)]
        yield from problems
        if problems:
            continue
        low, high = _standing(order, read.rows)
        if low >= high:
            yield _disagreement(order, read, low, high)
            continue
        if acknowledged.newest_before(read.began) >= high:
            missed = order.commits[high].instant
            yield f"stale read: {read.client} did not see {missed}, which was reported as done before"
        if floors.get(read.client, -1) >= high:
            yield f"back in time: {read.client} no longer saw {order.commits[high].instant}"
        floors[read.client] = max(floors.get(read.client, -1), low)


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    """When writes were reported as done, and the newest place among those so far."""

    moments: list[int]
    newest: list[int]

    def newest_before(self, moment: int) -> int:
        """The newest place that was reported as done by a moment; -1 if none was."""
        count = bisect_right(self.moments, moment)
        return self.newest[count - 1] if count else -1


def _acknowledged(writes: Mapping[int, Write], order: _Order) -> _Acknowledged:
    done = sorted(
        (writes[number].ended or 0, place)
        for number, place in order.numbers.items()
        if number in writes and writes[number].told is Told.OK
    )
    return _Acknowledged([moment for moment, _ in done], list(accumulate((place for _, place in done), max)))


def _duplicates(read: Read) -> Iterator[str]:
    for key, count in Counter(row.key for row in read.rows).items():
        if count > 1:
            yield f"duplicate key: {read.client} saw {key} {count} times"


def _wrong_lists(history: History, order: _Order, read: Read) -> Iterator[str]:
    """Every list must be how the final one began, and be shown as written by the commit of its last number."""
    for row in read.rows:
        final = order.lists.get(row.key, [])
        dirty = [number for number in row.numbers if number not in order.numbers]
        if dirty:
            told = [history.writes[number].told.value if number in history.writes else "nobody's" for number in dirty]
            yield f"dirty read: {read.client} saw {dirty} ({', '.join(told)}) in {row.key}, which were never committed"
        elif list(row.numbers) != final[: len(row.numbers)]:
            yield f"wrong list: {read.client} saw {row.key}={_tail(row.numbers)}, which it never was"
        elif row.numbers and row.instant != order.commits[order.places[row.key][len(row.numbers) - 1]].instant:
            yield f"wrong instant: {read.client} saw {row.key}={_tail(row.numbers)} as written by {row.instant}"


def _standing(order: _Order, rows: Iterable[Row]) -> tuple[int, int]:
    """The newest commit that a snapshot surely has, and the oldest that it surely has not."""
    seen = {row.key: len(row.numbers) for row in rows}
    low, high = -1, len(order.commits)
    for key, places in order.places.items():
        count = seen.get(key, 0)
        low = max(low, places[count - 1] if count else -1)
        high = min(high, places[count] if count < len(places) else len(order.commits))
    return low, high


def _disagreement(order: _Order, read: Read, low: int, high: int) -> str:
    has, lacks = order.commits[low], order.commits[high]
    if low == high:
        return f"half a commit: {read.client} saw some rows of {has.instant} and not the others"
    return f"not a prefix: {read.client} saw {has.instant} and not {lacks.instant}, which had completed before"


def _tail(numbers: Iterable[int]) -> str:
    shown = list(numbers)
    return f"[…{len(shown) - 4} more, {str(shown[-4:])[1:]}" if len(shown) > 5 else str(shown)
