"""The storage interface: every part of lakebed reads and writes a table through it. Its requests are counted.

Paths are relative to the table's root, with `/` between names and no escaping, exactly as on disk or in object keys.
Reads return bytes or raise; they never create anything. Writes end in one of three outcomes, because the
answer of a store can get lost: an `UNKNOWN` write is settled by reading back, never by guessing.

Tickets are the fencing tokens of the commit protocol. A lease can expire while its holder is paused, so a lock alone
cannot stop a late completing write. A completed instant therefore appears only through `publish`, which works while its
ticket is alive; a process that takes over revokes the ticket first, and from then on the late write is refused.
"""

from __future__ import annotations

import builtins
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from typing import Literal, Protocol

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.model.source import ByteSource
from lakebed.storage.problems import too_large

TICKETS = ".hoodie/.tickets"
"""The folder of live tickets; other engines ignore it."""

_BAD_PATH = re.compile(r"\A/|/\Z|//|(?:\A|/)\.{1,2}(?:/|\Z)|\0")
_OF_TABLE = r"(?:\.hoodie/metadata/)?\.hoodie/"
_SMALL = r"\.?hoodie\.properties|\.(?:heartbeat|leases|locks|tickets|index_defs|cancelled)/|lock\Z|.*/_version_\Z"
_SIZES_MAX = (
    (16 << 20, re.compile(rf"{_OF_TABLE}(?:{_SMALL})|(?:.*/)?\.hoodie_partition_metadata", re.DOTALL)),
    (1 << 30, re.compile(rf"{_OF_TABLE}(?:timeline/)?[^/]+\Z")),
)
"""Maximum sizes in bytes of files read whole: config, locks and the like are tiny, instants grow with a commit."""
_GLOB = re.compile(r"([{}\[\]*?\\])")
_BAD_TICKET = re.compile(r"\A\Z|\A\.|[/\0]")


class Outcome(Enum):
    """How a write ended."""

    DONE = "done"
    """The write succeeded and is durable."""
    REFUSED = "refused"
    """The write had no effect: its condition did not hold."""
    UNKNOWN = "unknown"
    """The store did not report the outcome. Read back before anything else, and delete nothing until then."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of a listing."""

    path: str
    size: int
    modified: datetime
    etag: str | None = None
    """The store's name for this content, where its listings carry one; None on a local disk."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A fencing token: the right to complete one instant. The owner picks a unique `generation`, such as a token."""

    instant: str
    generation: str

    def __post_init__(self) -> None:
        assert not _BAD_TICKET.search(self.instant), self
        assert "-" not in self.instant, self
        assert not _BAD_TICKET.search(self.generation), self

    @property
    def name(self) -> str:
        """The ticket's name in the folder of tickets."""
        return f"{self.instant}-{self.generation}"

    @property
    def path(self) -> str:
        """The path of the ticket while it is alive."""
        return f"{TICKETS}/{self.name}"


def decode_ticket(name: str) -> Ticket | None:
    """The ticket with that name, or None for a name that no ticket has."""
    instant, dash, generation = name.partition("-")
    if not dash or _BAD_TICKET.search(instant) or _BAD_TICKET.search(generation):
        return None
    return Ticket(instant, generation)


def checked_path(path: str) -> str:
    """`path` if it names a file inside the root; else InvalidInputError."""
    if not path:
        raise _bad_path(path)
    return checked_folder(path)


def checked_folder(path: str) -> str:
    """`path` if it names a folder inside the root, or the root itself as ""; else InvalidInputError."""
    if _BAD_PATH.search(path):
        raise _bad_path(path)
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise _bad_path(path) from error
    return path


def check_whole_size(path: str, size: int) -> None:
    """CorruptTableError if a file is to be read as a whole that is larger than any of its kind."""
    for bytes_max, kind in _SIZES_MAX:
        if size > bytes_max and kind.match(path):
            raise too_large(path, size, bytes_max)


def spark_path(path: str) -> str:
    """A path as Spark's readers take it: with no percent-encoding, but the characters of glob patterns escaped."""
    return _GLOB.sub(r"\\\1", path)


def _bad_path(path: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path!r} is not a path inside the table",
        hint="use names joined by single slashes, without `.`, `..` or NUL; check the partition values",
    )


class Storage(Protocol):
    """A table's files. Every implementation keeps the same contract, and the same tests."""

    @property
    def url(self) -> str:
        """What the storage was opened with, made absolute; `open_storage` takes it."""
        ...

    @property
    def counts(self) -> RequestCounts:
        """The requests made so far."""
        ...

    def get(self, path: str) -> bytes:
        """The whole file; CorruptTableError if it is missing."""
        ...

    def find(self, path: str) -> bytes | None:
        """The whole file, or None if there is none."""
        ...

    def find_with_etag(self, path: str) -> tuple[bytes, str] | None:
        """The whole file and the etag for `replace`, or None if there is none.

        Equal bytes may have equal etags, so a file that is swapped should contain a token or a counter.
        """
        ...

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; CorruptTableError if the file is missing or shorter."""
        ...

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """The bytes of each (offset, length), as `get_range` gives them, in fewer requests where ranges are near."""
        ...

    def size(self, path: str) -> int | None:
        """The file's length in bytes, or None if there is none."""
        ...

    def list(self, folder: str, *, recursive: bool = False) -> tuple[Listed, ...]:
        """The files in a folder ("" is the root), by path; none for a missing folder.

        `recursive` descends into sub-folders; on a local disk it does not follow links to folders.
        """
        ...

    def list_names(self, folder: str) -> tuple[str, ...]:
        """The names of the files that `list` finds in a folder, in its order; takes less time on a local disk."""
        ...

    def list_folders(self, folder: str) -> tuple[str, ...]:
        """The paths of the immediate sub-folders, sorted; on a local disk also the empty ones."""
        ...

    def create(self, path: str, data: bytes | memoryview) -> Outcome:
        """Writes a new file: whole or not at all, durable, refused if the path is taken."""
        ...

    def create_all(self, files: Mapping[str, bytes]) -> dict[str, Outcome]:
        """`create` for each of files that do not depend on each other: a crash may leave any of them.

        Takes less time than one after the other. Not for heartbeats and markers.
        """
        ...

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        """Writes a file over what was there: whole or not at all, durable.

        With an `etag` it is refused unless the file exists with that etag. Only for mutable files: heartbeats, locks,
        the table config, index definitions.
        """
        ...

    def delete(self, path: str) -> Outcome:
        """Removes a file; done also if there is none."""
        ...

    def open_ticket(self, ticket: Ticket) -> Outcome:
        """Opens a ticket; refused if it is already open."""
        ...

    def find_tickets(self, instant: str) -> tuple[Ticket, ...]:
        """The live tickets of an instant, for a process that takes it over and does not know their generations."""
        ...

    def publish(self, ticket: Ticket, final: str, data: bytes) -> Outcome:
        """`create(final, data)`, refused also if the ticket is not alive. Only its one owner publishes by a ticket."""
        ...

    def revoke(self, ticket: Ticket, *, in_use: bool = True) -> Outcome:
        """Revokes a ticket: once this returns DONE, nothing can be published with it.

        With `in_use` false the caller knows that no publish with it is in flight, and does not wait.
        """
        ...

    def source(self, path: str, size: int | None = None) -> ByteSource:
        """The file for codecs that read in ranges. A known `size` saves asking for it."""
        ...

    def arrow_file(self, path: str) -> pa.NativeFile:
        """The file as Arrow reads it, in ranges. The caller closes it."""
        ...

    def dismiss(self, path: str) -> None:
        """Hints that a file will hardly be read again, so that caches may release it. Never fails."""
        ...

    def uri(self, path: str) -> str:
        """The url of this file or folder for Spark's own readers."""
        ...


Verb = Literal["gets", "ranged_gets", "heads", "lists", "opens", "creates", "replaces", "deletes"]


@dataclass(frozen=True, slots=True)
class Requests:
    """Request counts at one moment; subtract two to get what happened in between.

    A file that Arrow reads from a local disk by itself counts as one of `opens`, its bytes are not in `bytes_read`.
    """

    gets: int = 0
    ranged_gets: int = 0
    heads: int = 0
    lists: int = 0
    opens: int = 0
    creates: int = 0
    replaces: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __sub__(self, earlier: Requests) -> Requests:
        return Requests(*(getattr(self, name) - getattr(earlier, name) for name in _NAMES))


_NAMES = tuple(field.name for field in fields(Requests))


class RequestCounts:
    """The running count of one storage. Threads may add at the same time."""

    __slots__ = ("_lock", "_numbers")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = dict.fromkeys(_NAMES, 0)

    def add(self, verb: Verb, *, times: int = 1, read: int = 0, written: int = 0) -> None:
        """Counts one request, or several, and the bytes that moved."""
        with self._lock:
            self._numbers[verb] += times
            self._numbers["bytes_read"] += read
            self._numbers["bytes_written"] += written

    def snapshot(self) -> Requests:
        """The numbers now."""
        with self._lock:
            return Requests(**self._numbers)
