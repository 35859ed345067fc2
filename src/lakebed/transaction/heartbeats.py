"""Heartbeats: a write is alive while its heartbeat file is young, by the clock of the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from lakebed.model.instant import InstantTime
from lakebed.storage import Outcome
from lakebed.storage.confirm import create_file, delete_file, replace_file, swap_file
from lakebed.transaction.ports import Ports

FOLDER = ".hoodie/.heartbeat"
_IN_MINUTES_FROM_S = 120
_CLOCK = ".hoodie/.tickets/.clock"
"""A file written to read the clock of the store: its mtime is compared with those of heartbeats."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts of the protocol. `skew_ms` is the maximum clock skew between machines.

    A removable plan that nobody executes is rolled back after `service_delay_seconds`.
    """

    heartbeat_seconds: float = 60.0
    heartbeat_misses: int = 2
    skew_ms: int = 0
    section_seconds: float = 10.0
    service_delay_seconds: float = 600.0

    @property
    def dead_after(self) -> timedelta:
        """The age at which others consider a heartbeat dead; its owner gives up one interval earlier."""
        return timedelta(seconds=self.heartbeat_seconds * (self.heartbeat_misses + 1), milliseconds=self.skew_ms)


class Heartbeat:
    """The heartbeat of one instant, renewed in the background until it is stopped or lost.

    With a `path` it is the heartbeat of something else that lives as long as its process, such as a reader lease.
    """

    def __init__(
        self, ports: Ports, timing: Timing, instant: InstantTime, owner: str, *, path: str | None = None
    ) -> None:
        self.instant = instant
        self.owner = owner
        self.path = path or heartbeat_path(instant)
        self._ports = ports
        self._timing = timing
        self._beats = 0
        self._beaten_ms = ports.clock.now_ms()
        self._is_lost = False
        self._stop: Callable[[], None] | None = None

    def claim(self) -> bool:
        """Writes the first heartbeat of a new instant; False if another process has drawn the same time.

        A process that lost the lock before it requested its instant may still be about to do so, and a clock that is
        behind the timeline gives the next holder of the lock the same time.
        """
        self._beaten_ms = self._ports.clock.now_ms()
        return create_file(self._ports.storage, self.path, self._content())

    def start(self) -> None:
        """Writes the first heartbeat of an instant that is taken over, and renews it from then on."""
        self._beaten_ms = self._ports.clock.now_ms()
        replace_file(self._ports.storage, self.path, self._content())
        self.go_on()

    def go_on(self) -> None:
        """Starts renewing the heartbeat in the background."""
        self._stop = self._ports.background.every(self._timing.heartbeat_seconds, self.beat)

    def beat(self) -> bool:
        """Renews the heartbeat once; False, and the heartbeat is lost, if its file is missing or has another owner."""
        found = self._ports.storage.find_with_etag(self.path)
        if found is None or not self._is_ours(found[0]):
            self._is_lost = True
            return False
        self._beats += 1
        beaten_ms = self._ports.clock.now_ms()
        if swap_file(self._ports.storage, self.path, self._content(), found[1]):
            self._beaten_ms = beaten_ms
        return True

    def is_certain(self) -> bool:
        """Whether the owner may continue: the file exists and names it, and the last renewal is recent enough."""
        late_ms = self._ports.clock.now_ms() - self._beaten_ms
        if self._is_lost or late_ms > self._timing.heartbeat_seconds * self._timing.heartbeat_misses * 1000:
            return False
        found = self._ports.storage.find(self.path)
        return found is not None and self._is_ours(found)

    def is_taken_over(self) -> bool:
        """Whether another process beats for the instant now."""
        found = self._ports.storage.find(self.path)
        return found is not None and not self._is_ours(found)

    def rest(self) -> None:
        """Stops renewing; the file stays and expires."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def stop(self) -> None:
        """Ends the heartbeat and removes its file, unless someone else took it over."""
        self.rest()
        found = self._ports.storage.find(self.path)
        if found is not None and self._is_ours(found):
            delete_file(self._ports.storage, self.path)

    def _content(self) -> bytes:
        return f"{self.owner} {self._beats} {self.instant}".encode()

    def _is_ours(self, content: bytes) -> bool:
        return content.split(b" ")[0] == self.owner.encode()


def heartbeat_path(instant: InstantTime) -> str:
    """The path of an instant's heartbeat."""
    return f"{FOLDER}/{instant}"


def load_heartbeats(ports: Ports, timing: Timing) -> dict[str, bool]:
    """Whether each instant that has a heartbeat file is alive. Call it under the lock if a decision depends on it."""
    return load_beats(ports, timing, FOLDER)


def load_beats(ports: Ports, timing: Timing, folder: str) -> dict[str, bool]:
    """Whether each of the files in a folder is young enough, by the clock of the store."""
    return {name: age <= timing.dead_after for name, age in load_ages(ports, folder).items()}


def load_ages(ports: Ports, folder: str) -> dict[str, timedelta]:
    """How long ago each of the files in a folder was written, by the clock of the store."""
    if not ports.storage.list(folder):
        return {}
    # The time comes first: if this process pauses in between, others look younger than they are, never older.
    now = storage_time(ports)
    return {listed.path.rpartition("/")[2]: now - listed.modified for listed in ports.storage.list(folder)}


def spell_wait(wait: timedelta) -> str:
    """A waiting time as text, rounded up: in seconds, from two minutes on in minutes."""
    seconds = max(0, ceil(wait.total_seconds()))
    return f"{seconds} s" if seconds < _IN_MINUTES_FROM_S else f"{ceil(seconds / 60)} min"


def storage_time(ports: Ports) -> datetime:
    """The time of the store: that of a file this process just wrote."""
    folder, _, name = _CLOCK.rpartition("/")
    while True:
        if ports.storage.replace(_CLOCK, ports.tokens().encode()) is not Outcome.REFUSED:
            for listed in ports.storage.list(folder):
                if listed.path.endswith(f"/{name}"):
                    return listed.modified
