"""What a run leaves behind: the commits of the surviving table, and whatever should not be there any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import lakebed
from lakebed.format.timeline.metadata import decode_rollback
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.table import TableState
from lakebed.timeline import load_timeline
from lakebed.transaction.section import METADATA

from .history import Commit, History
from .register import Place, Row, open_for_reading, open_state, read_rows

_NO_TICKETS = (".head.json", ".clock")
_TRACES = (("heartbeat", ".heartbeat"), ("markers", ".temp"), ("ticket", ".tickets"), ("cancellation", ".cancelled"))


def load_commits(place: Place) -> tuple[Commit, ...]:
    """Completed writes in completion order, each with the rows that a reader right after it finds written by it."""
    reader = open_for_reading(place)
    return tuple(
        Commit(
            commit.requested_at,
            commit.completed_at or "",
            tuple(row for row in read_rows(reader, commit.requested_at) if row.instant == commit.requested_at),
        )
        for commit in reader.timeline.commits()
    )


def derive_commits(place: Place, history: History) -> tuple[Commit, ...]:
    """The same, where cleaning and archiving have taken the past away: lists that only grow tell it themselves."""
    state = open_state(place)
    rows: dict[int, list[Row]] = {}
    for row in read_rows(open_for_reading(place)):
        for length, number in enumerate(row.numbers, start=1):
            instant = history.writes[number].instant if number in history.writes else None
            rows.setdefault(number, []).append(Row(row.key, row.numbers[:length], instant or "?"))
    found = [
        Commit(written[0].instant, state.latest.completion_of(InstantTime(written[0].instant)) or "?", tuple(written))
        for written in rows.values()
    ]
    return tuple(sorted(found, key=lambda commit: commit.completed_at))


def find_unread(place: Place, commits: Iterable[Commit]) -> list[str]:
    """Completed writes on the timeline that show in no list."""
    state = open_state(place)
    read = {commit.instant for commit in commits}
    writes = [i for i in state.timeline.commits() if state.documents.commit(i).operation == "UPSERT"]
    return [f"lost commit: {i.requested_at} shows in no list" for i in writes if i.requested_at not in read]


def find_ills(table: lakebed.Table) -> list[str]:
    """What the doctor finds that holds something up, and what is left of the rest after a repair.

    Indexes are compared with all rows. A writer that was paused may have left files after it was rolled back.
    """
    blocking = [finding for finding in table.doctor() if finding.blocks]
    table.doctor(repair=True)
    return [f"doctor: {finding}" for finding in (*blocking, *table.doctor())]


def find_leftovers(place: Place) -> list[str]:
    """What is wrong with a table on which nobody is at work, and which a write has just put in order."""
    return [
        *_pending(place),
        *_traces(place),
        *_wrong_files(place),
        *_disagreements(place),
    ]


def _pending(place: Place) -> Iterator[str]:
    state = open_state(place)
    for root in ("", METADATA):
        timeline = load_timeline(state.storage, state.config, root)
        for instant in timeline.pending():
            yield f"left pending: {root}{instant.requested_at} {instant.action} {instant.state}"
        requested = [instant.requested_at for instant in timeline.commits()]
        for twice in sorted({time for time in requested if requested.count(time) > 1}):
            yield f"completed twice: {root}{twice}"


def _traces(place: Place) -> Iterator[str]:
    """Heartbeats, markers and tickets of writes that are over."""
    state = open_state(place)
    rolled_back = _rolled_back(state)
    for kind, folder in _TRACES:
        for listed in state.storage.list(f".hoodie/{folder}", recursive=True):
            parts = listed.path.split("/")
            of_zombie = kind == "markers" and not rolled_back.isdisjoint(parts)
            if parts[-1] not in _NO_TICKETS and not of_zombie:
                yield f"left {kind}: {listed.path}"


def _wrong_files(place: Place) -> Iterator[str]:
    """Data files of writes that did not take place, and differences between the metadata table and the store."""
    listed, stored = (open_state(place, use_metadata=use) for use in (True, False))
    by_metadata = {(partition, file.name) for partition, files in listed.files.items() for file in files}
    by_store = {(partition, file.name): file for partition, files in stored.files.items() for file in files}
    strays = {where: file for where, file in by_store.items() if stored.latest.completion_of(file.instant) is None}
    rolled_back = _rolled_back(stored)
    for (partition, name), file in sorted(strays.items()):
        if file.instant not in rolled_back:
            yield f"left file: {partition}/{name}, of a write that did not take place and was not rolled back"
    for partition, name in sorted(by_metadata - by_store.keys()):
        yield f"missing file: {partition}/{name} is in the metadata table and not in the store"
    late = {where for where, file in by_store.items() if file.instant in rolled_back}  # Of an attempt at a plan.
    for partition, name in sorted(by_store.keys() - by_metadata - strays.keys() - late):
        yield f"unlisted file: {partition}/{name} is in the store and not in the metadata table"


def count_late_files(place: Place) -> int:
    """Data files that writers made after they had been rolled back: no anomaly, as no reader sees them, but a leak."""
    state = open_state(place, use_metadata=False)
    rolled_back = _rolled_back(state)
    named = {file.name for files in open_state(place).files.values() for file in files}
    files = (file for files in state.files.values() for file in files)
    return sum(file.instant in rolled_back and file.name not in named for file in files)


def _rolled_back(state: TableState) -> frozenset[str]:
    """Writes that were rolled back. One that was paused may have left files after that: readers never see them."""
    undone: set[str] = set()
    for instant in state.timeline.completed():
        if instant.action is Action.ROLLBACK:
            path = state.documents.path(instant)
            undone.update(decode_rollback(state.storage.get(path), path=path).commits)
    return frozenset(undone)


def _disagreements(place: Place) -> Iterator[str]:
    """Rows by the metadata table's listing against rows by the listing of the store."""
    with_metadata, without = (read_rows(open_for_reading(place, use_metadata=use)) for use in (True, False))
    if with_metadata != without:
        yield f"metadata table: {sorted({*with_metadata} ^ {*without}, key=lambda row: row.key)} are not in both"
