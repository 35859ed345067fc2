"""Storages for tests: one that injects faults, and one that must not be written.

    storage = FaultyStorage(open_storage("memory://t"), at({3: Fault.CRASH_AFTER}))

The plan is a function from a call to its fault, so a schedule is replayed by its seed or its list. A crash is a
BaseException that no protocol code may catch. It is final: a dead process has no further effect, so calls from
`finally` blocks fail too. A restart is a new FaultyStorage over the same inner storage.
"""

from __future__ import annotations

import builtins
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn, TypeVar

import pyarrow as pa

from lakebed.model.source import ByteSource
from lakebed.storage.port import Listed, Outcome, RequestCounts, Storage, Ticket
from lakebed.storage.problems import too_short, unavailable
from lakebed.storage.ranged import open_arrow_file, open_source

T = TypeVar("T")


class Crash(BaseException):
    """The process died here."""


class Fault(Enum):
    """The faults of a call."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    UNAVAILABLE = "unavailable"
    """The store did nothing and asks to retry."""
    LOST_BEFORE = "lost before"
    """A write is unknown, and did not take place."""
    LOST_AFTER = "lost after"
    """A write is unknown, and took place."""
    REFUSE = "refuse"
    """A write is refused for no reason."""
    TRUNCATE = "truncate"
    """A read returns the first half of the bytes, as if the file were torn."""
    FLIP = "flip"
    """A read returns the bytes with one bit flipped."""


ANY_CALL = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.UNAVAILABLE})
ANY_WRITE = ANY_CALL | {Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.REFUSE}
NEVER_REFUSED = ANY_WRITE - {Fault.REFUSE}
ANY_READ = ANY_CALL | {Fault.TRUNCATE, Fault.FLIP}


@dataclass(frozen=True, slots=True)
class Call:
    """One call on a storage. Calls are numbered from 1."""

    number: int
    verb: str
    path: str
    possible: frozenset[Fault]
    """The faults that make sense for this call."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A call as it went."""

    call: Call
    fault: Fault | None

    def __str__(self) -> str:
        fault = f"  <- {self.fault.value}" if self.fault else ""
        return f"{self.call.number} {self.call.verb} {self.call.path}{fault}"


Plan = Callable[[Call], Fault | None]


def no_faults(call: Call) -> None:
    """The plan without faults."""
    del call


def at(faults: Mapping[int, Fault]) -> Plan:
    """A plan from call numbers to faults."""
    return lambda call: faults.get(call.number)


def on(verb: str, fault: Fault, *, path: str = "", nth: int = 1) -> Plan:
    """A plan with one fault: on the nth call of a verb on paths that contain `path`."""
    seen = 0

    def decide(call: Call) -> Fault | None:
        nonlocal seen
        seen += call.verb == verb and path in call.path
        return fault if seen == nth and call.verb == verb and path in call.path else None

    return decide


def seeded(seed: int, *, rate: float, kinds: frozenset[Fault] = frozenset(Fault)) -> Plan:
    """A plan with a fault on each call with probability `rate`: one of the `kinds` that are possible for it."""
    dice = random.Random(seed)

    def decide(call: Call) -> Fault | None:
        struck, pick = dice.random() < rate, dice.random()
        choices = sorted(call.possible & kinds, key=lambda fault: fault.value)
        return choices[int(pick * len(choices))] if struck and choices else None

    return decide


class FaultyStorage:
    """Storage over another one, with faults by plan and a trace of all calls.

    With `page_size` a listing is read in pages of that many names, each by a request that starts after the last name
    seen, and `between_pages` runs in between: this is how the listing of an object store can miss a file.
    """

    def __init__(
        self,
        inner: Storage,
        plan: Plan = no_faults,
        *,
        page_size: int | None = None,
        between_pages: Callable[[], None] = lambda: None,
    ) -> None:
        self.inner = inner
        self.trace: builtins.list[Traced] = []
        self._plan = plan
        self._page_size = page_size
        self._between_pages = between_pages
        self._dead = False

    @property
    def url(self) -> str:
        """The inner storage's url."""
        return self.inner.url

    @property
    def counts(self) -> RequestCounts:
        """The inner storage's counts."""
        return self.inner.counts

    def get(self, path: str) -> bytes:
        """The whole file, perhaps damaged."""
        return self._read("get", path, lambda: self.inner.get(path), _damaged)

    def find(self, path: str) -> bytes | None:
        """The whole file, perhaps damaged, or None."""
        return self._read("find", path, lambda: self.inner.find(path), _damaged_if_found)

    def find_with_etag(self, path: str) -> tuple[bytes, str] | None:
        """The whole file, perhaps damaged, and its true etag, or None."""
        return self._read("find_with_etag", path, lambda: self.inner.find_with_etag(path), _damaged_with_etag)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes, perhaps damaged; a truncated file is too short."""
        return self._read(
            "get_range",
            path,
            lambda: self.inner.get_range(path, offset, length),
            lambda data, how: _damaged_range(data, how, path, offset),
        )

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """The bytes of each range, all damaged or none."""
        return self._read(
            "get_ranges",
            path,
            lambda: self.inner.get_ranges(path, ranges),
            lambda parts, how: [
                _damaged_range(part, how, path, offset) for part, (offset, _) in zip(parts, ranges, strict=True)
            ],
        )

    def size(self, path: str) -> int | None:
        """The file's length in bytes, or None."""
        return self._call("size", path, lambda: self.inner.size(path))

    def list(self, folder: str, *, recursive: bool = False) -> tuple[Listed, ...]:
        """The files in a folder, page by page."""
        if self._page_size is None:
            return self._call("list", folder, lambda: self.inner.list(folder, recursive=recursive))
        found: builtins.list[Listed] = []
        while True:
            last = found[-1].path if found else ""
            now = self._call("list", folder, lambda: self.inner.list(folder, recursive=recursive))
            rest = [listed for listed in now if listed.path > last]
            found += rest[: self._page_size]
            if len(rest) <= self._page_size:
                return tuple(found)
            self._between_pages()

    def list_names(self, folder: str) -> tuple[str, ...]:
        """The names of the files in a folder, page by page."""
        return tuple(listed.path.rpartition("/")[2] for listed in self.list(folder))

    def list_folders(self, folder: str) -> tuple[str, ...]:
        """The paths of the immediate sub-folders."""
        return self._call("list_folders", folder, lambda: self.inner.list_folders(folder))

    def create(self, path: str, data: bytes | memoryview) -> Outcome:
        """Writes a new file."""
        return self._write("create", path, lambda: self.inner.create(path, data))

    def create_all(self, files: Mapping[str, bytes]) -> dict[str, Outcome]:
        """Writes new files, each by a call of its own."""
        return {path: self.create(path, data) for path, data in files.items()}

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        """Writes a file over what was there."""
        return self._write("replace", path, lambda: self.inner.replace(path, data, etag=etag))

    def delete(self, path: str) -> Outcome:
        """Removes a file."""
        return self._write("delete", path, lambda: self.inner.delete(path), NEVER_REFUSED)

    def open_ticket(self, ticket: Ticket) -> Outcome:
        """Opens a ticket."""
        return self._write("open_ticket", ticket.path, lambda: self.inner.open_ticket(ticket))

    def find_tickets(self, instant: str) -> tuple[Ticket, ...]:
        """The live tickets of an instant."""
        return self._call("find_tickets", instant, lambda: self.inner.find_tickets(instant))

    def publish(self, ticket: Ticket, final: str, data: bytes) -> Outcome:
        """Creates `final` while the ticket is alive."""
        return self._write("publish", final, lambda: self.inner.publish(ticket, final, data))

    def revoke(self, ticket: Ticket, *, in_use: bool = True) -> Outcome:
        """Revokes a ticket."""
        return self._write("revoke", ticket.path, lambda: self.inner.revoke(ticket, in_use=in_use), NEVER_REFUSED)

    def source(self, path: str, size: int | None = None) -> ByteSource:
        """The file for codecs, through this storage's faults."""
        return open_source(self, path, size)

    def arrow_file(self, path: str) -> pa.NativeFile:
        """The file for Arrow, through this storage's faults."""
        return open_arrow_file(self, path)

    def dismiss(self, path: str) -> None:
        """Passed on: what never fails has no faults."""
        self.inner.dismiss(path)

    def uri(self, path: str) -> str:
        """The inner storage's uri."""
        return self.inner.uri(path)

    def _call(self, verb: str, path: str, run: Callable[[], T]) -> T:
        fault = self._begin(verb, path, ANY_CALL)
        result = run()
        self._end(fault)
        return result

    def _read(self, verb: str, path: str, run: Callable[[], T], damage: Callable[[T, Fault], T]) -> T:
        fault = self._begin(verb, path, ANY_READ)
        result = run()
        self._end(fault)
        return damage(result, fault) if fault in (Fault.TRUNCATE, Fault.FLIP) else result

    def _write(
        self, verb: str, path: str, run: Callable[[], Outcome], possible: frozenset[Fault] = ANY_WRITE
    ) -> Outcome:
        fault = self._begin(verb, path, possible)
        if fault is Fault.REFUSE:
            return Outcome.REFUSED
        if fault is Fault.LOST_BEFORE:
            return Outcome.UNKNOWN
        outcome = run()
        self._end(fault)
        return Outcome.UNKNOWN if fault is Fault.LOST_AFTER else outcome

    def _begin(self, verb: str, path: str, possible: frozenset[Fault]) -> Fault | None:
        if self._dead:
            raise Crash(f"{verb} {path}: the process is dead already")
        call = Call(len(self.trace) + 1, verb, path, possible)
        fault = self._plan(call)
        assert fault is None or fault in possible, f"{fault} cannot befall {call}"
        self.trace.append(Traced(call, fault))
        if fault is Fault.CRASH_BEFORE:
            self._die()
        if fault is Fault.UNAVAILABLE:
            raise unavailable(path, "a fault by plan")
        return fault

    def _end(self, fault: Fault | None) -> None:
        if fault is Fault.CRASH_AFTER:
            self._die()

    def _die(self) -> NoReturn:
        self._dead = True
        raise Crash(str(self.trace[-1]))


class ReadOnlyStorage(FaultyStorage):
    """Storage in which every write fails an assertion, to prove that reads do not write."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, _no_writes)


def _no_writes(call: Call) -> None:
    if call.possible >= NEVER_REFUSED:
        raise AssertionError(f"{call.verb} {call.path}: a read must not write")


def _damaged(data: bytes, how: Fault) -> bytes:
    half = len(data) // 2
    if how is Fault.TRUNCATE or not data:
        return data[:half]
    return data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]


def _damaged_if_found(data: bytes | None, how: Fault) -> bytes | None:
    return None if data is None else _damaged(data, how)


def _damaged_with_etag(found: tuple[bytes, str] | None, how: Fault) -> tuple[bytes, str] | None:
    return None if found is None else (_damaged(found[0], how), found[1])


def _damaged_range(data: bytes, how: Fault, path: str, offset: int) -> bytes:
    damaged = _damaged(data, how)
    if len(damaged) < len(data):
        raise too_short(path, offset, len(data), offset + len(damaged))
    return damaged
