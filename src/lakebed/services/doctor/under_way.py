"""Writes and services in flight on a table: information, not problems. Ages are measured by the clock of the store.

Reading that clock means writing a small file beside the tickets, as every writer does, so it is read only if something
is in flight. If nothing can be written, the clock of this machine is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from lakebed.errors import LakebedError
from lakebed.format.file_names import encode_instant_name
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.services.doctor.look import by_name
from lakebed.storage import Storage
from lakebed.timeline import Timeline
from lakebed.timeline.timeline import list_instants
from lakebed.transaction.heartbeats import FOLDER as HEARTBEATS
from lakebed.transaction.heartbeats import Timing, storage_time
from lakebed.transaction.markers import marker_folder
from lakebed.transaction.plans import SERVICES
from lakebed.transaction.ports import Ports
from lakebed.write.handover import list_staged

SAVE = "save"
"""The action of a save from Spark whose tasks stage rows before the write has an instant."""
_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A write or table service in flight, and its last sign of life.

    `place` is its instant, or the folder in which a save stages rows. `owner` is the process in its heartbeat, if
    known. `silent_s` is the number of seconds since its last sign of life; `dead_in_s` the seconds until others declare
    it dead, None for a plan that waits for execution. `staged_bytes` is the size of its staged rows.
    """

    place: str
    action: str
    state: str
    owner: str | None
    silent_s: int
    dead_in_s: int | None
    staged_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Sight:
    storage: Storage
    config: TableConfig
    timing: Timing
    now: datetime

    def seconds_since(self, modified: datetime) -> int:
        return max(0, int((self.now - modified).total_seconds()))

    def seconds_left(self, modified: datetime, seconds: float) -> int:
        return max(0, round(seconds - (self.now - modified).total_seconds()))


def find_under_way(ports: Ports, timing: Timing, config: TableConfig) -> tuple[UnderWay, ...]:
    """Pending instants that are not dead, by time, then saves that have no instant yet."""
    storage = ports.storage
    pending = Timeline.of(list_instants(storage, config)).pending()
    if not pending and not list_staged(storage):
        return ()
    sight = _Sight(storage, config, timing, _now(ports))
    return (*_instants(sight, pending), *_saves(sight))


def _now(ports: Ports) -> datetime:
    try:
        return storage_time(ports)
    except (LakebedError, OSError):
        return datetime.fromtimestamp(ports.clock.now_ms() / 1000, timezone.utc)


def _instants(sight: _Sight, pending: tuple[Instant, ...]) -> Iterator[UnderWay]:
    beats = by_name(sight.storage.list(HEARTBEATS))
    written = by_name(sight.storage.list(sight.config.timeline_path))
    for instant in pending:
        file = encode_instant_name(instant, layout=sight.config.timeline_layout)
        if instant.requested_at in beats:
            yield from _beating(sight, instant, beats[instant.requested_at])
        elif instant.action not in (*_WRITES, Action.ROLLBACK, Action.RESTORE) and file in written:
            yield from _without_heartbeat(sight, instant, written[file])


def _beating(sight: _Sight, instant: Instant, beaten: datetime) -> Iterator[UnderWay]:
    left = sight.seconds_left(beaten, sight.timing.dead_after.total_seconds())
    if left:
        yield UnderWay(
            instant.requested_at,
            str(instant.action),
            str(instant.state),
            _owner(sight.storage, instant),
            sight.seconds_since(beaten),
            left,
            _staged_bytes(sight.storage, instant),
        )


def _without_heartbeat(sight: _Sight, instant: Instant, written: datetime) -> Iterator[UnderWay]:
    """A waiting plan, one that another engine may be executing, or a savepoint or index in the making."""
    left = sight.seconds_left(written, sight.timing.service_delay_seconds)
    if left:
        waits = instant.action in SERVICES and instant.state is State.REQUESTED
        since = sight.seconds_since(written)
        yield UnderWay(
            instant.requested_at, str(instant.action), str(instant.state), None, since, None if waits else left
        )


def _owner(storage: Storage, instant: Instant) -> str | None:
    content = storage.find(f"{HEARTBEATS}/{instant.requested_at}") or b""
    return content.decode(errors="replace").split(" ")[0] or None


def _staged_bytes(storage: Storage, instant: Instant) -> int:
    files = storage.list(marker_folder(instant.requested_at), recursive=True)
    return sum(listed.size for listed in files if listed.path.endswith(".arrow"))


def _saves(sight: _Sight) -> Iterator[UnderWay]:
    for folder, staged in list_staged(sight.storage).items():
        left = sight.seconds_left(staged.modified, sight.timing.dead_after.total_seconds())
        if left:
            since = sight.seconds_since(staged.modified)
            yield UnderWay(folder, SAVE, "staging", None, since, left, staged.bytes)
