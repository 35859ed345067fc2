"""What lakebed raises on purpose. Classes differ by what the caller should do next.

LakebedError
├── InvalidInputError          fix the call
├── UnsupportedTableError      another table version, or a feature we do not have
├── CorruptTableError          bytes of the table break the format
├── SnapshotExpiredError       what is read has been cleaned: read again   (retryable)
├── WriteConflictError         run the write again            (retryable)
│   ├── RolledBackError        another process took this write for dead and undid it
│   └── TableRestoredError     the table was, or is being, set back
├── LockUnavailableError       others hold the table's lock   (retryable)
├── StorageUnavailableError    the store did not answer       (retryable)
└── CommitUnknownError         look at the timeline before running the write again
"""

from __future__ import annotations

from typing import ClassVar


class LakebedError(Exception):
    """Base of all we raise on purpose; subclasses differ by what the caller should do."""

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
    """The call asks for something that cannot be: a wrong path, column, filter or option."""


class UnsupportedTableError(LakebedError):
    """The table is sound, but of a version or with a feature that lakebed does not handle."""


class CorruptTableError(LakebedError):
    """Bytes of the table break the format. `path` and `offset` say where."""

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
    """Files of the snapshot that is read have been cleaned meanwhile: a newer one can be read."""

    retryable = True


class WriteConflictError(LakebedError):
    """Another writer committed first on the same file groups."""

    retryable = True


class RolledBackError(WriteConflictError):
    """Another process took this write for dead, because its heartbeat stopped, and rolled it back."""


class TableRestoredError(WriteConflictError):
    """The table was, or is being, set back to an earlier instant while this write ran."""


class ServiceRunningError(LakebedError):
    """Another process is executing the same plan of a table service."""

    retryable = True


class ServiceCancelledError(LakebedError):
    """The plan of a table service was cancelled, or must be rolled back, and is not executed any more."""


class LockUnavailableError(LakebedError):
    """The table's lock was not to be had in time, or was lost while it was held."""

    retryable = True


class StorageUnavailableError(LakebedError):
    """The store refused or did not answer for a reason that may pass."""

    retryable = True


class CommitUnknownError(LakebedError):
    """The store did not say whether the commit took place; `hint` names the instant to look for."""


def _printable(text: str) -> str:
    """Text that any log can take: messages repeat what users gave, which may hold half of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _rebuild(kind: type[LakebedError], what: str, state: dict[str, object]) -> LakebedError:
    error = kind.__new__(kind)
    Exception.__init__(error, f"{what}\n  hint: {state['hint']}")
    error.__dict__.update(state)
    return error
