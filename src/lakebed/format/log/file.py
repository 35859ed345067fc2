"""Log files as a sequence of framed blocks; `blocks.py` decodes their content.

    magic "#HUDI#" | block size | log format version | block type | header | content length | content | footer | total

All integers are big-endian. `block size` counts the bytes after itself, `total` the whole block without itself.
A file has no header of its own, only consecutive blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

from lakebed.errors import CorruptTableError
from lakebed.model.source import ByteSource

LOG_MAGIC = b"#HUDI#"
LOG_FORMAT_VERSION = 1

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_BLOCK_START = struct.Struct(">6sq")
_BLOCK_HEAD = struct.Struct(">6sqii")
_VERSION_AND_KIND = struct.Struct(">ii")
_ENTRY = struct.Struct(">ii")
_NEWER_WRITER = "if a newer Apache Hudi wrote the table, use a newer lakebed; otherwise restore the file from a backup"


class BlockKind(IntEnum):
    """The type of a block. Type 2 (corrupt) is missing: it exists only in readers, never in files."""

    COMMAND = 0
    DELETE = 1
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """The keys of header entries."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


_KINDS = {int(kind): kind for kind in BlockKind}
_HEADER_KEYS = {int(key): key for key in HeaderKey}


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block: its kind, its header in file order, and a view on its content."""

    kind: BlockKind
    header: Mapping[HeaderKey, str]
    content: memoryview
    offset: int
    content_offset: int


@dataclass(frozen=True, slots=True)
class _Frame:
    """The position of a block, from its magic to the end of its total length."""

    start: int
    end: int


def decode_log_file(data: bytes, *, path: str, torn: Literal["refuse", "skip"] = "refuse") -> tuple[LogBlock, ...]:
    """All blocks of a log file, in file order, as views on `data`.

    A block with an inconsistent frame raises CorruptTableError or, with `torn="skip"`, is skipped up to the next magic:
    writers of table version 6 append to files that a crash left incomplete. The content of a consistent frame must be
    valid in both cases.
    """
    return tuple(_decode_block(data, frame, path) for frame in _frames(data, path, skip=torn == "skip"))


def block_kinds(source: ByteSource) -> Iterator[BlockKind]:
    """The kinds of a log file's blocks, in file order, without reading their content."""
    at = 0
    while at < source.size:
        magic, size, version, kind = _BLOCK_HEAD.unpack(source.read(at, _BLOCK_HEAD.size))
        end = at + _BLOCK_START.size + size
        if magic != LOG_MAGIC or size < _BLOCK_HEAD.size or end > source.size:
            raise CorruptTableError("no complete log block", path=source.path, offset=at)
        if version != LOG_FORMAT_VERSION:
            raise _unknown("log format version", version, source.path, at)
        if kind not in _KINDS:
            raise _unknown("log block type", kind, source.path, at)
        yield _KINDS[kind]
        at = end


def encode_log_block(kind: BlockKind, header: Mapping[HeaderKey, str], *content: bytes | memoryview) -> bytes:
    """One block with content in one or several parts, the header entries in the order given, and an empty footer."""
    entries = [_encode_entry(key, value) for key, value in header.items()]
    before = (_VERSION_AND_KIND.pack(LOG_FORMAT_VERSION, kind), _INT.pack(len(entries)), *entries)
    parts = (*before, _LONG.pack(sum(map(len, content))), *content, _INT.pack(0))
    size = sum(map(len, parts)) + _LONG.size
    return b"".join((_BLOCK_START.pack(LOG_MAGIC, size), *parts, _LONG.pack(len(LOG_MAGIC) + size)))


def _frames(data: bytes, path: str, *, skip: bool) -> Iterator[_Frame]:
    at = 0
    while at < len(data):
        frame = _find_frame(data, at)
        if frame is not None:
            yield frame
            at = frame.end
        elif not skip:
            raise CorruptTableError("no complete log block", path=path, offset=at)
        else:
            following = data.find(LOG_MAGIC, at + 1)
            at = len(data) if following < 0 else following


def _find_frame(data: bytes, start: int) -> _Frame | None:
    """The block at `start`, if its two lengths agree and another block or the end of the file follows."""
    if start + _BLOCK_START.size > len(data):
        return None
    magic, size = _BLOCK_START.unpack_from(data, start)
    end = start + _BLOCK_START.size + size
    if magic != LOG_MAGIC or size < _LONG.size or end > len(data):
        return None
    (total,) = _LONG.unpack_from(data, end - _LONG.size)
    leads_on = len(data) - end < len(LOG_MAGIC) or data.startswith(LOG_MAGIC, end)
    return _Frame(start, end) if total == len(LOG_MAGIC) + size and leads_on else None


class _Fields:
    """Reads the fields of a block in sequence; a field beyond the block raises CorruptTableError."""

    __slots__ = ("at", "data", "end", "path")

    def __init__(self, data: bytes, at: int, end: int, path: str) -> None:
        self.data, self.at, self.end, self.path = data, at, end, path

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """The next fixed-width integers."""
        return layout.unpack_from(self.data, self.skip(layout.size))

    def skip(self, length: int) -> int:
        """Skips `length` bytes and returns the offset of the first."""
        start = self.at
        if length < 0 or length > self.end - start:
            raise CorruptTableError(f"a field of {length} bytes exceeds its log block", path=self.path, offset=start)
        self.at += length
        return start


def _decode_block(data: bytes, frame: _Frame, path: str) -> LogBlock:
    fields = _Fields(data, frame.start + _BLOCK_START.size, frame.end - _LONG.size, path)
    version, kind = fields.unpack(_VERSION_AND_KIND)
    if version != LOG_FORMAT_VERSION:
        raise _unknown("log format version", version, path, frame.start)
    if kind not in _KINDS:
        raise _unknown("log block type", kind, path, frame.start)
    header = _decode_entries(fields)
    (length,) = fields.unpack(_LONG)
    content_offset = fields.skip(length)
    _decode_entries(fields)
    if fields.at != fields.end:
        raise CorruptTableError("bytes are left over in the log block", path=path, offset=fields.at)
    content = memoryview(data)[content_offset : content_offset + length]
    return LogBlock(_KINDS[kind], header, content, frame.start, content_offset)


def _decode_entries(fields: _Fields) -> Mapping[HeaderKey, str]:
    """A header or footer map; both have the same form, and no writer fills the footer."""
    entries: dict[HeaderKey, str] = {}
    (count,) = fields.unpack(_INT)
    for _ in range(count):
        key, length = fields.unpack(_ENTRY)
        start = fields.skip(length)
        if key not in _HEADER_KEYS:
            raise _unknown("log block header key", key, fields.path, start)
        entries[_HEADER_KEYS[key]] = _text(fields, start, length)
    return MappingProxyType(entries)


def _text(fields: _Fields, start: int, length: int) -> str:
    try:
        return str(memoryview(fields.data)[start : start + length], "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptTableError("a log block header is not UTF-8", path=fields.path, offset=start) from error


def _encode_entry(key: HeaderKey, value: str) -> bytes:
    text = value.encode()
    return _ENTRY.pack(key, len(text)) + text


def _unknown(what: str, value: int, path: str, offset: int) -> CorruptTableError:
    return CorruptTableError(f"{what} {value} is unknown", path=path, offset=offset, hint=_NEWER_WRITER)
