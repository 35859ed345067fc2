"""Reads under a lease, which protects a snapshot from cleaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lakebed.errors import CorruptTableError, InvalidInputError, LakebedError, SnapshotExpiredError
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.read.scan import ScanPlan, plan_scan
from lakebed.read.snapshot import Completion, completion_as_of, take_snapshot
from lakebed.table import TableHandle, TableState
from lakebed.transaction.heartbeats import Heartbeat, Timing
from lakebed.transaction.leases import start_lease
from lakebed.transaction.ports import Ports

_TRIES = 5


def take_lease(handle: TableHandle, ports: Ports, timing: Timing, as_of: object = None) -> Heartbeat:
    """Takes a lease on the snapshot at `as_of`, or on the newest; its `instant` is the snapshot's completion time.

    Raises SnapshotExpiredError if a clean was faster. Without `as_of` it first tries again with a newer snapshot.
    """
    for _ in range(_TRIES):
        state = handle.state()
        point = _point(state, as_of)
        slices = state.slices(take_snapshot(state, Completion(point)))
        lease = start_lease(ports, timing, point)
        try:
            ports.at("lease.V")
            rival = _find_rival(handle, state, {path for file_slice in slices for path in file_slice.paths})
        except BaseException:
            lease.stop()
            raise
        if rival is None:
            return lease
        lease.stop()
        if as_of is not None:
            break
    raise SnapshotExpiredError(
        f"{handle.storage.url}: files of the snapshot at {point} are being deleted by {rival}",
        hint="read a later snapshot, or retain more commits: hoodie.clean.commits.retained",
    )


def _point(state: TableState, as_of: object) -> InstantTime:
    """Completion time of the newest write of the snapshot; writes before it cannot be rolled back before it is."""
    stand = None if as_of is None else completion_as_of(state, as_of)
    done = [i.completed_at for i in state.timeline.commits() if i.completed_at is not None]
    points = [point for point in done if stand is None or point <= stand]
    if not points:
        raise InvalidInputError(f"table {state.config.name} has no commits yet", hint="write to it first")
    return max(points)


def _find_rival(handle: TableHandle, before: TableState, paths: set[str]) -> str | None:
    """The clean that may have deleted files of a snapshot since; None if there is none.

    A clean that is requested but not yet in flight checks leases before it deletes anything.
    """
    after, seen = handle.state(), {*before.timeline.completed()}
    gone = seen - {*after.timeline.completed()}
    if gone:
        # Cleans may have been removed with it.
        return f"the process that removed {min(i.requested_at for i in gone)} from the timeline"
    for clean in after.timeline:
        is_begun = clean.state is State.INFLIGHT or (clean.is_completed and clean not in seen)
        if clean.action is Action.CLEAN and is_begun and not paths.isdisjoint(_cleaned(after, clean)):
            return f"the clean {clean.requested_at}"
    return None


def _cleaned(state: TableState, clean: Instant) -> frozenset[str]:
    """Files that a clean has deleted or, while it is pending, may delete."""
    if clean.is_completed:
        files: Mapping[str, Sequence[str]] = state.documents.clean(clean).deleted_files
    else:
        files = state.documents.planned_files(clean.requested_at)
    bare = ((partition, name.rpartition("/")[2]) for partition, names in files.items() for name in names)
    return frozenset(f"{partition}/{name}" if partition else name for partition, name in bare)


def plan_leased(
    handle: TableHandle, lease: Heartbeat, columns: Sequence[str] | None, where: str | None, mode: str
) -> ScanPlan:
    """Plans a scan of the leased snapshot."""
    state, point = handle.state(), Completion(lease.instant)
    _check_not_undone(state, lease)
    try:
        take_snapshot(state, point)
    except InvalidInputError as error:
        raise _ran_out(lease, error) from error
    return plan_scan(state, columns=columns, where=where, as_of=point, mode=mode)


@contextmanager
def expiry_told(handle: TableHandle, lease: Heartbeat | None = None) -> Iterator[None]:
    """Turns the error for a missing file into SnapshotExpiredError, with a hint, if the file was cleaned."""
    try:
        yield
    except CorruptTableError as error:
        raise _explained(handle, lease, error) from error


def _explained(handle: TableHandle, lease: Heartbeat | None, error: CorruptTableError) -> LakebedError:
    try:
        if handle.storage.size(error.path) is not None:
            return error
        if lease is not None and not lease.is_certain():
            return _ran_out(lease, error)
        handle.forget()
        state = handle.state()
        if lease is not None:
            _check_not_undone(state, lease)
        cleans = [i for i in state.timeline if i.action is Action.CLEAN and error.path in _cleaned(state, i)]
    except SnapshotExpiredError as expired:
        return expired
    except LakebedError:
        return error  # The first error tells more.
    return _taken(cleans[-1], error.path) if cleans else error


def _taken(clean: Instant, path: str) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        f"the clean {clean.requested_at} deleted {path} while it was being read",
        hint="read again; for long reads take a lease: with table.lease() as reader: reader.to_arrow()",
    )


def _check_not_undone(state: TableState, lease: Heartbeat) -> None:
    """Raises if the newest write of the snapshot was rolled back, which a lease does not prevent."""
    if all(i.completed_at != lease.instant for i in state.timeline.commits()):
        raise SnapshotExpiredError(
            f"the newest write of this snapshot, completed at {lease.instant}, was rolled back",
            hint="take a new lease and read again",
        )


def _ran_out(lease: Heartbeat, error: LakebedError) -> SnapshotExpiredError:
    return SnapshotExpiredError(
        f"the lease on the snapshot at {lease.instant} expired, and some of its files are gone: {error.what}",
        hint="take a new lease and read again; a process that is paused for minutes cannot renew its lease",
    )
