"""The lock of Apache Hudi's file-system lock provider: a file, there while the lock is held.

It is as weak as its peer makes it, and meant for local tables that Apache Hudi writes too:

* Nothing tells a dead holder from a slow one. Without an expiry the file of a crashed writer stays until someone
  removes it; with one, a holder that does not renew it may be robbed. We renew, Apache Hudi does not.
* Apache Hudi looks for the file and creates it in two steps, and empties one that appeared in between. So a file that
  we created counts only if it still has our bytes a moment later.
* Any Apache Hudi client removes the file when it closes, whoever holds the lock. So `remaining` looks every time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import datetime, timezone

from lakebed.clock import Clock
from lakebed.errors import LakebedError
from lakebed.storage import Outcome, Storage
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Background, Tokens

LOCK_FILE = ".hoodie/lock"
_SETTLE_S = 0.05
_DELETE_TRIES = 3


class HudiFileLock:
    """The lock by the file at `path` in `storage`, which can be robbed once it is `expire_s` old; 0 for never."""

    __slots__ = (
        "_background",
        "_clock",
        "_expire_s",
        "_mine",
        "_path",
        "_patience",
        "_renewed_ms",
        "_stop",
        "_storage",
        "_tokens",
    )

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        background: Background,
        tokens: Tokens,
        *,
        path: str = LOCK_FILE,
        expire_s: float = 0.0,
        patience: Patience,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._background = background
        self._tokens = tokens
        self._path = path
        self._expire_s = expire_s
        self._patience = patience
        self._mine: bytes | None = None
        self._renewed_ms = 0
        self._stop: Callable[[], None] = lambda: None

    @property
    def can_be_lost(self) -> bool:
        """Yes: others may remove the file."""
        return True

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long."""
        token = self._tokens()
        if not self._patience.wait(lambda: self._attempt(token), self._clock):
            raise self._patience.unavailable(
                f"the lock of {self._storage.url}",
                hint=f"another writer holds it; if none runs, a crashed one left it: remove {self._path}",
            )
        if self._expire_s:
            self._stop = self._background.every(self._expire_s / 10, self._renew)

    def remaining(self) -> float:
        """Seconds until others may take the lock; 0 if the file is not ours, infinite if it is and never expires."""
        if not self._is_ours(self._mine):
            return 0.0
        age_s = (self._clock.now_ms() - self._renewed_ms) / 1000
        return max(0.0, self._expire_s - age_s) if self._expire_s else math.inf

    def release(self) -> None:
        """Gives the lock up: removes the file if it is ours."""
        mine, self._mine = self._mine, None
        self._stop()
        self._remove(mine)

    def _attempt(self, token: str) -> bool:
        if self._mine is not None:
            return False
        began_ms = self._clock.now_ms()
        mine = encode_holder(f"lakebed-{token}", began_ms)
        try:
            if self._storage.create(self._path, mine) is Outcome.REFUSED:
                self._rob(mine)
            if not self._is_ours(mine):
                return False
            self._clock.sleep(_SETTLE_S)
            if self._is_ours(mine):
                self._mine, self._renewed_ms = mine, began_ms
        finally:
            # Whatever interrupts us: a file that nobody removes would lock the table for good.
            if self._mine is not mine:
                self._remove(mine)
        return self._mine is mine

    def _rob(self, mine: bytes) -> None:
        """Puts our bytes in the place of a lock that is too old."""
        if not self._expire_s:
            return
        found = self._storage.find_with_etag(self._path)
        if found is not None and self._age_s() > self._expire_s:
            self._storage.replace(self._path, mine, etag=found[1])

    def _age_s(self) -> float:
        """The age of the lock file, which is what Apache Hudi goes by; negative if it is gone."""
        for listed in self._storage.list(self._path.rpartition("/")[0]):
            if listed.path == self._path:
                return self._clock.now_ms() / 1000 - listed.modified.timestamp()
        return -1.0

    def _renew(self) -> bool:
        mine, began_ms = self._mine, self._clock.now_ms()
        if mine is None:
            return False
        try:
            found = self._storage.find_with_etag(self._path)
            if found is None or found[0] != mine:
                return False
            if self._storage.replace(self._path, mine, etag=found[1]) is Outcome.DONE:
                self._renewed_ms = began_ms
        except LakebedError:
            # No younger than before, then; the next renewal may have more luck.
            pass
        return True

    def _remove(self, mine: bytes | None) -> None:
        for _ in range(_DELETE_TRIES):
            if not self._is_ours(mine) or self._storage.delete(self._path) is Outcome.DONE:
                return

    def _is_ours(self, mine: bytes | None) -> bool:
        return mine is not None and self._storage.find(self._path) == mine


def encode_holder(name: str, now_ms: int) -> bytes:
    """What Apache Hudi shows of a holder: since when, who, and its stack."""
    since = datetime.fromtimestamp(now_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return json.dumps({"lockCreateTime": since, "lockThreadName": name, "lockStacksInfo": []}, indent=2).encode()
