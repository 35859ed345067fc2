"""Judges histories: what clients asked for, were told and saw, against the order in which writes completed.

Rows are lists to which writes append their number, so a row shows the whole order of the writes before it. That makes
the check exact and linear: replaying the completed writes in completion order must give every list that was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Told(Enum):
    """What the client of a write was told."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Write:
    """One write: `appends` are the keys it touched, `saw` their lists in the snapshot it was planned on."""

    number: int
    client: str
    instant: str
    appends: Mapping[str, bool] = field(default_factory=dict)
    saw: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    told: Told = Told.UNKNOWN
    began: int = 0
    completed_at: str | None = None
    published: int = 0
    unpublished: int | None = None
    """The steps at which it began, became visible, and was taken back by an operator."""
    answered: int | None = None
    """The step at which its process found that it had failed."""


@dataclass(frozen=True, slots=True)
class Read:
    """One snapshot: which writes counted, and the lists that were there. `began` and `ended` are steps."""

    client: str
    seen: frozenset[str]
    rows: Mapping[str, tuple[tuple[int, ...], bool]]
    began: int
    ended: int


@dataclass(slots=True)
class History:
    """Everything that happened, by instant."""

    writes: dict[str, Write] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)


def find_anomalies(history: History) -> list[str]:
    """What is wrong with a history; nothing if it is one that snapshot isolation allows."""
    found = [*_wrong_answers(history.writes.values()), *_bases(history)]
    last: dict[str, Read] = {}
    for read in history.reads:
        found += _wrong_read(history, read)
        if read.client in last:
            found += _goes_back(history, last[read.client], read)
        last[read.client] = read
    return found


def replay(writes: Iterable[Write]) -> dict[str, tuple[tuple[int, ...], bool]]:
    """The rows after these writes, in completion order."""
    rows: dict[str, tuple[tuple[int, ...], bool]] = {}
    for write in sorted(writes, key=lambda write: write.completed_at or ""):
        for key, alive in write.appends.items():
            rows[key] = ((*rows.get(key, ((), False))[0], write.number), alive)
    return rows


def _wrong_answers(writes: Iterable[Write]) -> list[str]:
    found = []
    for write in writes:
        if write.told is Told.OK and write.completed_at is None:
            found.append(f"lost write: {write.instant} was reported as done and is not there")
        if write.told is Told.FAILED and write.completed_at is not None and not _was_gone(write):
            found.append(f"ghost write: {write.instant} was reported as failed and is there")
    return found


def _was_gone(write: Write) -> bool:
    """Whether a write had been taken back when its process asked what had become of it."""
    return write.unpublished is not None and write.answered is not None and write.unpublished <= write.answered


def _bases(history: History) -> list[str]:
    """Each completed write must append to what was there when it completed: else it undid another's update."""
    found = []
    appended: dict[str, list[Write]] = {}
    gone = {write.number for write in history.writes.values() if write.unpublished is not None}
    completed = [write for write in history.writes.values() if write.completed_at is not None]
    for write in sorted(completed, key=lambda write: write.completed_at or ""):
        for key in write.appends:
            before = appended.setdefault(key, [])
            was = tuple([earlier.number for earlier in before if _outlasts(earlier, write)])
            saw = write.saw.get(key, ())
            if saw != was:
                now_gone = [number for number in saw if number in gone]
                kind = f"dirty base ({now_gone} were taken back)" if now_gone else "lost update"
                found.append(f"{kind}: {write.instant} appended {write.number} to {key}={saw}, which was {was}")
            before.append(write)
    return found


def _outlasts(base: Write, write: Write) -> bool:
    """Whether what a write was based on stayed as long as the write did: the newest are taken back first."""
    if base.unpublished is None:
        return True
    return write.unpublished is not None and base.unpublished >= write.unpublished


def _wrong_read(history: History, read: Read) -> list[str]:
    strangers = sorted(read.seen - history.writes.keys())
    if strangers:
        return [f"dirty read: {read.client} saw {strangers}"]
    dirty = [instant for instant in sorted(read.seen) if history.writes[instant].completed_at is None]
    if dirty:
        return [f"dirty read: {read.client} saw {dirty}, which did not complete"]
    found = []
    # Services change no row; one that is taken back may be executed again, and completes a second time.
    writes = [write for write in history.writes.values() if write.appends]
    cut = max((write.completed_at or "" for write in writes if write.instant in read.seen), default="")
    for write in writes:
        counts = write.completed_at is not None and write.completed_at <= cut
        was_taken_back = write.unpublished is not None and write.unpublished <= read.ended
        if counts and not was_taken_back and write.instant not in read.seen:
            found.append(f"not a prefix: {read.client} saw a write of {cut} and not {write.instant}")
    expected = replay(history.writes[instant] for instant in read.seen)
    return found + [
        f"wrong read: {read.client} saw {key}={read.rows.get(key)}, not {expected.get(key)}"
        for key in sorted({*expected, *read.rows})
        if read.rows.get(key) != expected.get(key)
    ]


def _goes_back(history: History, before: Read, after: Read) -> list[str]:
    lost = sorted(
        instant
        for instant in before.seen - after.seen
        if instant in history.writes
        and (history.writes[instant].unpublished is None or (history.writes[instant].unpublished or 0) > after.ended)
    )
    return [f"back in time: {after.client} no longer saw {lost}"] if lost else []
