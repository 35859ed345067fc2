"""A table in an object store, or in the memory of this process."""

from __future__ import annotations

import builtins
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from lakebed.errors import InvalidInputError, LakebedError, StorageUnavailableError, UnsupportedTableError
from lakebed.model.source import ByteSource
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
from lakebed.storage.problems import denied, missing, too_short, unavailable
from lakebed.storage.ranged import cut_ranges, merge_ranges, open_arrow_file, open_source
from lakebed.storage.stores import open_stores

_OFFSET_MAX = 2**62
_REQUESTS_AT_ONCE = 8
_GAP_BYTES = 1024 * 1024
"""Largest gap, in bytes, between two ranges that are fetched by one request: cheaper than a second request."""
_STATUS = re.compile(r"status code: (\d{3})")
_STORE_ERRORS = (BaseError, ValueError, NotImplementedError)
T = TypeVar("T")


class ObjectStorage:
    """Storage under one prefix of a bucket or container."""

    __slots__ = ("_options", "_publishing", "_stores", "counts", "url")

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url
        self.counts = RequestCounts()
        self._options = dict(options)
        self._stores = open_stores(url, options)
        self._publishing = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        return ObjectStorage, (self.url, self._options)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.url!r})"

    def get(self, path: str) -> bytes:
        """The whole file; CorruptTableError if it is missing."""
        data = self.find(path)
        if data is None:
            raise missing(path)
        return data

    def find(self, path: str) -> bytes | None:
        """The whole file, or None if there is none."""
        found = self._download(path)
        return None if found is None else found[0]

    def find_with_etag(self, path: str) -> tuple[bytes, str] | None:
        """The whole file and its etag, or None if there is none."""
        found = self._download(path)
        return None if found is None else (found[0], self._known_etag(found[1]))

    def get_range(self, path: str, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        return self.get_ranges(path, ((offset, length),))[0]

    def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """The bytes of each (offset, length); near ranges travel in one request."""
        checked_path(path)
        if any(offset < 0 or length < 0 or offset + length > _OFFSET_MAX for offset, length in ranges):
            self._check_inside(path, ranges)
        if not all(length for _, length in ranges):
            return self._with_empty_ranges(path, ranges)
        spans = merge_ranges(ranges, gap=_GAP_BYTES)
        pieces = self._download_spans(path, spans)
        if any(len(piece) != end - start for (start, end), piece in zip(spans, pieces, strict=True)):
            self._check_inside(path, ranges)
            raise unavailable(path, "a reply was cut short")
        return cut_ranges(ranges, spans, pieces)

    def size(self, path: str) -> int | None:
        """The file's length in bytes, or None if there is none."""
        described = self._describe(path)
        return None if described is None else int(described["size"])

    def list(self, folder: str, *, recursive: bool = False) -> tuple[Listed, ...]:
        """The files in a folder, by path."""
        if not recursive:
            found = self._level(folder)["objects"]
        else:
            self.counts.add("lists")
            with _listing(folder):
                pages = self._stores.retrying.list(checked_folder(folder) or None, chunk_size=1000)
                found = [described for page in pages for described in page]
        return tuple(sorted(map(self._listed, found), key=lambda listed: listed.path))

    def list_names(self, folder: str) -> tuple[str, ...]:
        """The names of the files in a folder, sorted."""
        return tuple(listed.path.rpartition("/")[2] for listed in self.list(folder))

    def list_folders(self, folder: str) -> tuple[str, ...]:
        """The paths of the immediate sub-folders, sorted."""
        return tuple(sorted(self._level(folder)["common_prefixes"]))

    def create(self, path: str, data: bytes | memoryview) -> Outcome:
        """Writes a new object, on the condition that there is none."""
        checked_path(path)
        self.counts.add("creates", written=len(data))
        content = bytes(data)  # A store in memory would keep a buffer that the caller reuses.
        return _outcome(path, lambda: self._stores.once.put(path, content, mode="create"), absent=None)

    def create_all(self, files: Mapping[str, bytes]) -> dict[str, Outcome]:
        """Writes new objects, several at a time: a request is mostly waiting."""
        if len(files) < 2:
            return {path: self.create(path, data) for path, data in files.items()}
        with ThreadPoolExecutor(min(len(files), _REQUESTS_AT_ONCE), thread_name_prefix="lakebed") as pool:
            return dict(zip(files, pool.map(self.create, files, files.values()), strict=True))

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        """Writes an object over what was there; with an etag, on the condition that it is still that version."""
        checked_path(path)
        self.counts.add("replaces", written=len(data))
        if etag is None:
            # Not multipart: that is not atomic, and its parts remain after a crash.
            return _outcome(path, lambda: self._stores.retrying.put(path, data, use_multipart=False), absent=None)
        mode = {"e_tag": etag, "version": etag}
        return _outcome(path, lambda: self._stores.once.put(path, data, mode=mode), absent=Outcome.REFUSED)

    def delete(self, path: str) -> Outcome:
        """Removes an object; done also if there is none."""
        checked_path(path)
        self.counts.add("deletes")
        return _outcome(path, lambda: self._stores.retrying.delete(path), absent=Outcome.DONE)

    def open_ticket(self, ticket: Ticket) -> Outcome:
        """Creates the ticket's object; refused if it is there."""
        return self.create(ticket.path, b"")

    def find_tickets(self, instant: str) -> tuple[Ticket, ...]:
        """The live tickets of an instant."""
        tickets = (decode_ticket(listed.path.rpartition("/")[2]) for listed in self.list(TICKETS))
        return tuple(ticket for ticket in tickets if ticket is not None and ticket.instant == instant)

    def publish(self, ticket: Ticket, final: str, data: bytes) -> Outcome:
        """Stages in the ticket's object, then has the store copy it to a free name.

        Staging is a compare-and-swap, so that a deleted ticket does not come back; the copy fails without its source.
        Threads take turns, because a ticket has one object.
        """
        checked_path(final)
        with self._publishing:
            described = self._describe(ticket.path)
            if described is None:
                return Outcome.REFUSED
            outcome = self.replace(ticket.path, data, etag=self._known_etag(described))
            if outcome is not Outcome.DONE:
                return outcome
            self.counts.add("creates")
            copy = self._stores.once.copy
            return _outcome(final, lambda: copy(ticket.path, final, overwrite=False), absent=Outcome.REFUSED)

    def revoke(self, ticket: Ticket, *, in_use: bool = True) -> Outcome:
        """Deletes the ticket's object; if it may be in use, waits for copies that the store has already accepted."""
        outcome = self.delete(ticket.path)
        if in_use and outcome is Outcome.DONE and self._stores.revoke_wait_s:
            time.sleep(self._stores.revoke_wait_s)
        return outcome

    def source(self, path: str, size: int | None = None) -> ByteSource:
        """The file for codecs that read in ranges."""
        return open_source(self, path, size)

    def arrow_file(self, path: str) -> pa.NativeFile:
        """The file as Arrow reads it, in ranges."""
        self.counts.add("opens")
        return open_arrow_file(self, path)

    def dismiss(self, path: str) -> None:
        """Does nothing: object stores have no page cache here."""

    def uri(self, path: str) -> str:
        """The url as Spark's connectors take it; InvalidInputError for a table in memory."""
        if self._stores.spark_root is None:
            raise InvalidInputError(
                f"Spark cannot read {self.url}",
                hint="put the table on a disk or in a bucket; an Azure url must name the account",
            )
        place, _, prefix = self._stores.spark_root.partition("://")[2].partition("/")
        scheme = self._stores.spark_root.partition("://")[0]
        inner = "/".join(part for part in (prefix, checked_folder(path)) if part)
        return f"{scheme}://{place}/{spark_path(inner)}"

    def _download(self, path: str) -> tuple[bytes, Mapping[str, Any]] | None:
        def ask() -> tuple[bytes, Mapping[str, Any]]:
            result = self._stores.retrying.get(path)
            check_whole_size(path, int(result.meta["size"]))
            return bytes(result.bytes()), result.meta

        found = _find(path, ask)
        self.counts.add("gets", read=len(found[0]) if found else 0)
        return found

    def _describe(self, path: str) -> Mapping[str, Any] | None:
        self.counts.add("heads")
        return _find(path, lambda: self._stores.retrying.head(path))

    def _level(self, folder: str) -> Mapping[str, Any]:
        self.counts.add("lists")
        with _listing(folder):
            level: Mapping[str, Any] = self._stores.retrying.list_with_delimiter(checked_folder(folder) or None)
            return level

    def _listed(self, described: Mapping[str, Any]) -> Listed:
        etag: str | None = described[self._stores.etag_key]
        return Listed(described["path"], described["size"], described["last_modified"], etag)

    def _known_etag(self, described: Mapping[str, Any]) -> str:
        etag: str | None = described[self._stores.etag_key]
        if etag is None:
            raise UnsupportedTableError(
                f"{self.url}: the store returns no object versions", hint="use a store with conditional writes"
            )
        return etag

    def _check_inside(self, path: str, ranges: Sequence[tuple[int, int]]) -> None:
        size = self.size(path)
        if size is None:
            raise missing(path)
        for offset, length in ranges:
            if offset < 0 or length < 0 or offset + length > size:
                raise too_short(path, offset, length, size)

    def _download_spans(self, path: str, spans: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        if not spans:
            return ()
        starts, ends = zip(*spans, strict=True)
        try:
            # The library's own merging aborts the process if a range starts after the end of the file.
            with _reading(path):
                pieces = self._stores.retrying.get_ranges(path, starts=starts, ends=ends, coalesce=0)
        except FileNotFoundError as error:
            raise missing(path) from error
        except StorageUnavailableError:
            # Stores report a range outside the file like any other error: distinguish it.
            self._check_inside(path, [(start, end - start) for start, end in spans])
            raise
        for piece in pieces:
            self.counts.add("ranged_gets", read=len(piece))
        return [bytes(piece) for piece in pieces]

    def _with_empty_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Answers empty ranges, which stores refuse, after checking that they lie within the file."""
        self._check_inside(path, ranges)
        parts = iter(self.get_ranges(path, [wanted for wanted in ranges if wanted[1]]))
        return [next(parts) if length else b"" for _, length in ranges]


def _find(path: str, ask: Callable[[], T]) -> T | None:
    checked_path(path)
    with _reading(path), suppress(FileNotFoundError):
        return ask()
    return None


@contextmanager
def _listing(folder: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, *_STORE_ERRORS) as error:
        if isinstance(error, FileNotFoundError) or _status(error) == "404":
            raise _no_bucket(folder) from error
        raise _definite(error, folder) or unavailable(folder, _first_line(error)) from error


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except _STORE_ERRORS as error:
        raise _definite(error, path) or unavailable(path, _first_line(error)) from error


def _outcome(path: str, write: Callable[[], object], *, absent: Outcome | None) -> Outcome:
    """The outcome of a write. `absent`: the outcome if something is missing; None if that can only be the bucket."""
    try:
        write()
    except (AlreadyExistsError, PreconditionError):
        return Outcome.REFUSED
    except FileNotFoundError as error:
        if absent is None:
            raise _no_bucket(path) from error
        return absent
    except _STORE_ERRORS as error:
        if definite := _definite(error, path):
            raise definite from error
        return Outcome.UNKNOWN
    return Outcome.DONE


def _definite(error: Exception, path: str) -> LakebedError | None:
    """The error to raise for a definite failure; None if it may be temporary, or the request may have been served."""
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or _status(error) in ("401", "403"):
        return denied(path)
    if isinstance(error, (NotSupportedError, NotImplementedError)):
        return UnsupportedTableError(
            f"{path}: the store does not support this request ({_first_line(error)})",
            hint="use a store with conditional writes",
        )
    if isinstance(error, (InvalidPathError, ValueError)):
        return InvalidInputError(
            f"{path}: the store refuses this name ({_first_line(error)})", hint="check the partition values"
        )
    return None


def _no_bucket(path: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path}: the bucket or container is missing", hint="create it, or check the url of the table"
    )


def _status(error: Exception) -> str | None:
    """The HTTP status; if a listing fails, the library gives it only as text."""
    found = _STATUS.search(str(error))
    return found[1] if found else None


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
