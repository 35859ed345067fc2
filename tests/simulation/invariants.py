"""What must hold after every effect, whoever had it; the numbers are those of the protocol."""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.timeline import Timeline
from lakebed.timeline.config import BACKUP, PROPERTIES, _decode_config
from lakebed.transaction.section import METADATA

from .checker import History
from .codecs import Codec, decode_instant
from .scheduler import Process
from .table import data_file
from .world import Hold, Witness, World

TIMELINE = ".hoodie/timeline/"
METADATA_TIMELINE = f"{METADATA}{TIMELINE}"
HEARTBEATS = ".hoodie/.heartbeat/"
MARKERS = ".hoodie/.temp/"


class ViolationError(AssertionError):
    """An invariant that does not hold."""


def require(holds: bool, number: str, what: str) -> None:
    """Raises ViolationError unless it holds."""
    if not holds:
        raise ViolationError(f"{number}: {what}")


class Invariants(Witness):
    """Watches every effect of one schedule."""

    def __init__(self, world: World, history: History, *, has_metadata: bool, beat_ms: int, codec: Codec):
        self.world = world
        self.history = history
        self.has_metadata = has_metadata
        self.codec = codec
        self.to_undo: set[str] = set()
        self.beat_ms = beat_ms
        self.effects = 0
        self.plans: dict[str, str] = {}
        self.planned: set[str] = set()
        self.zombie_files: set[str] = set()
        self.completions: dict[str, str] = {}
        self.metadata_completions: dict[str, str] = {}
        self._beating: dict[str, tuple[bytes, Process, int]] = {}
        self._ever: set[str] = set()
        self._marked: set[str] = set()
        self._compactions: set[str] = set()
        self._cleaned: set[str] = set()
        self._times: set[tuple[State, str]] = set()
        self._newest = ""
        for path in list(world.store.folders.get(TIMELINE.rstrip("/"), {})):
            self._load(path, self.completions)
        for path in list(world.store.folders.get(METADATA_TIMELINE.rstrip("/"), {})):
            self._load(path, self.metadata_completions)

    def wrote(self, process: Process, path: str, data: bytes, *, published: bool) -> None:
        """Dispatches by what kind of file it is."""
        self.effects += 1
        if path.startswith(TIMELINE):
            self._instant_written(process, _decode(path), data, published)
        elif path.startswith(METADATA_TIMELINE):
            self._metadata_instant_written(process, _decode(path), data)
        elif path.startswith(HEARTBEATS):
            self._beaten(process, path.removeprefix(HEARTBEATS), data.split(b" ")[0])
        elif path.startswith(MARKERS):
            self._marked.update(line.rpartition(".marker.")[0] for line in data.decode().splitlines())
            self._note_zombie(path, path.split("/")[2])
        elif not path.startswith(".hoodie/"):
            self._data_written(path)

    def removed(self, process: Process, path: str) -> None:
        """Dispatches by what kind of file it was."""
        self.effects += 1
        if path.startswith(TIMELINE):
            self._instant_removed(_decode(path))
        elif path.startswith(METADATA_TIMELINE):
            self._metadata_instant_removed(_decode(path))
        elif path.startswith(HEARTBEATS):
            self._heartbeat_removed(process, path.removeprefix(HEARTBEATS))
        elif not path.startswith(".hoodie/"):
            self._data_removed(path)
        elif path.startswith(METADATA):
            self._entries_removed(path)

    def crashed(self, process: Process) -> None:
        """Counts the crash points of the protocol, by what the process leaves behind."""
        if self.world.store.get(PROPERTIES) is None and process.name.startswith("configurator"):
            self.world.reached["C7"] += 1
        for instant, (_, owner, _) in self._beating.items():
            if owner is process:
                self.world.reached[self._crash_point(process, instant)] += 1

    def _crash_point(self, process: Process, instant: str) -> str:
        files = self.world.store.folders
        states = {name.rpartition(".")[2] for name in files[TIMELINE.rstrip("/")] if name.startswith(instant)}
        in_metadata = [name for name in files.get(METADATA_TIMELINE.rstrip("/"), ()) if name.startswith(instant)]
        if instant in self.plans:
            return self._rollback_crash_point(process, instant)
        if instant in self.completions:
            has_beat = instant in files.get(HEARTBEATS.rstrip("/"), ())
            return ("C12" if self._hold_of(process) else "C6") if has_beat else "after the end"
        if "inflight" in states:
            if instant in self.metadata_completions:
                return "C10"
            if in_metadata:
                return "C9" if process.label == "commit.P6" else "C8"
            return "C4" if process.label == "files written" else "C3"
        return "C2" if "requested" in states else "C1"

    def _rollback_crash_point(self, process: Process, rollback: str) -> str:
        target = self.plans[rollback]
        names = [name for name in self.world.store.folders[TIMELINE.rstrip("/")] if name.startswith(target)]
        if any(name.startswith(f"{rollback}_") for name in self.world.store.folders[TIMELINE.rstrip("/")]):
            return "after the end"
        if not names:
            return "C29"
        has_inflight = any(name.endswith("inflight") for name in names)
        return "C27" if process.label == "rollback.R2" or has_inflight else "C28"

    def timeline(self, root: str = "") -> Timeline:
        """The timeline as it is now."""
        folder = f"{root}{TIMELINE}".rstrip("/")
        found = (decode_instant(name) for name in self.world.store.folders.get(folder, {}))
        return Timeline.of(tuple(instant for instant in found if instant is not None))

    def _load(self, name: str, into: dict[str, str]) -> None:
        instant = decode_instant(name)
        if instant is not None and instant.completed_at is not None:
            into[instant.requested_at] = instant.completed_at

    def _instant_written(self, process: Process, instant: Instant, data: bytes, published: bool) -> None:
        t = instant.requested_at
        if instant.state is State.REQUESTED:
            self._issued(process, t, State.REQUESTED)
            self._ever.add(f"{TIMELINE}{t}")
            is_plan = instant.action in (Action.ROLLBACK, Action.COMPACTION, Action.CLUSTERING)
            require(is_plan or f"{HEARTBEATS}{t}" in self._ever, "I4", f"{t} before its beat")
            if instant.action is Action.ROLLBACK:
                self._planned(process, t, self.codec.decode_rollback_plan(data, path="").target.requested_at)
        elif instant.state is State.INFLIGHT:
            require(f"{TIMELINE}{t}" in self._ever, "I4", f"{t} was not requested")
        else:
            self._completed(process, instant, data, published)

    def _completed(self, process: Process, instant: Instant, data: bytes, published: bool) -> None:
        t, c = instant.requested_at, instant.completed_at or ""
        self._issued(process, c, State.COMPLETED)
        require(published or process.is_foreign, "I25", f"{t} completed without a ticket")
        require(c > self._newest, "I7", f"{t} completed at {c} behind {self._newest}")
        require(t < c, "I1", f"{t} completed at {c}")
        require(t not in self.completions, "I3", f"{t} completed twice")
        self._newest = c
        if instant.action is Action.ROLLBACK:
            self._rolled_back(self.plans[t])
        if not instant.action.changes_data:
            return
        require(t not in self.planned, "I36", f"{t} completed though it is being rolled back")
        if self.has_metadata:
            m = self.metadata_completions.get(t)
            require(m is not None and m < c, "I12", f"{t} completed before the metadata table knew it")
        for stat in self.codec.decode_commit(data, path="").stats:
            require(self.world.store.get(stat.path) is not None, "I20", f"{stat.path} of {t} is not there")
        self.completions[t] = c
        write = self.history.writes.get(t)
        if write is not None:
            write.completed_at, write.published = c, self.world.scheduler.steps

    def _rolled_back(self, target: str) -> None:
        """Of a plan that stays only an attempt was undone: it may be executed again."""
        if any(name.endswith(".requested") for name in self._names_of(target)):
            self.planned.discard(target)

    def _names_of(self, instant: str) -> list[str]:
        return [name for name in self.world.store.folders[TIMELINE.rstrip("/")] if name.startswith(instant)]

    def _planned(self, process: Process, rollback: str, target: str) -> None:
        is_completed = target in self.completions
        require(not is_completed or target in self.to_undo, "I36", f"{target} is completed and {rollback} undoes it")
        self.plans[rollback] = target
        if not is_completed:
            self.planned.add(target)
        if target not in self.to_undo:
            require(
                not self._is_at_it(target, but=process),
                "I34",
                f"{target} lives and {rollback} of {process.name} undoes it",
            )

    def _metadata_instant_written(self, process: Process, instant: Instant, data: bytes) -> None:
        if instant.completed_at is None:
            if instant.action is Action.COMPACTION and instant.state is State.REQUESTED:
                self._compaction_planned(instant.requested_at, data)
            if instant.action is Action.CLEAN and instant.state is State.REQUESTED:
                names = self.codec.decode_clean_plan(data, path="").files.values()
                self._cleaned.update(name for of_partition in names for name in of_partition)
            return
        t, m = instant.requested_at, instant.completed_at
        hold = self._hold_of(process)
        # A time in the metadata table may come again once its file is gone: nobody orders by it across instants.
        floor = self.world.floor if hold is None else hold.floor
        require(m > floor, "I1", f"{m} is not after {floor}")
        if instant.action is not Action.DELTA_COMMIT:
            self.world.reached[f"metadata {instant.action}"] += 1
            if instant.action is Action.COMMIT:
                require(t not in self._compactions, "I3", f"{t} completed twice in the metadata table")
                self._compactions.add(t)
        else:
            written = self.codec.decode_commit(data, path="").write_stats
            missing = [name for name in self._partitions() if name not in written]
            require(not missing, "I14", f"{t} does not write to {missing}, which the table has")
            require(t not in self.metadata_completions, "I3", f"{t} completed twice in the metadata table")
            require(t not in self.planned, "I25", f"{t} completed in the metadata table though it is being rolled back")
            self.metadata_completions[t] = m

    def _compaction_planned(self, compaction: str, data: bytes) -> None:
        pending = {i.requested_at for i in self.timeline().pending()}
        for operation in self.codec.decode_compaction_plan(data, path="").operations:
            taken = {data_file(name).instant for name in operation.log_files}  # type: ignore[union-attr]
            require(not taken & pending, "I15", f"{compaction} takes in {sorted(taken & pending)}, which is pending")

    def _partitions(self) -> tuple[str, ...]:
        """The partitions of the metadata table, by the config or, while that is replaced, its backup."""
        stored = self.world.store.get(PROPERTIES) or self.world.store.get(BACKUP)
        assert stored is not None
        return _decode_config(stored.data, PROPERTIES).metadata_partitions

    def _issued(self, process: Process, time: str, kind: State) -> None:
        """I1: unique, and greater than what sections issued that had ended when this one began.

        A holder that lost the lock before it requested its instant may get the time at which the next one completes;
        so times are compared with others of their kind. What is late may come after its section, if no other began.
        """
        hold = self._hold_of(process)
        floor = self.world.floor if hold is None else hold.floor
        require(time > floor, "I1", f"{time} is not after {floor}")
        require((kind, time) not in self._times, "I1", f"{time} was issued already")
        self._times.add((kind, time))
        if hold is not None:
            hold.issued.append(time)

    def _hold_of(self, process: Process) -> Hold | None:
        return next((hold for hold in reversed(self.world.holds) if hold.process is process), None)

    def _beaten(self, process: Process, instant: str, token: bytes) -> None:
        """I34: nobody takes an instant on while another process is at it."""
        self._ever.add(f"{HEARTBEATS}{instant}")
        before = self._beating.get(instant)
        if before is not None and before[0] != token and not process.is_zombie:
            require(not self._is_at_it(instant, but=process), "I34", f"{instant} is taken on twice")
        self._beating[instant] = (token, process, self.world.now_ms)

    def _is_at_it(self, instant: str, but: Process) -> bool:
        """Whether a process works on an instant that nobody can have taken for dead: it has not stood still lately."""
        _, owner, beaten_ms = self._beating.get(instant, (b"", but, 0))
        stood_still = self.world.now_ms - owner.hiccup_ms < 200_000
        beats = self.world.now_ms - beaten_ms < 1.5 * self.beat_ms
        return owner is not but and not owner.is_dead and not stood_still and beats

    def _data_written(self, path: str) -> None:
        file = data_file(path.rpartition("/")[2])
        require(path in self._marked, "I4", f"{path} has no marker")
        assert file is not None
        self._note_zombie(path, file.instant)

    def _note_zombie(self, path: str, instant: str) -> None:
        """What a process writes after others fenced it off has no effect; it stays until somebody sweeps (I9)."""
        if not any(ticket.instant == instant for ticket in self.world.store.tickets):
            self.zombie_files.add(path)

    def _data_removed(self, path: str) -> None:
        file = data_file(path.rpartition("/")[2])
        assert file is not None
        is_live = file.instant in self.completions
        require(not is_live, "I20", f"{path} was removed and {file.instant} is completed")

    def _entries_removed(self, path: str) -> None:
        file = data_file(path.rpartition("/")[2])
        assert file is not None
        counts = file.instant in self.metadata_completions or file.instant in self._compactions
        require(not counts or file.name in self._cleaned, "I20", f"{path} was removed and its instant is completed")

    def _instant_removed(self, instant: Instant) -> None:
        t = instant.requested_at
        if instant.completed_at is not None:
            require(t in self.to_undo, "I36", f"{t} was committed and is taken back")
            self.completions.pop(t, None)
            self.history.writes[t].unpublished = self.world.scheduler.steps
        elif t in self.completions and instant.action is not Action.ROLLBACK:
            require(False, "I2", f"{t} is completed and lost its {instant.state}")

    def _metadata_instant_removed(self, instant: Instant) -> None:
        t = instant.requested_at
        if instant.completed_at is not None and instant.action is Action.DELTA_COMMIT:
            require(t not in self.completions, "I12", f"{t} is completed and leaves the metadata table")
            self.metadata_completions.pop(t, None)

    def _heartbeat_removed(self, process: Process, instant: str) -> None:
        if instant in self._beating and self._beating[instant][1] is process:
            del self._beating[instant]  # Its owner is done with it.
        if process.is_zombie or instant in self.planned or instant in self.to_undo:
            return
        names = self._names_of(instant)
        # Nobody is at a plan that has no heartbeat: that is as good as a dead one.
        is_plan = any(".compaction." in name or ".clustering." in name for name in names)
        is_pending = bool(names) and not is_plan and not any(name.startswith(f"{instant}_") for name in names)
        require(not is_pending, "I5", f"the heartbeat of {instant} is gone and nothing was decided about it")


def leftovers(world: World, *, zombie_files: set[str], all_have_tickets: bool) -> Iterator[str]:
    """What should not be there once everyone is dead and the cleaner has come. A plan to compact stays, as it must.

    An engine without tickets revokes none when it rolls back, so what is found behind it proves nothing.
    """
    names = world.store.folders[TIMELINE.rstrip("/")]
    plans = {name.split(".")[0] for name in names if ".compaction." in name or ".clustering." in name}
    found = [*_pending(world), *((*_markers(world), *_tickets(world)) if all_have_tickets else ())]
    return (left for left in found if left not in zombie_files and not any(plan in left for plan in plans))


def _pending(world: World) -> Iterator[str]:
    for root in ("", METADATA):
        folder = f"{root}{TIMELINE}".rstrip("/")
        found = (decode_instant(name) for name in sorted(world.store.folders.get(folder, {})))
        for instant in Timeline.of(tuple(i for i in found if i is not None)).pending():
            yield f"{root}{instant.requested_at}.{instant.action}.{instant.state}"
    yield from (f"heartbeat {name}" for name in sorted(world.store.folders.get(HEARTBEATS.rstrip("/"), {})))


def _markers(world: World) -> Iterator[str]:
    for folder, files in sorted(world.store.folders.items()):
        if folder.startswith(MARKERS):
            yield from (f"{folder}/{name}" for name in sorted(files))


def _tickets(world: World) -> Iterator[str]:
    """Those that a process opened after it had lost the lock are let go: a dead process cannot use them."""
    live = world.store.tickets - world.zombie_tickets
    return (f"ticket {name}" for name in sorted(ticket.name for ticket in live))


def _decode(path: str) -> Instant:
    instant = decode_instant(path.rpartition("/")[2])
    assert instant is not None, path
    return instant
