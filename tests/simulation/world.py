"""The world outside the protocol layer, simulated: one store, one lock, and per process the ports that lead there."""

from __future__ import annotations

import builtins
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple, NoReturn

from lakebed.errors import CorruptTableError, LockUnavailableError, StorageUnavailableError
from lakebed.model.source import BytesSource
from lakebed.storage import Listed, Outcome, Ticket
from lakebed.storage.port import RequestCounts
from lakebed.transaction.ports import Ports

from .faults import Fault, Faults, NoFaults
from .scheduler import NEVER, Crash, Process, Scheduler, Task

_ZERO = datetime(1970, 1, 1, tzinfo=timezone.utc)
DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN
_UNKNOWN = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE)
LATE_MS = 2_000
"""When a request that was given up takes place after all."""


class Stored(NamedTuple):
    """One file of the store."""

    data: bytes
    modified_ms: int
    version: int

    @property
    def etag(self) -> str:
        """What names this content."""
        return str(self.version)


class Store:
    """Files in folders, and live tickets. No faults, no time of its own: that is the business of the ports."""

    def __init__(self, files: dict[str, Stored] | None = None) -> None:
        self.files = files or {}
        self.folders: dict[str, dict[str, Stored]] = {}
        self.tickets: set[Ticket] = set()
        self._versions = len(self.files)
        self._listings: dict[str, tuple[Listed, ...]] = {}
        for path, stored in self.files.items():
            folder, _, name = path.rpartition("/")
            self.folders.setdefault(folder, {})[name] = stored

    def copy(self) -> Store:
        """A store with the same files."""
        return Store(dict(self.files))

    def get(self, path: str) -> Stored | None:
        """The file, or None."""
        return self.files.get(path)

    def put(self, path: str, data: bytes, now_ms: int) -> None:
        """Writes a file over what was there."""
        folder, _, name = path.rpartition("/")
        self._versions += 1
        files = self.folders.get(folder)
        if files is None:
            files = self.folders[folder] = {}
        files[name] = self.files[path] = Stored(data, now_ms, self._versions)
        self._listings.pop(folder, None)

    def remove(self, path: str) -> bool:
        """Removes a file; whether it was there."""
        if self.files.pop(path, None) is None:
            return False
        folder, _, name = path.rpartition("/")
        self._listings.pop(folder, None)
        del self.folders[folder][name]
        return True

    def list(self, folder: str) -> tuple[Listed, ...]:
        """The files of one folder, by name. Equal to the last time while nothing changed."""
        listing = self._listings.get(folder)
        if listing is None:
            files = self.folders.get(folder, {})
            listing = self._listings[folder] = tuple([_listed(folder, name, files[name]) for name in sorted(files)])
        return listing

    def list_below(self, folder: str) -> tuple[Listed, ...]:
        """The files of a folder and of those below it, by path."""
        prefix = f"{folder}/" if folder else ""
        below = [name for name in self.folders if name == folder or name.startswith(prefix)]
        return tuple(sorted((one for name in below for one in self.list(name)), key=lambda listed: listed.path))


@lru_cache(maxsize=20_000)
def _listed(folder: str, name: str, stored: Stored) -> Listed:
    return Listed(f"{folder}/{name}", len(stored.data), _ZERO + timedelta(milliseconds=stored.modified_ms))


@dataclass(eq=False, slots=True)
class Hold:
    """One time that the lock is held: a section, as far as the world can tell."""

    process: Process
    floor: str
    """The greatest time that sections issued which ended before this one began."""
    ends_ms: int = NEVER
    issued: list[str] = field(default_factory=list)
    is_over: bool = False


class Witness:
    """What the world tells of each effect. Invariants override what they look at."""

    def wrote(self, process: Process, path: str, data: bytes, *, published: bool) -> None:
        """A file was created or replaced."""

    def removed(self, process: Process, path: str) -> None:
        """A file was removed."""

    def crashed(self, process: Process) -> None:
        """A process died."""


@dataclass(frozen=True, slots=True)
class LockKind:
    """A lock that is a lease, or one that dies with its holder and never else."""

    can_be_lost: bool
    lease_ms: int = 10_000
    wait_ms: int = 60_000


class World:
    """Everything that processes share."""

    def __init__(self, scheduler: Scheduler, store: Store, lock: LockKind, faults: Faults) -> None:
        self.scheduler = scheduler
        self.store = store
        self.lock = lock
        self.faults = faults
        self.calls_to_fault = faults.calls_to_next()
        self.witness = Witness()
        self.page_size = 0
        self.is_wild = False
        """Whether clocks are wrong by minutes."""
        self.trace: list[tuple[object, ...]] = []
        self.reached: Counter[str] = Counter()
        self.zombie_tickets: set[Ticket] = set()
        self.cleaned: set[str] = set()
        """Data files that cleans were planned to take away."""
        self.holds: list[Hold] = []
        self.holder: Hold | None = None
        self.floor = ""
        self._tokens = 0
        self._late: list[tuple[int, Process, Callable[[], None]]] = []

    @property
    def now_ms(self) -> int:
        """The true time, which is that of the store."""
        return self.scheduler.now_ms

    def ports(self, process: Process) -> Ports:
        """The world as one process sees it."""
        return Ports(
            storage=LeaseOnlyStorage(self, process) if process.is_foreign else SimStorage(self, process),
            clock=SimClock(self, process),
            lock=SimLock(self, process),
            background=SimBackground(self, process),
            tokens=self.token,
            at=lambda label: self._at(process, label),
        )

    def token(self) -> str:
        """A text that no one else has."""
        self._tokens += 1
        return f"k{self._tokens}"

    def trace_hash(self) -> str:
        """Equal for equal schedules."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]

    def calm(self) -> None:
        """Nothing goes wrong from here on; what is late has taken place."""
        self.faults, self.calls_to_fault = NoFaults(), NEVER
        self.page_size = 0
        for *_, effect in self._late:
            effect()
        self._late.clear()

    def enter(self, process: Process, verb: str, path: str, *, is_border: bool = False) -> Fault | None:
        """The scheduling point before each call. Crashes and pauses take place here."""
        if process.is_dead:
            raise Crash
        self.scheduler.reach(is_border)
        if process.is_dead:
            raise Crash
        if self._late:
            self._take_place()
        self.calls_to_fault -= 1
        fault = None if self.calls_to_fault > 0 else self._strike(process, verb, path)
        self.trace.append((self.scheduler.now_ms, process.name, verb, path, fault))
        if fault is not None:
            self._befall(process, verb, path, fault)
        return fault

    def _strike(self, process: Process, verb: str, path: str) -> Fault | None:
        fault = self.faults.strike(process, verb, path)
        self.calls_to_fault = self.faults.calls_to_next()
        return fault

    def leave(self, process: Process, fault: Fault | None) -> None:
        """The point after an effect."""
        if fault is Fault.CRASH_AFTER:
            self.crash(process)

    def crash(self, process: Process) -> NoReturn:
        """Ends a process here and now."""
        self.witness.crashed(process)
        if not self.lock.can_be_lost:  # All on one host: what a process asks of the store ends with it.
            self._late = [late for late in self._late if late[1] is not process]
        self._end_lease(process)
        self.scheduler.kill(process)
        raise Crash

    def late(self, process: Process, effect: Callable[[], None]) -> None:
        """Has an effect take place some time later."""
        self._late.append((self.now_ms + LATE_MS, process, effect))

    def _take_place(self) -> None:
        for due in [late for late in self._late if late[0] <= self.now_ms]:
            self._late.remove(due)
            due[2]()

    def _befall(self, process: Process, verb: str, path: str, fault: Fault) -> None:
        self.reached[f"{process.label or 'start'} {fault.value}"] += 1
        self.reached[fault.value] += 1
        if verb == "publish" and path.startswith(".hoodie/timeline/") and fault in _UNKNOWN:
            self.reached["C5 C11"] += 1
        if fault is Fault.CRASH_BEFORE:
            self.crash(process)
        if fault is Fault.UNAVAILABLE:
            raise StorageUnavailableError(f"{verb} {path}", hint="simulated")
        if fault is Fault.PAUSE:
            self._pause(process, self.faults.pause_ms())
        elif fault is Fault.NO_BEATS:
            process.hiccup_ms = process.beats_from_ms = self.now_ms + self.faults.pause_ms()
        elif fault is Fault.CLOCK_BACK:
            process.skew_ms -= 3_600_000

    def _pause(self, process: Process, ms: int) -> None:
        hold = self.holder
        if self.lock.can_be_lost and hold is not None and hold.process is process and ms >= self.lock.lease_ms:
            hold.ends_ms = min(hold.ends_ms, self.now_ms + self.lock.lease_ms)
        process.hiccup_ms = process.wake_ms = self.now_ms + ms
        self.scheduler.sleep(ms)
        if process.is_dead:
            raise Crash

    def _end_lease(self, process: Process) -> None:
        for hold in self.holds:
            if hold.process is process and not hold.is_over:
                self.finish(hold)
                hold.ends_ms = min(hold.ends_ms, self.now_ms + (self.lock.lease_ms if self.lock.can_be_lost else 0))

    def finish(self, hold: Hold) -> None:
        """A section has ended: whatever begins from now on issues greater times."""
        hold.is_over = True
        self.floor = max([self.floor, *hold.issued])
        self.holds.remove(hold)

    def hold(self, process: Process) -> Hold | None:
        """Takes the lock, if it can be had."""
        current = self.holder
        if current is not None and current.ends_ms > self.now_ms:
            return None
        if current is not None and not current.is_over:
            current.process.is_zombie = True
            self.reached["takeover"] += 1
        self.holder = Hold(process, self.floor)
        self.holds.append(self.holder)
        return self.holder

    def _at(self, process: Process, label: str) -> None:
        process.label = label
        self.reached[label] += 1


class SimClock:
    """The clock of a process, which may be wrong."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now_ms(self) -> int:
        """The time, as far as this process knows."""
        return self._world.scheduler.now_ms + self._process.skew_ms

    def sleep(self, seconds: float) -> None:
        """Gives way for that time."""
        if self._process.is_dead:
            raise Crash
        self._world.scheduler.sleep(int(seconds * 1000))
        if self._process.is_dead:
            raise Crash


class SimBackground:
    """Timers of a process, and what it does beside its program: they crash and pause with it."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._later: list[Task] = []

    def later(self, action: Callable[[], None]) -> None:
        """Runs the action once, beside the program."""
        if self._process.is_dead:
            raise Crash
        self._later.append(self._world.scheduler.start(self._process, action))

    def drain(self) -> None:
        """Waits for what runs beside the program."""
        while any(task in self._world.scheduler.tasks for task in self._later):
            self._world.scheduler.sleep(1)
        self._later.clear()
        if self._process.is_dead:
            raise Crash

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        """Runs the action at that interval; an error of the store only costs one beat."""
        if self._process.is_dead:
            raise Crash

        def beat() -> bool:
            try:
                return action()
            except StorageUnavailableError:
                self._process.hiccup_ms = self._world.now_ms
                return True

        task = self._world.scheduler.every(self._process, int(seconds * 1000), beat)
        return lambda: self._stop(task)

    def _stop(self, task: Task) -> None:
        """Waits for a beat that is under way, as joining a thread does."""
        while task.thread is not None and task in self._world.scheduler.tasks:
            self._world.scheduler.sleep(1)
        if self._process.is_dead:
            raise Crash
        self._world.scheduler.end(task)


class SimLock:
    """The lock of the table, in the hands of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._hold: Hold | None = None

    @property
    def can_be_lost(self) -> bool:
        """Whether it is a lease."""
        return self._world.lock.can_be_lost

    def acquire(self) -> None:
        """Waits for the lock."""
        assert self._hold is None, "the lock is not reentrant"
        deadline = self._world.now_ms + self._world.lock.wait_ms
        while True:
            fault = self._world.enter(self._process, "acquire", "lock", is_border=True)
            hold = self._world.hold(self._process)
            if hold is not None:
                break
            if self._world.now_ms > deadline:
                raise LockUnavailableError("simulated lock", hint="simulated")
            self._world.scheduler.sleep(self._world.lock.wait_ms // 60)
        if fault is Fault.GHOST:
            hold.ends_ms = self._world.now_ms + self._world.lock.lease_ms
            self._world.finish(hold)
            raise LockUnavailableError("simulated lock", hint="simulated")
        self._hold = hold
        self._process.is_zombie = False
        self._world.leave(self._process, fault)

    def remaining(self) -> float:
        """Seconds until the lease ends, were it not renewed."""
        if not self.can_be_lost:
            return float("inf")
        if self._hold is None or self._hold.ends_ms <= self._world.now_ms or self._world.holder is not self._hold:
            return 0.0
        return self._world.lock.lease_ms / 1000

    def release(self) -> None:
        """Gives the lock up."""
        hold, self._hold = self._hold, None
        fault = self._world.enter(self._process, "release", "lock", is_border=True)
        if hold is None:
            return
        self._process.is_zombie = False
        if not hold.is_over:
            self._world.finish(hold)
        if self._world.holder is hold:
            lease = self._world.lock.lease_ms if fault is Fault.LOST_RELEASE and self.can_be_lost else 0
            hold.ends_ms = self._world.now_ms + lease
        self._world.leave(self._process, fault)


class SimStorage:
    """The store, as one process reaches it. Each call is a scheduling point."""

    url = "sim://table"

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self._store = world.store
        self._process = process
        self.counts = RequestCounts()

    def get(self, path: str) -> bytes:
        """The whole file; CorruptTableError if it is missing."""
        data = self.find(path)
        if data is None:
            raise CorruptTableError("the file is missing", path=path)
        return data

    def find(self, path: str) -> bytes | None:
        """The whole file, or None."""
        self.world.enter(self._process, "find", path)
        stored = self._store.get(path)
        return None if stored is None else stored.data

    def find_with_etag(self, path: str) -> tuple[bytes, str] | None:
        """The whole file with its etag, or None."""
        self.world.enter(self._process, "find", path)
        stored = self._store.get(path)
        return None if stored is None else (stored.data, stored.etag)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """A part of the file."""
        return self.get(path)[offset : offset + length]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Parts of the file."""
        data = self.get(path)
        return [data[offset : offset + length] for offset, length in ranges]

    def size(self, path: str) -> int | None:
        """The length of the file, or None."""
        self.world.enter(self._process, "size", path)
        stored = self._store.get(path)
        return None if stored is None else len(stored.data)

    def list(self, folder: str, *, recursive: bool = False) -> tuple[Listed, ...]:
        """The files in a folder, page by page if the world says so; others go on between pages."""
        self.world.enter(self._process, "list", folder)
        found = self._store.list_below(folder) if recursive else self._store.list(folder)
        size = self.world.page_size * (10 if recursive else 1)
        if not size or len(found) <= size:
            return found
        return self._read_pages(folder, recursive, found, size)

    def list_names(self, folder: str) -> tuple[str, ...]:
        """The names of the files in a folder, listed as any others."""
        return tuple(listed.path.rpartition("/")[2] for listed in self.list(folder))

    def list_folders(self, folder: str) -> tuple[str, ...]:
        """The immediate sub-folders."""
        self.world.enter(self._process, "list", folder)
        prefix = f"{folder}/" if folder else ""
        below = [name[len(prefix) :] for name in self._store.folders if name.startswith(prefix) and name != folder]
        return tuple(sorted({prefix + name.split("/")[0] for name in below}))

    def create(self, path: str, data: bytes) -> Outcome:
        """Writes a new file; refused if the path is taken."""
        return self._write("create", path, lambda: self._put_new(path, data))

    def create_all(self, files: Mapping[str, bytes]) -> dict[str, Outcome]:
        """Writes new files, one after the other."""
        return {path: self.create(path, data) for path, data in files.items()}

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        """Writes a file over what was there, or over that version."""
        return self._write("replace", path, lambda: self._put_over(path, data, etag))

    def delete(self, path: str) -> Outcome:
        """Removes a file."""
        return self._write("delete", path, lambda: self._remove(path))

    def open_ticket(self, ticket: Ticket) -> Outcome:
        """Brings a ticket to life."""
        return self._write("open_ticket", ticket.name, lambda: self._open(ticket))

    def find_tickets(self, instant: str) -> tuple[Ticket, ...]:
        """The live tickets of an instant."""
        self.world.enter(self._process, "find_tickets", instant)
        found = [ticket for ticket in self._store.tickets if ticket.instant == instant]
        return tuple(sorted(found, key=lambda ticket: ticket.name))

    def publish(self, ticket: Ticket, final: str, data: bytes) -> Outcome:
        """Creates a file if the ticket is alive."""

        def effect() -> Outcome:
            return self._put_new(final, data, published=True) if ticket in self._store.tickets else REFUSED

        return self._write("publish", final, effect)

    def revoke(self, ticket: Ticket, *, in_use: bool = True) -> Outcome:
        """Ends a ticket; what was asked for before and is late finds it ended."""
        del in_use
        return self._write("revoke", ticket.name, lambda: self._revoke(ticket))

    def source(self, path: str, size: int | None = None) -> BytesSource:
        """The file for codecs."""
        del size
        return BytesSource(self.get(path), path)

    def arrow_file(self, path: str) -> NoReturn:
        """Not simulated."""
        raise NotImplementedError(path)

    def uri(self, path: str) -> str:
        """Not a place that exists."""
        return f"{self.url}/{path}"

    def _write(self, verb: str, path: str, effect: Callable[[], Outcome]) -> Outcome:
        fault = self.world.enter(self._process, verb, path)
        if fault is None:
            return effect()
        if fault is Fault.LOST_BEFORE:
            return UNKNOWN
        if fault is Fault.LATE:
            self.world.late(self._process, lambda: void(effect()))
            return UNKNOWN
        outcome = effect()
        if fault is Fault.LOST_AFTER:
            return UNKNOWN
        self.world.leave(self._process, fault)
        return outcome

    def _read_pages(self, folder: str, recursive: bool, first: tuple[Listed, ...], size: int) -> tuple[Listed, ...]:
        """Page after page, each as the folder is then; what was listed first if nothing changed meanwhile."""
        read, pages = first, list(first[:size])
        while len(pages) < len(read) or read is not first:
            self.world.enter(self._process, "list", f"{folder} after {pages[-1].path}")
            read = self._store.list_below(folder) if recursive else self._store.list(folder)
            if read is first:
                pages = list(first[: len(pages) + size])
                continue
            rest = [one for one in read if one.path > pages[-1].path][:size]
            if not rest:
                return tuple(pages)
            pages += rest
        return first

    def _put_new(self, path: str, data: bytes, *, published: bool = False) -> Outcome:
        if self._store.get(path) is not None:
            return REFUSED
        self._store.put(path, data, self.world.now_ms)
        self.world.witness.wrote(self._process, path, data, published=published)
        return DONE

    def _put_over(self, path: str, data: bytes, etag: str | None) -> Outcome:
        stored = self._store.get(path)
        if etag is not None and (stored is None or stored.etag != etag):
            return REFUSED
        self._store.put(path, data, self.world.now_ms)
        self.world.witness.wrote(self._process, path, data, published=False)
        return DONE

    def _remove(self, path: str) -> Outcome:
        if self._store.remove(path):
            self.world.witness.removed(self._process, path)
        return DONE

    def _open(self, ticket: Ticket) -> Outcome:
        if ticket in self._store.tickets:
            return REFUSED
        self._store.tickets.add(ticket)
        if self._process.is_zombie:
            self.world.zombie_tickets.add(ticket)
        return DONE

    def _revoke(self, ticket: Ticket) -> Outcome:
        self._store.tickets.discard(ticket)
        return DONE


HEARTBEATS = ".hoodie/.heartbeat/"


class LeaseOnlyStorage(SimStorage):
    """The store as an engine without tickets reaches it: whoever holds the lock writes."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(world, process)
        self._imagined: set[Ticket] = set()
        self._beats: dict[str, bytes] = {}

    def find(self, path: str) -> bytes | None:
        """The whole file, or None."""
        return self._told(path, super().find(path))

    def find_with_etag(self, path: str) -> tuple[bytes, str] | None:
        """The whole file with its etag, or None."""
        found = super().find_with_etag(path)
        return None if found is None else (self._told(path, found[0]) or b"", found[1])

    def create(self, path: str, data: bytes) -> Outcome:
        """Writes a new file; refused if the path is taken."""
        return super().create(path, self._emptied(path, data))

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        """Writes a file over the one that is there."""
        return super().replace(path, self._emptied(path, data), etag=etag)

    def _emptied(self, path: str, data: bytes) -> bytes:
        """Heartbeats of such an engine are empty files: whose they are it remembers."""
        if not path.startswith(HEARTBEATS):
            return data
        self._beats[path] = data
        return b""

    def _told(self, path: str, found: bytes | None) -> bytes | None:
        return self._beats.get(path, found) if found == b"" else found

    def open_ticket(self, ticket: Ticket) -> Outcome:
        """Has no effect on anyone else."""
        self._imagined.add(ticket)
        return DONE

    def find_tickets(self, instant: str) -> tuple[Ticket, ...]:
        """Those of its own."""
        found = [ticket for ticket in self._imagined if ticket.instant == instant]
        return tuple(sorted(found, key=lambda ticket: ticket.name))

    def revoke(self, ticket: Ticket, *, in_use: bool = True) -> Outcome:
        """Has no effect on anyone else."""
        del in_use
        self._imagined.discard(ticket)
        return DONE

    def publish(self, ticket: Ticket, final: str, data: bytes) -> Outcome:
        """Just creates the file."""
        del ticket
        return self.create(final, data)


def void(_: object) -> None:
    """Forgets a result."""
