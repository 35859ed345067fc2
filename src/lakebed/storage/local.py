"""A table on a local disk, or on a network file system that is mounted as one.

This does not use the object-store library, which does not sync what it creates, stages files beside the final ones,
cannot list a folder in which a name contains a control character, and is 20 times slower for a small range.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from itertools import islice

import pyarrow as pa

from lakebed.model.source import ByteSource
from lakebed.storage import posix
from lakebed.storage.port import (
    TICKETS,
    Listed,
    Outcome,
    RequestCounts,
    Ticket,
    check_whole_size,
    checked_folder,
    checked_path,
    decode_ticket,
    spark_path,
)
from lakebed.storage.problems import missing, no_file, os_errors_typed, too_short
from lakebed.storage.ranged import open_source

_STAGING = ".hoodie/.staging"
"""Staging area: new files are written here and then linked to their names. A crash leaves files only here."""
_MARKERS = ".hoodie/.temp/"
"""Folders below it are removed with their last file. Each belongs to one instant, so there are no other writers."""
_PASSING = (_MARKERS, ".hoodie/.heartbeat/", f"{TICKETS}/.clock")
"""Paths that are not synced: they describe running processes, which do not survive a power cut."""
_OPEN_MAX = 64
"""Maximum number of new files open at a time."""
_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags for opening files; non-blocking, so that a pipe in the place of a file cannot block."""


class LocalStorage:
    """Storage under one folder. The folder need not exist; only a write creates it."""

    __slots__ = ("_root", "counts", "url")

    def __init__(self, root: str) -> None:
        self.url = root
        self.counts = RequestCounts()
        self._root = root

    def __reduce__(self) -> tuple[object, ...]:
        return LocalStorage, (self._root,)

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    def get(self, path: str) -> bytes:
        """The whole file; CorruptTableError if it is missing."""
        data = self.find(path)
        if data is None:
            raise missing(path)
        return data

    def find(self, path: str) -> bytes | None:
        """The whole file, or None if there is none."""
        with os_errors_typed(path):
            data = _find(self._file(path), path)
        self.counts.add("gets", read=len(data or b""))
        return data

    def find_with_etag(self, path: str) -> tuple[bytes, str] | None:
        """The whole file and the digest of its bytes, or None if there is none."""
        data = self.find(path)
        etag = _etag(data)
        return None if data is None or etag is None else (data, etag)

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        return self.get_ranges(path, ((offset, length),))[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """The bytes of each (offset, length)."""
        with os_errors_typed(path):
            handle = os.open(self._file(path), _READ)
            try:
                size = _size(os.fstat(handle), path)
                parts = [_read_exactly(handle, path, offset, length, size) for offset, length in ranges]
            finally:
                os.close(handle)
        self.counts.add("ranged_gets", read=sum(map(len, parts)))
        return parts

    def size(self, path: str) -> int | None:
        """The file's length in bytes, or None if there is none."""
        self.counts.add("heads")
        with os_errors_typed(path), suppress(*_ABSENT):
            found = os.stat(self._file(path))
            return found.st_size if stat.S_ISREG(found.st_mode) else None
        return None

    def list(self, folder: str, *, recursive: bool = False) -> tuple[Listed, ...]:
        """The files in a folder, by path; none for a missing folder."""
        found: builtins.list[Listed] = []
        pending = [checked_folder(folder)]
        while pending:
            here = pending.pop()
            with os_errors_typed(here):
                for entry in self._entries(here):
                    path = _join(here, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        pending += [path] if recursive else []
                    elif (listed := _listed(entry, path)) is not None:
                        found.append(listed)
        return tuple(sorted(found, key=lambda listed: listed.path))

    def list_names(self, folder: str) -> tuple[str, ...]:
        """The names of the files in a folder, sorted; reads only the folder, not its files."""
        entries = self._entries(checked_folder(folder))
        with os_errors_typed(folder):
            return tuple(sorted([entry.name for entry in entries if entry.is_file()]))

    def list_folders(self, folder: str) -> tuple[str, ...]:
        """The paths of the immediate sub-folders, sorted."""
        entries = self._entries(checked_folder(folder))
        return tuple(sorted(_join(folder, entry.name) for entry in entries if entry.is_dir()))

    def create(self, path: str, data: bytes | memoryview) -> Outcome:
        """Writes a new file by a hard link to a staged one."""
        return self._create({path: data}, is_passing=path.startswith(_PASSING))[path]

    def create_all(self, files: Mapping[str, bytes]) -> dict[str, Outcome]:
        """Writes new files, some at a time: their bytes are synced together, and each folder once."""
        outcomes: dict[str, Outcome] = {}
        paths = iter(files)
        while some := {path: files[path] for path in islice(paths, _OPEN_MAX)}:
            outcomes |= self._create(some)
        return outcomes

    def _create(self, files: Mapping[str, bytes | memoryview], *, is_passing: bool = False) -> dict[str, Outcome]:
        finals = {path: self._file(path) for path in files}
        self.counts.add("creates", times=len(files), written=sum(map(len, files.values())))
        with os_errors_typed(", ".join(files)):
            outcomes = {path: Outcome.REFUSED for path, final in finals.items() if os.path.lexists(final)}
            new = {path: os.path.dirname(final) for path, final in finals.items() if path not in outcomes}
            for folder in {*new.values()}:
                posix.make_folder(folder, is_passing=is_passing)
            with posix.staged_all(self._staging(), [files[path] for path in new], is_passing=is_passing) as sources:
                for path, source in zip(new, sources, strict=True):
                    outcomes[path] = posix.link(source, finals[path])
                named = [path for path in new if outcomes[path] is Outcome.DONE and not is_passing]
                synced = posix.sync_all({new[path] for path in named})
        return outcomes | {path: synced[new[path]] for path in named}

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        """Writes a file by renaming a staged one over it; with an etag, if the bytes there still have it."""
        final = self._file(path)
        folder = os.path.dirname(final)
        self.counts.add("replaces", written=len(data))
        with os_errors_typed(path):
            if etag is not None and not os.path.isfile(final):
                return Outcome.REFUSED
            is_passing = path.startswith(_PASSING)
            posix.make_folder(folder)
            with posix.staged(self._staging(), data, is_passing=is_passing) as source, posix.locked(folder):
                if etag is not None and _etag(_find(final, path)) != etag:
                    return Outcome.REFUSED
                outcome = posix.rename(source, final)
            return outcome if is_passing or outcome is not Outcome.DONE else posix.sync(folder)

    def delete(self, path: str) -> Outcome:
        """Removes a file; done also if there is none."""
        final = self._file(path)
        folder = os.path.dirname(final)
        self.counts.add("deletes")
        if not os.path.lexists(final):
            return Outcome.DONE
        with os_errors_typed(path), suppress(*_ABSENT):
            with posix.locked(folder):
                outcome = posix.unlink(final)
            if outcome is Outcome.DONE and not path.startswith(_PASSING):
                outcome = posix.sync(folder)
            if path.startswith(_MARKERS):
                posix.remove_empty(folder)
            return outcome
        return Outcome.DONE

    def open_ticket(self, ticket: Ticket) -> Outcome:
        """Makes the ticket's folder; refused if it is there. Not synced: its owner does not outlive the machine."""
        self.counts.add("creates")
        with os_errors_typed(ticket.path):
            posix.make_folder(self._file(TICKETS))
            try:
                os.mkdir(self._file(ticket.path))
            except FileExistsError:
                return Outcome.REFUSED
            return Outcome.DONE

    def find_tickets(self, instant: str) -> tuple[Ticket, ...]:
        """The live tickets of an instant."""
        tickets = (decode_ticket(os.path.basename(folder)) for folder in self.list_folders(TICKETS))
        return tuple(ticket for ticket in tickets if ticket is not None and ticket.instant == instant)

    def publish(self, ticket: Ticket, final: str, data: bytes) -> Outcome:
        """Stages inside the ticket's folder and links out of it: without the folder there is nothing to link."""
        target, folder = self._file(final), self._file(ticket.path)
        self.counts.add("creates", written=len(data))
        with os_errors_typed(final):
            if not os.path.isdir(folder) or os.path.lexists(target):
                return Outcome.REFUSED
            posix.make_folder(os.path.dirname(target))
            try:
                with posix.staged(folder, data) as source:
                    outcome = posix.link(source, target)
                    return outcome if outcome is not Outcome.DONE else posix.sync(os.path.dirname(target))
            except FileNotFoundError:
                if os.path.isdir(folder):
                    raise
                return Outcome.REFUSED

    def revoke(self, ticket: Ticket, *, in_use: bool = True) -> Outcome:
        """Moves the ticket's folder away, then removes what was staged in it: it never waits.

        The second step is for a link that had already looked its source up when the folder moved: it fails once the
        source has no name left, or it took place before this returns.
        """
        del in_use
        alive, dead = self._file(ticket.path), self._file(f"{TICKETS}/.revoked-{ticket.name}")
        self.counts.add("deletes")
        with os_errors_typed(ticket.path):
            if not os.path.isdir(self._file(TICKETS)):
                return Outcome.DONE
            with suppress(FileNotFoundError):
                if posix.rename(alive, dead) is Outcome.UNKNOWN:
                    return Outcome.UNKNOWN
            posix.empty_and_remove(dead)
            return Outcome.DONE

    def source(self, path: str, size: int | None = None) -> ByteSource:
        """The file for codecs that read in ranges."""
        return open_source(self, path, size)

    def arrow_file(self, path: str) -> pa.NativeFile:
        """The file as Arrow reads it; not memory-mapped, as a file that shrinks under a map ends the process."""
        file = self._file(path)
        self.counts.add("opens")
        with os_errors_typed(path):
            _size(os.stat(file), path)
            return pa.OSFile(file, "r")

    def dismiss(self, path: str) -> None:
        """Releases the file's page cache for files written next: on a virtual machine fresh pages cost far more."""
        posix.dismiss(self._file(path))

    def uri(self, path: str) -> str:
        """The path as Spark takes it: not percent-encoded, but with the characters of glob patterns escaped."""
        return "file:" + spark_path(_join(self._root, checked_folder(path)))

    def _file(self, path: str) -> str:
        return f"{self._root}/{checked_path(path)}"

    def _staging(self) -> str:
        folder = self._file(_STAGING)
        posix.make_folder(folder)
        return folder

    def _entries(self, folder: str) -> Iterable[os.DirEntry[str]]:
        self.counts.add("lists")
        with os_errors_typed(folder), suppress(*_ABSENT), os.scandir(f"{self._root}/{folder}") as entries:
            return tuple(entries)
        return ()


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name


def _listed(entry: os.DirEntry[str], path: str) -> Listed | None:
    """The listed file; None if it is not a file or was deleted meanwhile."""
    try:
        if not entry.is_file():
            return None
        found = entry.stat()
    except FileNotFoundError:
        return None
    return Listed(path, found.st_size, datetime.fromtimestamp(found.st_mtime, timezone.utc))


def _read_exactly(handle: int, path: str, offset: int, length: int, size: int) -> bytes:
    # Checked before reading: the length may come from hostile bytes, and a read allocates what it is asked for.
    if offset < 0 or length < 0 or offset + length > size:
        raise too_short(path, offset, length, size)
    data = os.pread(handle, length, offset)
    while len(data) < length:  # One call moves 2 GiB at most.
        more = os.pread(handle, length - len(data), offset + len(data))
        if not more:
            raise too_short(path, offset, length, offset + len(data))
        data += more
    return data


def _find(file: str, path: str) -> bytes | None:
    try:
        with io.FileIO(file, "rb", opener=_open_to_read) as opened:
            check_whole_size(path, _size(os.fstat(opened.fileno()), path))
            return opened.readall()
    except _ABSENT:
        return None


def _open_to_read(file: str, _flags: int) -> int:
    return os.open(file, _READ)


def _size(found: os.stat_result, path: str) -> int:
    """The length of a file; an error for a pipe or a device, which may have no end."""
    if not stat.S_ISREG(found.st_mode):
        raise IsADirectoryError(path) if stat.S_ISDIR(found.st_mode) else no_file(path)
    return found.st_size


def _etag(data: bytes | None) -> str | None:
    return None if data is None else hashlib.blake2b(data, digest_size=16).hexdigest()
