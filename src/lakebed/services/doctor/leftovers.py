"""Findings about leftovers of dead processes: heartbeats, tickets, markers, cancelled plans, leases, rows, locks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime, timezone

from lakebed.model.config import TableConfig
from lakebed.model.instant import InstantTime
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from lakebed.services.doctor.look import Examination, Leftovers, Locks, Moment
from lakebed.transaction.heartbeats import FOLDER as HEARTBEATS
from lakebed.transaction.leases import FOLDER as LEASES
from lakebed.transaction.locks.file_system import LOCK_FILE as HUDI_LOCK_FILE
from lakebed.transaction.locks.lease import DRIFT_MS
from lakebed.transaction.locks.lease import LOCK_FILE as LEASE_FILE
from lakebed.transaction.markers import marker_folder
from lakebed.transaction.plans import cancel_marker
from lakebed.transaction.times import instant_ms, timeline_zone


def find_leftovers(look: Examination) -> Iterator[Finding]:
    """Findings about leftovers. They block nobody, but hide what is really in flight."""
    known = {i.requested_at for i in (*look.state.timeline.pending(), *look.metadata_timeline.pending())}
    for instant, modified in look.leftovers.heartbeats.items():
        if instant not in known and look.moment.is_dead(modified):
            yield Finding(
                FindingKind.LEFTOVER,
                f"{HEARTBEATS}/{instant}",
                "the heartbeat expired, and no instant with its time is pending",
                "",
                Remedy.ROLL_BACK,
                "remove it, and the markers and tickets with its time",
            )
    ended = Ended(known, look.leftovers, look.moment, look.config)
    for folder, what in ended.markers():
        yield _clear(folder, f"markers of {what}")
    for instant, what in ended.tickets():
        yield _clear(instant, f"a ticket of {what}")
    for path, what in ended.cancellations():
        yield _clear(path, f"the cancellation of {what}")
    for name, modified in look.leftovers.leases.items():
        if look.moment.is_dead(modified):
            yield _clear(f"{LEASES}/{name}", "the lease of a reader that did not renew it")
    for folder, staged in look.leftovers.staged.items():
        if look.moment.is_dead(staged.modified):
            files = f"{staged.files} file{'s' if staged.files != 1 else ''}"
            problem = f"staged rows of a dead save: {files}, {staged.bytes:,} bytes"
            yield _clear(folder, problem)


def _clear(place: str, problem: str) -> Finding:
    return Finding(FindingKind.LEFTOVER, place, problem, "", Remedy.CLEAR, "remove it, under the table lock")


class Ended:
    """Files of instants that are over.

    A write in flight is pending, and has a heartbeat from before its request until after its markers and tickets are
    removed. So an old file whose instant is not pending and has no heartbeat has no owner. Under the lock this is
    proof: no instant begins meanwhile, and a paused process that wakes up finds heartbeat and ticket gone.
    """

    def __init__(self, pending: Collection[str], leftovers: Leftovers, moment: Moment, config: TableConfig) -> None:
        self._known = {*pending, *leftovers.heartbeats}
        self._left = leftovers
        self._moment = moment
        self._zone = timeline_zone(config)

    def markers(self) -> Iterator[tuple[str, str]]:
        """Folders with markers, and their instants as text."""
        for instant, modified in self._left.markers.items():
            if instant not in self._known and self._moment.is_dead(modified):
                yield marker_folder(InstantTime(instant)), f"{instant}, which has ended"

    def tickets(self) -> Iterator[tuple[str, str]]:
        """Instants with tickets, and the same as text."""
        for instant in sorted(self._left.tickets):
            if instant not in self._known and self._moment.is_dead(self._spelled(instant)):
                yield instant, f"{instant}, which has ended"

    def cancellations(self) -> Iterator[tuple[str, str]]:
        """Cancellations of plans that no longer exist, and their instants as text."""
        for instant, modified in self._left.cancelled.items():
            if instant not in self._known and self._moment.is_dead(modified):
                yield cancel_marker(InstantTime(instant)), f"{instant}, a plan that no longer exists"

    def _spelled(self, instant: str) -> datetime:
        """The time in an instant; long ago for index builds, whose numbers count from zero."""
        try:
            ms = instant_ms(InstantTime(instant), self._zone)
        except ValueError:
            ms = 0
        return datetime.fromtimestamp(ms / 1000, timezone.utc)


def find_dead_locks(locks: Locks, moment: Moment, *, expire_minutes: int) -> Iterator[Finding]:
    """Findings about locks that were not released."""
    now_ms = moment.now.timestamp() * 1000
    if locks.lease is not None and now_ms > locks.lease.valid_until_ms + DRIFT_MS:
        until = datetime.fromtimestamp(locks.lease.valid_until_ms / 1000, timezone.utc)
        yield Finding(
            FindingKind.LOCK,
            LEASE_FILE,
            f"{locks.lease.owner} died with the lock; its lease expired on {until:%Y-%m-%d %H:%M:%S} UTC",
            "",
            Remedy.RELEASE,
            "take the lock over, as the next writer would, and release it",
        )
    if locks.problem is not None:
        blocks = "every writer whose lock provider is StorageBasedLockProvider"
        repair = "remove the file if no writer runs"
        yield Finding(FindingKind.LOCK, LEASE_FILE, locks.problem, blocks, Remedy.BY_HAND, repair)
    if locks.file_since is not None and moment.is_dead(locks.file_since):
        age_minutes = (moment.now - locks.file_since).total_seconds() / 60
        expired = bool(expire_minutes) and age_minutes > expire_minutes
        yield Finding(
            FindingKind.LOCK,
            HUDI_LOCK_FILE,
            f"the lock file exists since {locks.file_since:%Y-%m-%d %H:%M:%S} UTC",
            "every writer whose lock provider is FileSystemBasedLockProvider",
            Remedy.RELEASE if expired else Remedy.BY_HAND,
            "take the lock over, as the next writer would, and release it"
            if expired
            else "remove the file if no writer runs: a dead holder cannot be told from a slow one",
        )
