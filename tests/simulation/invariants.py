"""What must hold after every effect, whoever had it; the numbers are those of the protocol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timezone

from lakebed.format.properties import PARTITION_METAFILE
from lakebed.format.timeline.archive import decode_manifest, decode_version
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.timeline import Timeline
from lakebed.timeline.config import BACKUP, PROPERTIES, decode_config
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.plans import REMOVABLE
from lakebed.transaction.section import METADATA
from lakebed.transaction.times import instant_ms
from lakebed.view import latest_slices

from .checker import History
from .codecs import Codec, decode_instant
from .scheduler import Process
from .table import FILES, FIRST, STATS, data_file
from .world import Hold, Witness, World

TIMELINE = ".hoodie/timeline/"
METADATA_TIMELINE = f"{METADATA}{TIMELINE}"
HISTORY = ".hoodie/timeline/history/"
HEARTBEATS = ".hoodie/.heartbeat/"
MARKERS = ".hoodie/.temp/"
CANCELLED = ".hoodie/.cancelled/"
PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN)
"""Actions that any process may execute; nobody is at them while they have no heartbeat."""


class ViolationError(AssertionError):
    """An invariant that does not hold."""


def require(holds: bool, number: str, what: str) -> None:
    """Raises ViolationError unless it holds."""
    if not holds:
        raise ViolationError(f"{number}: {what}")


@dataclass(slots=True)
class Service:
    """The plan of a table service."""

    action: Action
    is_removable: bool
    groups: frozenset[FileGroupId] = frozenset()
    is_begun: bool = False


class Invariants(Witness):
    """Watches every effect of one schedule."""

    def __init__(self, world: World, history: History, *, has_metadata: bool, timing: Timing, codec: Codec):
        self.world = world
        self.history = history
        self.has_metadata = has_metadata
        self.codec = codec
        self.asked: set[str] = set()
        """Completed writes that somebody wants to take back."""
        self._to_restore: set[str] = set()
        self.timing = timing
        self.effects = 0
        self.plans: dict[str, str] = {}
        self.planned: set[str] = set()
        self.zombie_files: set[str] = set()
        self.completions: dict[str, str] = {}
        self.metadata_completions: dict[str, str] = {}
        self.vanished = -1
        """The last step at which a completed write was taken back or archived, or a file of one was cleaned."""
        self.restoring: str | None = None
        self.savepoints: dict[str, frozenset[str]] = {}
        self._services: dict[str, Service] = {}
        self._reading: dict[Process, tuple[str, frozenset[str]]] = {}
        self._beating: dict[str, tuple[bytes, Process, int]] = {}
        self._ever: set[str] = set()
        self._marked: set[str] = set()
        self._compactions: set[str] = set()
        self._cleaned: set[str] = set()
        self._times: set[tuple[State, str]] = set()
        self._newest = ""
        self._archived: tuple[bytes, frozenset[Instant]] = (b"", frozenset())
        for path in list(world.store.folders.get(TIMELINE.rstrip("/"), {})):
            self._load(path, self.completions)
        for path in list(world.store.folders.get(METADATA_TIMELINE.rstrip("/"), {})):
            self._load(path, self.metadata_completions)

    def reads(self, process: Process, instant: str, paths: frozenset[str]) -> None:
        """A write begins to work on what its snapshot showed it."""
        self._reading[process] = (instant, paths)

    def stops_reading(self, process: Process) -> None:
        """That write has come to its end."""
        self._reading.pop(process, None)

    def check_may_miss_files(self, instant: str, began: int, error: Exception) -> None:
        """I23, I47: a file may only be missing to who looked before it went, or was taken for dead."""
        is_undone = instant in self.planned or (bool(instant) and not self._names_of(instant))
        require(is_undone or self.vanished >= began, "I23", f"a reader since {began} found {error}")

    def wrote(self, process: Process, path: str, data: bytes, *, published: bool) -> None:
        """Dispatches by what kind of file it is."""
        self.effects += 1
        if path.startswith(HISTORY):
            return
        if path.startswith(TIMELINE):
            self._instant_written(process, _decode(path), data, published)
        elif path.startswith(METADATA_TIMELINE):
            self._metadata_instant_written(process, _decode(path), data)
        elif path.startswith(HEARTBEATS):
            self._beaten(process, path.removeprefix(HEARTBEATS), data.split(b" ")[0])
        elif path.startswith(MARKERS):
            if not path.endswith("/prepared.zip"):
                self._marked.update(line.rpartition(".marker.")[0] for line in data.decode().splitlines())
            self._note_zombie(process, path, path.split("/")[2])
        elif path == PROPERTIES:
            self._config_written(process)
        elif not path.startswith(".hoodie/") and not path.endswith(PARTITION_METAFILE):
            self._data_written(process, path)

    def removed(self, process: Process, path: str) -> None:
        """Dispatches by what kind of file it was."""
        self.effects += 1
        if not self.has_metadata and path.startswith(METADATA):
            self.vanished = self.world.scheduler.steps  # A restore drops the metadata table.
        if path.startswith(HISTORY):
            return
        if path.startswith(TIMELINE):
            self._instant_removed(process, _decode(path))
        elif path.startswith(METADATA_TIMELINE):
            self._metadata_instant_removed(_decode(path))
        elif path.startswith(HEARTBEATS):
            self._heartbeat_removed(process, path.removeprefix(HEARTBEATS))
        elif not path.startswith(".hoodie/"):
            if not path.endswith(PARTITION_METAFILE):
                self._data_removed(path)
        elif path.startswith(METADATA):
            self._entries_removed(path)

    def crashed(self, process: Process) -> None:
        """Counts the crash points of the protocol, by what the process leaves behind."""
        if self.world.store.get(PROPERTIES) is None and process.name.startswith("configurator"):
            self.world.reached["C7"] += 1
        if process.label == "service.cancel" and self.world.store.folders.get(CANCELLED.rstrip("/")):
            self.world.reached["C30"] += 1
        if process.label == "rollback.R1" and self.plans.keys() - self._beating.keys():
            self.world.reached["C26"] += 1
        for instant, (_, owner, _) in self._beating.items():
            if owner is process:
                self.world.reached[self._crash_point(process, instant)] += 1

    def _crash_point(self, process: Process, instant: str) -> str:
        files = self.world.store.folders
        states = {name.rpartition(".")[2] for name in self._names_of(instant)}
        in_metadata = [name for name in files.get(METADATA_TIMELINE.rstrip("/"), ()) if name.startswith(instant)]
        if instant in self.plans:
            return self._rollback_crash_point(process, instant)
        if instant == self.restoring:
            return self._restore_crash_point(instant)
        if instant in self.completions:
            has_beat = instant in files.get(HEARTBEATS.rstrip("/"), ())
            return ("C12" if self._hold_of(process) else "C6") if has_beat else "after the end"
        if instant in self._services and "inflight" in states:
            return "C25" if instant in self.metadata_completions else "C24"
        if "inflight" in states:
            if instant in self.metadata_completions:
                return "C10"
            if in_metadata:
                return "C9" if process.label == "commit.P6" else "C8"
            return "C4" if process.label == "files written" else "C3"
        if instant in self._services:
            return "C23"
        return "C2" if "requested" in states else "C1"

    def _restore_crash_point(self, restore: str) -> str:
        if not self._partitions() and any(name.startswith(METADATA) for name in self.world.store.files):
            return "C39"
        return "C38" if f"{restore}.restore.inflight" in self._names_of(restore) else "C37"

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
            # Another engine takes its index plan away when it gives up, and its time may come again.
            self._issued(process, t, State.REQUESTED, is_lasting=instant.action is not Action.INDEXING)
            self._ever.add(f"{TIMELINE}{t}")
            is_plan = instant.action in (Action.ROLLBACK, Action.INDEXING, *PLANS)  # Another engine's has no heartbeat.
            require(is_plan or f"{HEARTBEATS}{t}" in self._ever, "I4", f"{t} before its beat")
            require(self.restoring is None, "I48", f"{t} was requested while {self.restoring} restores the table")
            if instant.action is Action.ROLLBACK:
                self._planned(process, t, self.codec.decode_rollback_plan(data, path="").target.requested_at)
            elif instant.action is Action.RESTORE:
                self._restore_planned(t, data)
            elif instant.action in PLANS:
                self._service_planned(instant, data)
        elif instant.state is State.INFLIGHT and instant.action is not Action.SAVEPOINT:
            require(f"{TIMELINE}{t}" in self._ever, "I4", f"{t} was not requested")
            if t in self._services:
                self._service_begun(t)
        elif instant.state is State.COMPLETED:
            self._completed(process, instant, data, published)

    def _completed(self, process: Process, instant: Instant, data: bytes, published: bool) -> None:
        t, c = instant.requested_at, instant.completed_at or ""
        self._issued(process, c, State.COMPLETED, is_lasting=instant.action is not Action.SAVEPOINT)
        require(published or process.is_foreign, "I25", f"{t} completed without a ticket")
        require(c > self._newest, "I7", f"{t} completed at {c} behind {self._newest}")
        require(t < c, "I1", f"{t} completed at {c}")
        is_savepoint = instant.action is Action.SAVEPOINT
        require(t not in self.completions or is_savepoint, "I3", f"{t} completed twice")
        require(self.restoring in (None, t), "I48", f"{t} completed while {self.restoring} restores the table")
        require(f"{CANCELLED}{t}" not in self.world.store.files, "I40", f"{t} completed though it was cancelled")
        self._newest = self._newest if is_savepoint else c
        if instant.action is Action.ROLLBACK:
            self._rolled_back(self.plans[t])
        elif instant.action is Action.RESTORE:
            self.restoring = None
        elif is_savepoint:
            self._saved(t, data)
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

    def _service_planned(self, instant: Instant, data: bytes) -> None:
        """I39: what two pending plans are about does not overlap."""
        t = instant.requested_at
        if instant.action is Action.CLEAN:
            for partition, names in self.codec.decode_clean_plan(data, path="").files.items():
                self.world.cleaned.update(f"{partition}/{name}" for name in names)
            self._services[t] = Service(instant.action, is_removable=False)
            return
        if instant.action is Action.CLUSTERING:
            plan = self.codec.decode_clustering_plan(data, path="")
            groups = plan.file_groups
        else:
            plan = self.codec.decode_compaction_plan(data, path="")
            groups = frozenset(FileGroupId(each.partition, each.file_id) for each in plan.operations)
        for other, service in self._services.items():
            if other not in self.completions and self._names_of(other):
                shared = groups & service.groups
                require(not shared, "I39", f"{t} and {other}, which is pending, are both about {sorted(shared)[:1]}")
        self._services[t] = Service(instant.action, plan.extra_metadata.get(REMOVABLE) == "true", groups)

    def _service_begun(self, t: str) -> None:
        """I35: a removable plan is begun once."""
        service = self._services[t]
        require(not (service.is_removable and service.is_begun), "I35", f"the removable plan {t} was begun twice")
        service.is_begun = True

    @property
    def to_undo(self) -> set[str]:
        """Completed writes that may be taken back."""
        return self.asked | self._to_restore

    def _restore_planned(self, restore: str, data: bytes) -> None:
        self.restoring = restore
        plan = self.codec.decode_restore_plan(data, path="")
        self._to_restore.update(ref.requested_at for ref in plan.instants)
        at_work = self._beating.keys() - self.planned - {restore}
        live = [instant for instant in sorted(at_work) if self._names_of(instant) and self._is_at_it(instant)]
        require(not live, "I48", f"{live[:1]} is at work and {restore} restores the table")

    def _saved(self, t: str, data: bytes) -> None:
        """I50: what a savepoint names is there."""
        files = self.codec.decode_savepoint(data, path="").files
        paths = frozenset(f"{partition}/{name}" for partition, names in files.items() for name in names)
        missing = sorted(paths - self.world.store.files.keys())
        require(not missing, "I50", f"the savepoint on {t} names {missing[:1]}, which is not there")
        if any(name.endswith((".clean.requested", ".clean.inflight")) for name in self._pending_names()):
            self.world.reached["C40"] += 1
        self.savepoints[t] = paths

    def _pending_names(self) -> list[str]:
        names = self.world.store.folders[TIMELINE.rstrip("/")]
        done = {name.partition("_")[0] for name in names if "_" in name}
        return [name for name in names if name.partition(".")[0] not in done]

    def _config_written(self, process: Process) -> None:
        """Only a restore does without the metadata table, and from then on it counts for nobody."""
        if self.has_metadata and not self._partitions():
            require(process.label == "restore.metadata", "I17", f"{process.name} drops the metadata table")
            self.has_metadata = False
            self.metadata_completions.clear()

    def _names_of(self, instant: str) -> list[str]:
        return [name for name in self.world.store.folders[TIMELINE.rstrip("/")] if name.startswith(instant)]

    def _planned(self, process: Process, rollback: str, target: str) -> None:
        is_completed = target in self.completions
        require(not is_completed or target in self.to_undo, "I36", f"{target} is completed and {rollback} undoes it")
        self.plans[rollback] = target
        if not is_completed:
            self.planned.add(target)
        self._check_plan_may_go(target)
        if target not in self.to_undo:
            require(
                not self._is_at_it(target, but=process),
                "I34",
                f"{target} lives and {rollback} of {process.name} undoes it",
            )

    def _check_plan_may_go(self, target: str) -> None:
        """A removable plan that nobody has begun and nobody cancelled is left alone for a while."""
        service = self._services.get(target)
        if service is None or service.is_begun or f"{CANCELLED}{target}" in self.world.store.files:
            return
        require(service.is_removable, "I35", f"{target} is a plan that stays, and is undone before it was begun")
        if not self.world.is_wild:
            age_ms = self.world.now_ms - instant_ms(InstantTime(target), timezone.utc)
            delay_ms = self.timing.service_delay_seconds * 1000 - self.timing.skew_ms
            require(age_ms >= delay_ms, "H40", f"the plan {target} is taken away after {age_ms} ms")

    def _metadata_instant_written(self, process: Process, instant: Instant, data: bytes) -> None:
        if instant.completed_at is None:
            if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION) and instant.state is State.REQUESTED:
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
        is_merge = f"{METADATA_TIMELINE}{t}.logcompaction.requested" in self.world.store.files
        if is_merge or instant.action is not Action.DELTA_COMMIT:
            self.world.reached[f"metadata {'logcompaction' if is_merge else instant.action}"] += 1
            if is_merge or instant.action is Action.COMMIT:
                require(t not in self._compactions, "I3", f"{t} completed twice in the metadata table")
                self._compactions.add(t)
        else:
            written = self.codec.decode_commit(data, path="").write_stats
            # Every commit writes to indexes of names; whether those of keys are kept, readers find out.
            is_build = t < FIRST or f"{TIMELINE}{t}.indexing.requested" in self.world.store.files
            named = () if is_build else (FILES, STATS)
            missing = [name for name in self._partitions() if name in named and name not in written]
            require(not missing, "I14", f"{t} does not write to {missing}, which the table has")
            require(t not in self.metadata_completions, "I3", f"{t} completed twice in the metadata table")
            require(t not in self.planned, "I25", f"{t} completed in the metadata table though it is being rolled back")
            self.metadata_completions[t] = m

    def _compaction_planned(self, compaction: str, data: bytes) -> None:
        lasting = (Action.SAVEPOINT, Action.INDEXING)
        pending = {i.requested_at for i in self.timeline().pending() if i.action not in lasting}
        for operation in self.codec.decode_compaction_plan(data, path="").operations:
            taken = {data_file(name).instant for name in operation.log_files}  # type: ignore[union-attr]
            require(not taken & pending, "I15", f"{compaction} takes in {sorted(taken & pending)}, which is pending")

    def _partitions(self) -> tuple[str, ...]:
        """The partitions of the metadata table, by the config or, while that is replaced, its backup."""
        stored = self.world.store.get(PROPERTIES) or self.world.store.get(BACKUP)
        assert stored is not None
        return decode_config(stored.data, PROPERTIES).metadata_partitions

    def _issued(self, process: Process, time: str, kind: State, *, is_lasting: bool = True) -> None:
        """I1: unique, and greater than what sections issued that had ended when this one began.

        A holder that lost the lock before it requested its instant may get the time at which the next one completes;
        so times are compared with others of their kind. What is late may come after its section, if no other began.
        When a savepoint was made nobody asks, and once it is deleted its time may come again.
        """
        hold = self._hold_of(process)
        floor = self.world.floor if hold is None else hold.floor
        require(time > floor, "I1", f"{time} is not after {floor}")
        require((kind, time) not in self._times, "I1", f"{time} was issued already")
        if not is_lasting:
            return
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

    def _is_at_it(self, instant: str, but: Process | None = None) -> bool:
        """Whether a process works on an instant that nobody can have taken for dead: it has not stood still lately."""
        if instant not in self._beating:
            return False
        _, owner, beaten_ms = self._beating[instant]
        stood_still = self.world.now_ms - owner.hiccup_ms < 200_000
        beats = self.world.now_ms - beaten_ms < 1500 * self.timing.heartbeat_seconds
        return owner is not but and not owner.is_dead and not stood_still and beats

    def _data_written(self, process: Process, path: str) -> None:
        file = data_file(path.rpartition("/")[2])
        require(path in self._marked, "I4", f"{path} has no marker")
        assert file is not None
        self._note_zombie(process, path, file.instant)

    def _note_zombie(self, process: Process, path: str, instant: str) -> None:
        """What a process writes after others fenced it off has no effect; it stays until somebody sweeps (I9)."""
        has_ticket = any(ticket.instant == instant for ticket in self.world.store.tickets)
        # Whoever cancels a plan that is being rolled back has a ticket of it, too.
        is_fenced = not has_ticket or instant in self.planned
        if is_fenced or (instant in self._beating and self._beating[instant][1] is not process):
            self.zombie_files.add(path)

    def _data_removed(self, path: str) -> None:
        file = data_file(path.rpartition("/")[2])
        assert file is not None
        kept = sorted(t for t, paths in self.savepoints.items() if path in paths)
        require(not kept, "I50", f"{path} was removed and the savepoint on {kept} names it")
        if file.instant not in self.completions:
            return
        if self._is_named(path, file.instant):
            self._data_cleaned(path)

    def _is_named(self, path: str, instant: str) -> bool:
        """Whether the completed write counts the file as its own: what a second try of a task made may go."""
        if path in self.world.cleaned:
            return True
        for name in self._names_of(f"{instant}_"):
            if not name.endswith(".savepoint"):
                stored = self.world.store.files[f"{TIMELINE}{name}"]
                return any(stat.path == path for stat in self.codec.decode_commit(stored.data, path="").stats)
        return True

    def _data_cleaned(self, path: str) -> None:
        """A file of a completed write goes by a clean alone, and if nobody needs it who may be at work."""
        self.vanished = self.world.scheduler.steps
        require(path in self.world.cleaned, "I20", f"{path} was removed and its write is completed")
        needed = self._needed(path.rpartition("/")[0])
        require(path not in needed, "I23", f"{path} was cleaned and the newest snapshot needs it")
        for process, (instant, paths) in self._reading.items():
            is_pending = instant not in self.planned and instant not in self.completions and self._names_of(instant)
            may_go = process.is_dead or not is_pending or path not in paths
            require(may_go, "I23", f"{path} was cleaned and {instant} of {process.name} needs it")

    def _needed(self, partition: str) -> frozenset[str]:
        """The files of a partition that a reader of the newest snapshot needs."""
        files = [data_file(name) for name in self.world.store.folders.get(partition, ())]
        found = latest_slices(
            {partition: [file for file in files if file is not None]},
            lambda requested_at: self.completions.get(requested_at),
            layout=2,
            replaced=self._replaced(),
        )
        return frozenset(path for each in found for path in each.paths)

    def _replaced(self) -> frozenset[FileGroupId]:
        found: set[FileGroupId] = set()
        for name in self.world.store.folders[TIMELINE.rstrip("/")]:
            if name.endswith(".replacecommit") and "_" in name:
                data = self.world.store.files[f"{TIMELINE}{name}"].data
                for partition, ids in self.codec.decode_commit(data, path="").replaced_file_ids.items():
                    found.update(FileGroupId(partition, file_id) for file_id in ids)
        return frozenset(found)

    def _entries_removed(self, path: str) -> None:
        if not self.has_metadata or "/.hoodie/" in path.removeprefix(METADATA):
            return
        if path.split("/")[2] not in self._partitions():
            return  # Of an index that is being built, or was dropped: it may go with what others added to it.
        if path.endswith(PARTITION_METAFILE):
            return  # Nobody reads it.
        file = data_file(path.rpartition("/")[2])
        assert file is not None
        counts = file.instant in self.metadata_completions or file.instant in self._compactions
        require(not counts or file.name in self._cleaned, "I20", f"{path} was removed and its instant is completed")

    def _instant_removed(self, process: Process, instant: Instant) -> None:
        t = instant.requested_at
        if instant.action is Action.SAVEPOINT:
            if instant.is_completed:
                self.savepoints.pop(t, None)
            return
        if instant.completed_at is not None:
            self.vanished = self.world.scheduler.steps
            if instant in self.archived():
                return
            require(t in self.to_undo, "I36", f"{t} was committed and is taken back")
            self.completions.pop(t, None)
            self.history.writes[t].unpublished = self.world.scheduler.steps
        elif t in self.completions and instant.action is not Action.ROLLBACK:
            is_archived = any(i.requested_at == t for i in self.archived())
            require(
                is_archived or self._is_late(process, instant), "I2", f"{t} is completed and lost its {instant.state}"
            )
        elif instant.state is State.REQUESTED and t in self._services:
            may_go = self._services[t].is_removable or t in self.to_undo or self._is_done(t)
            require(may_go, "I35", f"the plan {t} stays until it is executed, and was removed")

    def _is_late(self, process: Process, instant: Instant) -> bool:
        """Whether a process without the lock undoes an attempt at a plan that another has executed since.

        No store can refuse a late delete. The plan stays, and once it has completed nobody asks who had begun it.
        """
        service = self._services.get(instant.requested_at)
        has_lock = self.world.holder is not None and self.world.holder.process is process
        is_plan = service is not None and not service.is_removable
        return is_plan and instant.state is State.INFLIGHT and not has_lock

    def _is_done(self, clean: str) -> bool:
        return any(name.startswith(f"{clean}_") for name in self._names_of(clean))

    def archived(self) -> frozenset[Instant]:
        """The instants that are archived."""
        files = self.world.store.files
        version = files.get(f"{HISTORY}_version_")
        if version is None:
            return frozenset()
        if self._archived[0] != version.data:
            manifest = f"{HISTORY}manifest_{decode_version(version.data, path='')}"
            names = [entry.name for entry in decode_manifest(files[manifest].data, path=manifest)]
            rows = [row for name in names for row in self.codec.decode_history(files[f"{HISTORY}{name}"].data, path="")]
            self._archived = version.data, frozenset(row.instant for row in rows)
        return self._archived[1]

    def _metadata_instant_removed(self, instant: Instant) -> None:
        t = instant.requested_at
        if self.has_metadata and instant.completed_at is not None and instant.action is Action.DELTA_COMMIT:
            require(t not in self.completions, "I12", f"{t} is completed and leaves the metadata table")
            self.metadata_completions.pop(t, None)

    def _heartbeat_removed(self, process: Process, instant: str) -> None:
        if instant in self._beating and self._beating[instant][1] is process:
            del self._beating[instant]  # Its owner is done with it.
        if process.is_zombie or instant in self.planned or instant in self.to_undo:
            return
        names = self._names_of(instant)
        # Nobody is at a plan that has no heartbeat: that is as good as a dead one. So it is with a restore.
        is_index = any(name.startswith(f"{instant}.indexing.") for name in names)
        is_plan = is_index or instant in self._services or instant == self.restoring
        is_pending = bool(names) and not is_plan and not any(name.startswith(f"{instant}_") for name in names)
        require(not is_pending, "I5", f"the heartbeat of {instant} is gone and nothing was decided about it")


def leftovers(world: World, *, zombie_files: set[str], all_have_tickets: bool) -> Iterator[str]:
    """What should not be there once everyone is dead, all plans are executed and the cleaner has come.

    An engine without tickets revokes none when it rolls back, so what is found behind it proves nothing.
    """
    found = [*_pending(world), *((*_markers(world), *_tickets(world)) if all_have_tickets else ())]
    return (left for left in found if left not in zombie_files)


def _pending(world: World) -> Iterator[str]:
    for root in ("", METADATA):
        folder = f"{root}{TIMELINE}".rstrip("/")
        found = (decode_instant(name) for name in sorted(world.store.folders.get(folder, {})))
        for instant in Timeline.of(tuple(i for i in found if i is not None)).pending():
            if instant.action is Action.SAVEPOINT:
                continue  # One that is begun protects nothing and hinders nobody.
            yield f"{root}{instant.requested_at}.{instant.action}.{instant.state}"
    yield from (f"heartbeat {name}" for name in sorted(world.store.folders.get(HEARTBEATS.rstrip("/"), {})))


def _markers(world: World) -> Iterator[str]:
    for folder, files in sorted(world.store.folders.items()):
        if folder.startswith(MARKERS):
            yield from (f"{folder}/{name}" for name in sorted(files))


def _tickets(world: World) -> Iterator[str]:
    """Those that a process opened after it had lost the lock are let go: a dead process cannot use them.

    That of a savepoint goes with the savepoint.
    """
    saved = {
        name.partition("_")[0] for name in world.store.folders[TIMELINE.rstrip("/")] if name.endswith(".savepoint")
    }
    live = [ticket for ticket in world.store.tickets - world.zombie_tickets if ticket.instant not in saved]
    return (f"ticket {name}" for name in sorted(ticket.name for ticket in live))


def _decode(path: str) -> Instant:
    instant = decode_instant(path.rpartition("/")[2])
    assert instant is not None, path
    return instant
