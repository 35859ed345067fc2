"""A lock by lease: one object that names its owner and the end of the lease, replaced by compare-and-swap.

File, content and rules are those of Apache Hudi's storage-based lock provider, so the two exclude each other:

    absent, expired or run out ──take: create or swap──► held ──renew: swap──► held ──release: swap──► expired

Others consider a lease expired only when their clock is past its end by more than the clock drift; its holder relies on
it only until the drift before its end. Renewals come at a tenth of the lease. A holder that is paused for longer than
the lease may find the lock taken over, and `remaining` says so; tickets fence the requests that it had sent before.

Every write with an unknown outcome is settled by reading the file back. A file that names us although our write was
refused is a ghost: an earlier write of ours, presumed lost, that succeeded after all. It is released, and does not
count as acquired.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from lakebed.clock import Clock
from lakebed.errors import LakebedError, StorageUnavailableError
from lakebed.format.guard import decode_json_object, decoding
from lakebed.storage import Outcome, Storage
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Background, Tokens

LOCK_FILE = ".hoodie/.locks/table_lock.json"
_LONG = 2**63


@dataclass(frozen=True, slots=True)
class Lease:
    """Who has the lock, and until when by the owner's clock. A lock that was given up is `expired`."""

    owner: str
    valid_until_ms: int
    expired: bool = False


def encode_lease(lease: Lease) -> bytes:
    """The lock file's bytes, as Apache Hudi writes them."""
    fields = {"expired": lease.expired, "validUntil": lease.valid_until_ms, "owner": lease.owner}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_lease(data: bytes, *, path: str = LOCK_FILE) -> Lease:
    """Inverse of `encode_lease`; like Apache Hudi, it ignores other fields and refuses a file without these three."""
    fields = decode_json_object(data, path=path, what="the lock")
    with decoding(path, "the lock"):
        expired, until, owner = fields["expired"], fields["validUntil"], fields["owner"]
        if not (type(expired) is bool and type(until) is int and type(owner) is str and -_LONG <= until < _LONG):
            raise TypeError(f"expired={expired!r}, validUntil={until!r}, owner={owner!r}")
    return Lease(owner, until, expired)


DRIFT_MS = 500
"""Maximum clock drift between two machines, in ms; Apache Hudi's value."""
_RELEASE_TRIES = 4
_RELEASE_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class _Found:
    lease: Lease
    etag: str


@dataclass(slots=True)
class _Tenure:
    """One tenure of the lock, from acquire to release. Its owner name is unique to it."""

    owner: str
    until_ms: int
    """The end of the lease that is confirmed to be in the file."""
    is_over: bool = False
    """Lost, or being given up."""
    stop: Callable[[], None] = lambda: None


class StorageLease:
    """The lock of a table by a lease in its own storage.

    Threads may share it: while one has it, acquiring by another waits.
    """

    __slots__ = (
        "_background",
        "_clock",
        "_lease_ms",
        "_patience",
        "_renew_s",
        "_storage",
        "_strays",
        "_tenure",
        "_tokens",
    )

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        background: Background,
        tokens: Tokens,
        *,
        lease_s: float = 300.0,
        renew_s: float | None = None,
        patience: Patience,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._background = background
        self._tokens = tokens
        self._lease_ms = round(lease_s * 1000)
        self._renew_s = lease_s / 10 if renew_s is None else renew_s
        self._patience = patience
        self._tenure: _Tenure | None = None
        self._strays: set[str] = set()
        """Owner names of past or abandoned tenures; a write in their name may still succeed."""

    @property
    def can_be_lost(self) -> bool:
        """True: the lease of a paused holder expires."""
        return True

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long."""
        owner, failures, acquired = self._tokens(), list[LakebedError](), False
        try:
            acquired = self._patience.wait(lambda: self._attempt(owner, failures), self._clock)
        finally:
            if not acquired:
                self._abandon(owner)
        if acquired:
            return
        raise self._patience.unavailable(
            f"the lock of {self._storage.url}",
            hint=f"another writer holds it, see {LOCK_FILE}: run the write again",
        ) from (failures[-1] if failures else None)

    def remaining(self) -> float:
        """Seconds of the lease that are certain to be left; 0 if it is not held."""
        tenure = self._tenure
        if tenure is None or tenure.is_over:
            return 0.0
        return max(0, tenure.until_ms - DRIFT_MS - self._clock.now_ms()) / 1000

    def release(self) -> None:
        """Gives the lock up. If the store does not answer, the lease expires by itself."""
        tenure = self._tenure
        if tenure is None:
            return
        tenure.is_over = True
        tenure.stop()
        if not self._give_up(tenure.owner):
            self._strays.add(tenure.owner)
        self._tenure = None

    def _abandon(self, owner: str) -> None:
        """Releases whatever a failed or interrupted acquire may hold, and stops its renewals."""
        self._strays.add(owner)
        if self._tenure is not None and self._tenure.owner == owner:
            self.release()

    def _attempt(self, owner: str, failures: list[LakebedError]) -> bool:
        if self._tenure is not None:
            return False
        try:
            taken = self._take(owner)
        except StorageUnavailableError as error:
            failures.append(error)
            return False
        if taken is None:
            return False
        tenure = _Tenure(owner, taken.valid_until_ms)
        self._tenure = tenure
        tenure.stop = self._background.every(self._renew_s, lambda: self._renew(tenure))
        if self.remaining() > 0:
            return True
        # The store took longer than the lease to answer.
        self.release()
        return False

    def _take(self, owner: str) -> Lease | None:
        found = self._read()
        if found is not None and self._is_valid(found.lease):
            if found.lease.owner == owner or found.lease.owner in self._strays:
                self._expire(found)
            return None
        mine = self._new_lease(owner)
        outcome = self._swap(found, mine)
        if outcome is Outcome.DONE:
            return mine
        found = self._read()
        if found is None or found.lease != mine:
            return None
        if outcome is Outcome.UNKNOWN:
            return mine
        self._expire(found)
        return None

    def _renew(self, tenure: _Tenure) -> bool:
        """One renewal; False when there is nothing to renew any more.

        A lease that ran out is renewed too if the file still names us: then nobody had the lock in between.
        """
        try:
            found = self._read()
            if found is None or found.lease.owner != tenure.owner or found.lease.expired:
                tenure.is_over = True
                return False
            longer = self._new_lease(tenure.owner)
            if self._swap(found, longer) is Outcome.DONE:
                tenure.until_ms = longer.valid_until_ms
        except LakebedError:
            # Not longer than before, then; the next renewal may have more luck.
            pass
        return not tenure.is_over

    def _give_up(self, owner: str) -> bool:
        """Whether it is certain that the file no longer names `owner` as holder. A renewal may be running meanwhile."""
        for tried in range(_RELEASE_TRIES):
            try:
                found = self._read()
                if found is None or found.lease.owner != owner or found.lease.expired:
                    return True
                if self._expire(found) is Outcome.DONE:
                    return True
            except LakebedError:
                pass
            self._clock.sleep(_RELEASE_PAUSE_S * 2**tried)
        return False

    def _is_valid(self, lease: Lease) -> bool:
        return not lease.expired and self._clock.now_ms() <= lease.valid_until_ms + DRIFT_MS

    def _new_lease(self, owner: str) -> Lease:
        # From before the write is sent: however long that takes, others see the lease end when we do.
        return Lease(owner, self._clock.now_ms() + self._lease_ms)

    def _read(self) -> _Found | None:
        found = self._storage.find_with_etag(LOCK_FILE)
        return None if found is None else _Found(decode_lease(found[0]), found[1])

    def _swap(self, found: _Found | None, lease: Lease) -> Outcome:
        data = encode_lease(lease)
        if found is None:
            return self._storage.create(LOCK_FILE, data)
        return self._storage.replace(LOCK_FILE, data, etag=found.etag)

    def _expire(self, found: _Found) -> Outcome:
        return self._swap(found, replace(found.lease, expired=True))
