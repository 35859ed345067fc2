"""Writes with a confirmed outcome: after a lost reply, the file is read back."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import StorageUnavailableError
from lakebed.storage import Outcome, Storage

_TRIES = 5


def create_file(storage: Storage, path: str, data: bytes | memoryview) -> bool:
    """Creates a file; True if it now has these bytes, False if it exists with other bytes.

    A refusal may follow a hidden retry of our own request, so it is read back like an unknown outcome.
    """
    for _ in range(_TRIES):
        if storage.create(path, data) is Outcome.DONE:
            return True
        found = storage.find(path)
        if found is not None:
            return found == data
    raise _silent(storage, path)


def create_files(storage: Storage, files: Mapping[str, bytes]) -> bool:
    """Creates independent files; True if all of them now have these bytes."""
    outcomes = storage.create_all(files)
    open_ones = [path for path, outcome in outcomes.items() if outcome is not Outcome.DONE]
    return all(storage.find(path) == files[path] or create_file(storage, path, files[path]) for path in open_ones)


def replace_file(storage: Storage, path: str, data: bytes) -> None:
    """Overwrites a file. Only for files with one writer at a time."""
    for _ in range(_TRIES):
        if storage.replace(path, data) is Outcome.DONE or storage.find(path) == data:
            return
    raise _silent(storage, path)


def swap_file(storage: Storage, path: str, data: bytes, etag: str) -> bool:
    """Compare-and-swap: replaces the version `etag` of a file; True if it now has these bytes."""
    return storage.replace(path, data, etag=etag) is Outcome.DONE or storage.find(path) == data


def delete_file(storage: Storage, path: str) -> None:
    """Deletes a file; returns once it is certain that the file does not exist."""
    for _ in range(_TRIES):
        if storage.delete(path) is Outcome.DONE:
            return
    raise _silent(storage, path)


def swap_shared_file(storage: Storage, path: str, data: bytes, etag: str | None) -> bool:
    """`swap_file` for a file that Apache Hudi writes too; etag None: it must not exist. See `replace_shared_file`."""
    delete_file(storage, _checksum(path))
    return create_file(storage, path, data) if etag is None else swap_file(storage, path, data, etag)


def replace_shared_file(storage: Storage, path: str, data: bytes) -> None:
    """Like `replace_file`, for a file that Apache Hudi writes too.

    On a local disk Hadoop keeps a checksum file beside it, which is deleted first: it describes the old bytes.
    """
    delete_file(storage, _checksum(path))
    replace_file(storage, path, data)


def _checksum(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def _silent(storage: Storage, path: str) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"{storage.url}: the outcome of the request for {path} is unknown",
        hint="run the call again when the store answers",
    )
