"""A lock in ZooKeeper, as Apache Hudi takes it: Curator's mutex at a path that both are told.

Each contender appends an ephemeral node to the queue under the lock's path; the first in the queue has the lock.
Curator orders the queue by what follows the last `lock-` in a name, and a name without it by all of its letters, so
only nodes named like its own exclude it: `_c_<text of the contender>-lock-<number given by ZooKeeper>`.

A connection to ZooKeeper exists only while the lock is waited for or held. Closing it removes the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakebed.clock import Clock
from lakebed.errors import StorageUnavailableError
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Tokens

_MARK = "lock-"
_PAUSE_S = 0.1


class Session(Protocol):
    """A session with ZooKeeper. What it cannot do raises StorageUnavailableError, and may yet have taken place."""

    @property
    def timeout_s(self) -> float:
        """How long the servers keep the session's nodes after they last heard from it."""
        ...

    def children(self, path: str) -> Sequence[str]:
        """The names of the nodes under a path; none if there is no such path."""
        ...

    def append(self, path: str, prefix: str) -> None:
        """Creates an ephemeral node of this session, named by the prefix and the path's next number."""
        ...

    def owns(self, path: str) -> bool:
        """Whether the node is there and belongs to this session."""
        ...

    def close(self) -> None:
        """Ends the session, and with it its nodes; at the latest after the timeout. Never raises."""
        ...


@dataclass(slots=True)
class _Place:
    """A contender's place in the queue: its session, how its nodes begin, and the one that came to be first."""

    session: Session
    prefix: str
    node: str = ""


class ZooKeeperLock:
    """The first place in the queue under `path`. It is lost with the session, when ZooKeeper is out of reach."""

    __slots__ = ("_clock", "_connect", "_path", "_patience", "_place", "_tokens")

    def __init__(
        self, path: str, connect: Callable[[], Session], clock: Clock, tokens: Tokens, patience: Patience
    ) -> None:
        self._path = path
        self._connect = connect
        self._clock = clock
        self._tokens = tokens
        self._patience = Patience(patience.wait_s, min(patience.pause_s, _PAUSE_S))
        self._place: _Place | None = None

    @property
    def can_be_lost(self) -> bool:
        """Yes: the session of a holder that is paused ends."""
        return True

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long."""
        place, acquired = _Place(self._connect(), f"_c_{self._tokens()}-{_MARK}"), False
        try:
            acquired = self._patience.wait(lambda: self._is_first(place), self._clock)
        finally:
            if not acquired:
                place.session.close()
        if not acquired:
            raise self._patience.unavailable(
                f"the lock {self._path} in ZooKeeper", hint="another writer holds it: run the write again"
            )
        self._place = place

    def remaining(self) -> float:
        """Seconds for which it is surely held, after asking ZooKeeper; 0 if it is not or if there is no answer.

        The servers tell each other of a client's signs of life with some delay: a third of the timeout is left to that.
        """
        place = self._place
        if place is None:
            return 0.0
        asked_ms = self._clock.now_ms()
        try:
            owned = place.session.owns(f"{self._path}/{place.node}")
        except StorageUnavailableError:
            return 0.0
        left_s = place.session.timeout_s * 2 / 3 - (self._clock.now_ms() - asked_ms) / 1000
        return max(0.0, left_s) if owned else 0.0

    def release(self) -> None:
        """Gives the lock up, with the session."""
        place, self._place = self._place, None
        if place is not None:
            place.session.close()

    def _is_first(self, place: _Place) -> bool:
        # After a lost reply, or a lost session, the queue itself says whether we are in it.
        try:
            queue = place.session.children(self._path)
            if not any(name.startswith(place.prefix) for name in queue):
                place.session.append(self._path, place.prefix)
                queue = place.session.children(self._path)
        except StorageUnavailableError:
            return False
        place.node = min(queue, key=queue_order, default="")
        return place.node.startswith(place.prefix)


def queue_order(name: str) -> str:
    """What Curator orders the queue by."""
    return name.rpartition(_MARK)[2]
