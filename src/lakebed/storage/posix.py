"""Durable writes on a POSIX file system, for `create`, `replace` and `publish` on a local disk.

A file is first staged under a temporary name, synced, and then given its final name in one step: by a hard
link where the name must be free, by a rename where it may be taken. The folder is synced after that, so the name
survives a power cut. No file is ever half-written under its final name. Files without meaning after a restart
of the machine are not synced (`is_passing`): a sync costs more than the rest of a write.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import TypeVar

from lakebed.storage.port import Outcome

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_SYNCS_AT_ONCE = 8
"""Number of concurrent syncs: a file system batches them, but on a shared disk each of them waits."""
_AT_ONCE_BYTES = 1 << 20
"""Size in bytes of a single write call. From twice this size on, some file systems try to allocate huge pages, and a
write takes ten times as long."""
_COUNTER = itertools.count()
_UNSURE = frozenset({errno.EIO, errno.ETIMEDOUT, errno.ESTALE})
"""Errors of a network file system after which the outcome of a rename or link is unknown."""


@contextmanager
def staged(folder: str, data: bytes | memoryview, *, is_passing: bool = False) -> Iterator[str]:
    """A new file with `data`, synced, in a folder that exists; it is gone afterwards unless it was renamed."""
    with staged_all(folder, [data], is_passing=is_passing) as (path,):
        yield path


@contextmanager
def staged_all(
    folder: str, contents: Iterable[bytes | memoryview], *, is_passing: bool = False
) -> Iterator[Sequence[str]]:
    """New files with these contents, all of them synced when this begins, and gone when it ends unless renamed.

    Those without content need no sync.
    """
    opened: list[tuple[int, str]] = []
    filled: list[int] = []
    try:
        try:
            for data in contents:
                opened.append(_open_new(folder))
                _write_all(opened[-1][0], data)
                filled += [opened[-1][0]] if len(data) else []
            if not is_passing:
                _at_once(os.fsync, filled)
        finally:
            for handle, _ in opened:
                os.close(handle)
        yield [path for _, path in opened]
    finally:
        for _, path in opened:
            with suppress(FileNotFoundError):
                os.unlink(path)


def link(source: str, final: str) -> Outcome:
    """Gives the staged file its final name too; refused if the name is taken. The caller syncs the folder."""
    try:
        return _unless_unsure(os.link, source, final)
    except FileExistsError:
        # A network file system may send the call again after a lost reply: two links mean that the name is ours.
        return Outcome.DONE if os.stat(source).st_nlink > 1 else Outcome.REFUSED


def rename(source: str, final: str) -> Outcome:
    """Moves a staged file over whatever has the final name. The caller syncs the folder."""
    return _unless_unsure(os.replace, source, final)


def unlink(path: str) -> Outcome:
    """Removes a file; done also if there is none. The caller syncs the folder."""
    with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return _unless_unsure(os.unlink, path)
    return Outcome.DONE


def sync(folder: str) -> Outcome:
    """Makes the names in a folder durable. Unknown if that fails: the change is visible, but may not last."""
    try:
        _sync(folder)
    except OSError:
        return Outcome.UNKNOWN
    return Outcome.DONE


def sync_all(folders: Iterable[str]) -> dict[str, Outcome]:
    """As `sync`, for several folders at once."""
    wanted = [*folders]
    return dict(zip(wanted, _at_once(sync, wanted), strict=True))


def dismiss(path: str) -> None:
    """Drops a file from the page cache, except dirty pages; does nothing where the system does not support it."""
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def make_folder(folder: str, *, is_passing: bool = False) -> None:
    """Creates the folder and the missing ones above it, durably."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folder(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    if not is_passing:
        _sync(parent)


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Holds an exclusive lock on replaces and deletes in this folder. The lock ends with the process.

    POSIX has no compare-and-swap for files. Comparing and renaming under this lock is one, as long as all replaces and
    deletes take it; a create need not, because it never touches an existing name.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def empty_and_remove(folder: str) -> None:
    """Removes the files of a folder, and the folder unless something new appeared in it."""
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
    remove_empty(folder)


def remove_empty(folder: str) -> None:
    """Removes a folder if nothing is in it."""
    with suppress(FileNotFoundError):
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


def _unless_unsure(change: Callable[..., None], *paths: str) -> Outcome:
    try:
        change(*paths)
    except OSError as error:
        if error.errno in _UNSURE:
            return Outcome.UNKNOWN
        raise
    return Outcome.DONE


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _at_once(wait: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    if len(items) < 2:
        return [wait(item) for item in items]
    return list(_threads().map(wait, items))


@cache
def _threads() -> ThreadPoolExecutor:
    """A persistent thread pool: starting threads takes longer than the syncs they wait for."""
    return ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="lakebed-sync")


os.register_at_fork(after_in_child=_threads.cache_clear)
"""A child process has none of the threads of its parent."""


def _open_new(folder: str) -> tuple[int, str]:
    # Another host, or a process of before the last boot, may have used the same number: then the next one.
    while True:
        path = os.path.join(folder, f"{os.getpid()}-{next(_COUNTER)}")
        with suppress(FileExistsError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path


def _write_all(handle: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view[:_AT_ONCE_BYTES]) :]
