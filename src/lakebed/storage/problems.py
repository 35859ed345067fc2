"""Storage failures as lakebed's errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.errors import CorruptTableError, InvalidInputError, LakebedError, StorageUnavailableError

_DENIED_HINT = "check the permissions or credentials of this process on the table"
_TRY_AGAIN = "run it again; if it fails again, check the store and the connection to it"

_INVALID = {
    errno.EACCES: ("permission denied", _DENIED_HINT),
    errno.EPERM: ("operation not permitted", "check the permissions; the file system must also know hard links"),
    errno.EROFS: ("the file system is read-only", "mount it writable, or only read the table"),
    errno.ENAMETOOLONG: ("the name is too long", "use shorter partition values or a shorter table path"),
    errno.EINVAL: ("the file system refuses this name", "use partition values that it takes as folder names"),
    errno.EXDEV: ("the folder lies on another file system than the table's root", "keep a table on one file system"),
    errno.ELOOP: ("the path runs through too many links", "point the table at the real folder"),
}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def missing(path: str) -> CorruptTableError:
    """The file should exist and does not."""
    return CorruptTableError(
        "the file is missing",
        path=path,
        hint="a cleaner may have removed it since: read the table again; if it stays missing, restore it from a backup",
    )


def no_file(path: str) -> CorruptTableError:
    """What has this name is not a regular file."""
    return CorruptTableError(
        "this is a pipe, a socket or a device", path=path, hint="remove it, then restore the file from a backup"
    )


def too_large(path: str, size: int, bytes_max: int) -> CorruptTableError:
    """No file of this kind has so many bytes."""
    return CorruptTableError(f"the file has {size} bytes; such files have at most {bytes_max}", path=path)


def too_short(path: str, offset: int, length: int, size: int) -> CorruptTableError:
    """A range reaches outside the file."""
    return CorruptTableError(f"{length} bytes expected, the file has {size}", path=path, offset=offset)


def denied(path: str) -> InvalidInputError:
    """The store denied access."""
    return InvalidInputError(f"{path}: permission denied", hint=_DENIED_HINT)


def unavailable(path: str, why: object) -> StorageUnavailableError:
    """The store failed for a reason that may be temporary."""
    return StorageUnavailableError(f"{path}: the store did not answer ({why})", hint=_TRY_AGAIN)


def from_os_error(error: OSError, path: str) -> LakebedError:
    """The error of the operating system, told apart by what the caller should do."""
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return missing(path)
    if error.errno == errno.ENXIO:  # What is opened is a socket.
        return no_file(path)
    if error.errno in _FULL:
        return StorageUnavailableError(
            f"{path}: no space left for the file, nothing was written", hint="free space, then run it again"
        )
    if error.errno in _INVALID:
        what, hint = _INVALID[error.errno]
        return InvalidInputError(f"{path}: {what}", hint=hint)
    return unavailable(path, error)


@contextmanager
def os_errors_typed(path: str) -> Iterator[None]:
    """Whatever the operating system raises inside becomes a LakebedError that names `path`."""
    try:
        yield
    except OSError as error:
        raise from_os_error(error, path) from error
