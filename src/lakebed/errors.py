"""Errors that lakebed raises on purpose. Classes differ by what the caller should do next.

LakebedError
├── InvalidInputError          fix the call
├── UnsupportedTableError      unsupported table version or feature
├── CorruptTableError          a file of the table violates the format
├── SnapshotExpiredError       files of the snapshot were cleaned: read again   (retryable)
├── WriteConflictError         run the write again            (retryable)
│   ├── RolledBackError        another process presumed this write dead and rolled it back
│   └── TableRestoredError     the table was, or is being, restored to an earlier instant
├── ServiceRunningError        another process is executing the plan   (retryable)
├── ServiceCancelledError      schedule a new plan
├── LockUnavailableError       the table lock is held by others, or was lost   (retryable)
├── StorageUnavailableError    the store did not answer       (retryable)
└── CommitUnknownError         check the timeline before running the write again
"""

from __future__ import annotations

from typing import ClassVar


class LakebedError(Exception):
    """Base of all errors that lakebed raises on purpose; subclasses differ by what the caller should do."""

    retryable: ClassVar[bool] = False

    def __init__(self, what: str, *, hint: str) -> None:
        what, hint = _printable(what), _printable(hint)
        super().__init__(f"{what}\n  hint: {hint}")
        self.what = what
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from Spark workers to the driver: keep them picklable despite the keyword.
        return _rebuild, (type(self), self.what, dict(self.__dict__))


class InvalidInputError(LakebedError):
    """The call is invalid: a wrong path, column, filter or option."""


class UnsupportedTableError(LakebedError):
    """The table is valid, but has a version or a feature that lakebed does not support."""


class CorruptTableError(LakebedError):
    """A file of the table violates the format. `path` and `offset` say where."""

    def __init__(
        self,
        what: str,
        *,
        path: str,
        offset: int | None = None,
        hint: str = "restore the file from a backup, or read the table as of an earlier instant",
    ) -> None:
        where = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{where}: {what}", hint=hint)
        self.path = path
        self.offset = offset


class SnapshotExpiredError(LakebedError):
    """Files of the snapshot were cleaned while it was read; a newer snapshot can be read."""

    retryable = True


class WriteConflictError(LakebedError):
    """Another writer committed first on the same file groups."""

    retryable = True


class RolledBackError(WriteConflictError):
    """Another process presumed this write dead, because its heartbeat expired, and rolled it back."""


class TableRestoredError(WriteConflictError):
    """The table was, or is being, restored to an earlier instant while this write ran."""


class ServiceRunningError(LakebedError):
    """Another process is executing the same plan of a table service."""

    retryable = True


class ServiceCancelledError(LakebedError):
    """The plan of a table service was cancelled, or must be rolled back; it will not be executed."""


class LockUnavailableError(LakebedError):
    """The table lock could not be acquired in time, or was lost while it was held."""

    retryable = True


class StorageUnavailableError(LakebedError):
    """The store refused a request or did not answer, for a reason that may be temporary."""

    retryable = True


class CommitUnknownError(LakebedError):
    """The store did not confirm whether the commit completed; `hint` names the instant to look for."""


def _printable(text: str) -> str:
    """Text that any log can encode: messages quote user input, which may contain unpaired surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _rebuild(kind: type[LakebedError], what: str, state: dict[str, object]) -> LakebedError:
    error = kind.__new__(kind)
    Exception.__init__(error, f"{what}\n  hint: {state['hint']}")
    error.__dict__.update(state)
    return error
