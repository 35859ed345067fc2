"""On-disk cache of key tables: built once per file of the record index, shared by the processes of a host.

A table is named by the file that it was built from, so it is never stale; the timeline decides which files are visible.
A new log file adds a table, a new base file replaces them all. Everything can be deleted at any time: a table that is
missing, damaged, or built from another file or with another seed is rebuilt. A folder that other users can write to is
not used, because they could forge locations.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache

from lakebed.errors import InvalidInputError
from lakebed.index.record.key_table import KeyTable, KeyTables, encode_key_table, load_key_table
from lakebed.kernels.key_table import SEED_BYTES
from lakebed.metadata.table import ROOT
from lakebed.private_folder import NotPrivateError, make_private_folder, open_private
from lakebed.storage import Storage

FOLDER_VARIABLE, BYTES_VARIABLE = "LAKEBED_CACHE_DIR", "LAKEBED_CACHE_BYTES"
BYTES_MAX = 4 << 30
"""Default size limit of the cache in bytes: room for a hundred million keys."""
_HELD_AT_ONCE_BYTES = 1 << 20
"""Maximum size in bytes of a new table to keep in memory; larger ones are mapped from disk when needed."""
_WAITING_BYTES_MAX = 64 << 20
"""Maximum size in bytes of tables waiting to be stored."""
_STORED_UNSEEN_MAX = 100
"""Number of stored tables after which a process measures the folder again, since others store tables too."""
_ROOM_SHARE = 10
"""One part in this many of a full cache is freed at once."""
_SUFFIX = ".keys"
_SEED = "seed"
_OURS = re.compile(r"[0-9a-f]{40}\.keys(\..*\.tmp)?|seed\..*\.tmp")
"""Names of files that may be removed: a folder chosen by a user may hold other files."""
_LOG = logging.getLogger(__name__)
_COUNTER = itertools.count()


@dataclass(frozen=True, slots=True)
class ShardCache:
    """A folder of key tables of at most `bytes_max` bytes; with 0 nothing is cached. Picklable."""

    folder: str
    bytes_max: int = BYTES_MAX

    @property
    def seed(self) -> bytes:
        """The seed of fingerprints, one per folder. It is secret, so that nobody can construct colliding keys."""
        folder = self.folder if self.bytes_max else ""
        known = _SEEDS.get(folder)
        return known if known is not None else _SEEDS.setdefault(folder, _load_seed(folder))

    def find(self, identity: str) -> KeyTable | None:
        """The cached table of the file with that identity."""
        if not self.bytes_max:
            return None
        path = self._path(identity)
        waiting = _WAITING.get(path)
        if waiting is not None or not _touch(path):
            return waiting
        table = _HELD.find(path) or load_key_table(path, self.seed)
        if table is not None:
            _HELD.keep(path, table, self.bytes_max)
        return table

    def find_held(self, identity: str) -> KeyTable | None:
        """Like `find`, but only if this process has the table in memory."""
        path = self._path(identity)
        return _WAITING.get(path) or (_HELD.find(path) if self.bytes_max and _touch(path) else None)

    def find_together(self, identities: Sequence[str]) -> KeyTables | None:
        """Joined tables of the oldest files of a shard; `identities` are those of all its files, newest first.

        None unless this process keeps them joined, and the folder still has all of them.
        """
        if not self.bytes_max:
            return None
        paths = tuple(map(self._path, identities))
        known = _HELD.find_together(paths)
        if known is None or not all(map(_touch, paths[-len(known.tables) :])):
            return None
        return known

    def keep_together(self, identities: Sequence[str], tables: KeyTables) -> None:
        """Keeps the tables of a shard joined, as long as all of them are in memory."""
        _HELD.keep_together(tuple(map(self._path, identities)), tables, self.bytes_max)

    def keep(self, identity: str, table: KeyTable) -> None:
        """Stores a table if it fits, and evicts the least recently used ones."""
        if table.nbytes <= self.bytes_max:
            self._store(self._path(identity), table)

    def keep_soon(self, identity: str, table: KeyTable) -> None:
        """Like `keep`, but in the background, unless too much is waiting."""
        waiting = sum(each.nbytes for each in [*_WAITING.values()])
        if waiting + table.nbytes > min(self.bytes_max, _WAITING_BYTES_MAX):
            self.keep(identity, table)
            return
        path = self._path(identity)
        _WAITING[path] = table
        _background().submit(self._store_waiting, path)

    def _store_waiting(self, path: str) -> None:
        try:
            self._store(path, _WAITING[path])
        finally:
            del _WAITING[path]

    def _store(self, path: str, table: KeyTable) -> None:
        try:
            make_private_folder(self.folder)
            _write(path, encode_key_table(table, self.seed, os.path.basename(path)))
            if table.nbytes <= _HELD_AT_ONCE_BYTES:
                _HELD.keep(path, table, self.bytes_max)
            if _SIZES.is_above(self.folder, table.nbytes, self.bytes_max):
                _SIZES.note(self.folder, _shrink(self.folder, self.bytes_max))
        except OSError as error:
            _warn_once(self.folder, error)

    def _path(self, identity: str) -> str:
        return _path(self.folder, identity)


@lru_cache(maxsize=4096)
def _path(folder: str, identity: str) -> str:
    return os.path.join(folder, hashlib.blake2b(identity.encode(), digest_size=20).hexdigest() + _SUFFIX)


def default_cache() -> ShardCache:
    """The cache of this user; folder and size come from environment variables."""
    text = os.environ.get(BYTES_VARIABLE, str(BYTES_MAX))
    if not text.strip().isdecimal():
        raise InvalidInputError(
            f"the environment variable {BYTES_VARIABLE} is {text!r}",
            hint="give a number of bytes; 0 disables the cache",
        )
    folder = os.environ.get(FOLDER_VARIABLE) or _users_folder()
    return ShardCache(folder, int(text) if folder else 0)


def _users_folder() -> str:
    """The default folder of this user; "" for a user without a home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "lakebed", "keys") if os.path.isabs(home) else ""


def _warn_once(folder: str, error: OSError) -> None:
    """Warns, once per folder, that it cannot be used."""
    if folder not in _WARNED:
        _WARNED.add(folder)
        _LOG.warning(
            "the record index cache in %s is not used, which makes writes slower (%s); set %s to a folder of your own",
            folder,
            error,
            FOLDER_VARIABLE,
        )


_WARNED: set[str] = set()


class _HeldTables:
    """Tables in the memory of this process, least recently used first, and joined tables of shards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, KeyTable] = OrderedDict()
        self._shards: dict[str, tuple[tuple[str, ...], KeyTables]] = {}
        self._oldest: dict[str, str] = {}
        self._bytes = 0

    def find(self, path: str) -> KeyTable | None:
        """The table of a path."""
        with self._lock:
            return self._tables.get(path)

    def keep(self, path: str, table: KeyTable, bytes_max: int) -> None:
        """Adds a table, and evicts others beyond `bytes_max`."""
        with self._lock:
            if self._tables.get(path) is table:
                self._tables.move_to_end(path)
                return
            self._drop(path)
            self._tables[path] = table
            self._bytes += table.nbytes
            self._shrink(bytes_max)

    def find_together(self, paths: tuple[str, ...]) -> KeyTables | None:
        """The joined tables of the last of `paths`."""
        with self._lock:
            known, tables = self._shards.get(paths[-1], ((), None))
            if tables is None or paths[-len(known) :] != known:
                return None
            for path in known:
                self._tables.move_to_end(path)
            return tables

    def keep_together(self, paths: tuple[str, ...], tables: KeyTables, bytes_max: int) -> None:
        """Adds joined tables, if they fit and each of them is in memory."""
        with self._lock:
            are_held = all(self._tables.get(path) is table for path, table in zip(paths, tables.tables, strict=True))
            if not are_held or sum(table.nbytes for table in tables.tables) + tables.nbytes > bytes_max:
                return
            self._part(paths[-1])
            self._shards[paths[-1]] = paths, tables
            self._oldest.update(dict.fromkeys(paths, paths[-1]))
            self._bytes += tables.nbytes
            self._shrink(bytes_max)

    def _shrink(self, bytes_max: int) -> None:
        while self._bytes > bytes_max and len(self._tables) > 1:
            self._drop(next(iter(self._tables)))

    def _drop(self, path: str) -> None:
        """Drops a table, and the joined tables that contain it."""
        dropped = self._tables.pop(path, None)
        if dropped is not None:
            self._bytes -= dropped.nbytes
            self._part(self._oldest.get(path))

    def _part(self, oldest: str | None) -> None:
        """Drops the joined tables of a shard, which are named by its oldest file."""
        paths, tables = self._shards.pop(oldest, ((), None)) if oldest is not None else ((), None)
        if tables is not None:
            self._bytes -= tables.nbytes
            for path in paths:
                del self._oldest[path]


_HELD = _HeldTables()
_WAITING: dict[str, KeyTable] = {}
"""Tables waiting to be stored, by path."""


@cache
def _background() -> ThreadPoolExecutor:
    """The thread that stores tables; the process does not exit before it is done."""
    return ThreadPoolExecutor(1, thread_name_prefix="lakebed-cache")


def _forget_waiting() -> None:
    """A forked child has none of the threads of its parent, which stores what is waiting."""
    _background.cache_clear()
    _WAITING.clear()


os.register_at_fork(after_in_child=_forget_waiting)


class _KnownSizes:
    """Approximate sizes of folders: as last measured, plus what this process stored since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, int]] = {}

    def is_above(self, folder: str, added: int, bytes_max: int) -> bool:
        """Whether adding so many bytes may exceed the limit; if true, the caller must measure the folder."""
        with self._lock:
            size, stored = self._known.get(folder, (bytes_max, 0))
            is_due = size + added > bytes_max or stored >= _STORED_UNSEEN_MAX
            self._known[folder] = (0, 0) if is_due else (size + added, stored + 1)
            return is_due

    def note(self, folder: str, size: int) -> None:
        """Records a measured size."""
        with self._lock:
            since, stored = self._known.get(folder, (0, 0))
            self._known[folder] = size + since, stored


_SIZES = _KnownSizes()


def _touch(path: str) -> bool:
    """Marks a table as used; false if there is none."""
    try:
        os.utime(path, follow_symlinks=False)
    except PermissionError:
        return os.path.exists(path)
    except OSError:
        return False
    return True


def _write(path: str, parts: Iterable[bytes | memoryview]) -> None:
    """Writes a file atomically. It is not synced, which is slow; after a power cut its checksum fails."""
    with _staged(path, parts) as staged:
        os.replace(staged, path)


def _write_seed(path: str, seed: bytes) -> None:
    """Writes the seed of a folder durably, unless another process was faster."""
    with _staged(path, [seed], synced=True) as staged, suppress(FileExistsError):
        os.link(staged, path)


@contextmanager
def _staged(path: str, parts: Iterable[bytes | memoryview], *, synced: bool = False) -> Iterator[str]:
    staged = f"{path}.{os.getpid()}-{threading.get_ident()}-{next(_COUNTER)}.tmp"
    try:
        with open(staged, "xb", opener=_open_own) as file:
            for part in parts:
                file.write(part)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        yield staged
    finally:
        with suppress(OSError):
            os.unlink(staged)


def _open_own(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _shrink(folder: str, bytes_max: int) -> int:
    """Removes the least recently used files, half-written ones included; returns the bytes left.

    It removes more than needed, or the next table would call it again.
    """
    files = []
    for entry in os.scandir(folder):
        with suppress(OSError):
            if entry.is_file(follow_symlinks=False) and _OURS.fullmatch(entry.name):
                found = entry.stat(follow_symlinks=False)
                files.append((found.st_mtime_ns, found.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    wanted = bytes_max - bytes_max // _ROOM_SHARE if total > bytes_max else total
    for _, size, path in sorted(files):
        if total <= wanted:
            break
        with suppress(OSError):
            os.unlink(path)
        total -= size
    return total


_SEEDS: dict[str, bytes] = {}
"""Seeds of folders. They never change within a process, because tables in memory depend on them."""


def _load_seed(folder: str) -> bytes:
    """The seed of a folder, created by the first process; without a folder, a seed of this process alone."""
    fresh = secrets.token_bytes(SEED_BYTES)
    if not folder:
        return fresh
    path = os.path.join(folder, _SEED)
    try:
        make_private_folder(folder)
        _write_seed(path, fresh)
        known = _read_seed(path)
        if known is None:
            _write(path, [fresh])
        return known or fresh
    except OSError as error:
        _warn_once(folder, error)
        return fresh


def _read_seed(path: str) -> bytes | None:
    """The seed in a file; None if it is damaged, or another user may have written it."""
    try:
        with open(open_private(path), "rb") as file:
            seed = file.read(SEED_BYTES + 1)
    except NotPrivateError:
        return None
    return seed if len(seed) == SEED_BYTES else None


def file_identity(storage: Storage, path: str, size: int | None, completed_at: str) -> str | None:
    """A unique name of a stored file: location, size and completion time; None for tables in memory.

    The path is not enough: a table that is dropped and created again at the same path reuses file names.
    """
    if storage.url.startswith("memory:"):
        return None
    return "\n".join((storage.url, ROOT, path, str(size), completed_at))


Builder = Callable[[bytes], KeyTable]


def find_or_build(cache: ShardCache, identity: str | None, build: Builder) -> tuple[KeyTable, bool]:
    """A table, and whether it was cached. Without an identity it is built each time."""
    table = cache.find(identity) if identity is not None else None
    if table is not None:
        return table, True
    table = build(cache.seed)
    if identity is not None:
        cache.keep(identity, table)
    return table, False
