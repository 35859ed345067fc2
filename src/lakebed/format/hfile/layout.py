"""The bytes around records in an HFile: blocks, indexes, file info, trailer.

    DATABLK* ...   records in key order; HBase writers put index blocks (IDXLEAF2, IDXINTE2) between them
    METABLKc ...   the bloom filter of a base file
    IDXROOT2       root data index      <- load-on-open section: these three follow each other
    IDXROOT2       meta index
    FILEINF2       file info
    trailer        4096 bytes

Integers are big-endian. Payloads of blocks are gzip members or plain.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, cast

from isal import igzip_lib, isal_zlib

from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.format.varint import decode_varint, encode_varint
from lakebed.kernels.hfile_records import KEY_SUFFIX as KEY_SUFFIX
from lakebed.kernels.hfile_records import RECORD_BYTES as RECORD_BYTES
from lakebed.kernels.hfile_records import RECORD_HEADER as RECORD_HEADER
from lakebed.kernels.hfile_records import RECORD_HEADER_BYTES as RECORD_HEADER_BYTES
from lakebed.kernels.hfile_records import ROW_BYTES_MAX as ROW_BYTES_MAX

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_ZLIB_HEADER_BYTES, _ZLIB_CHECKSUM_BYTES = 2, 4
"""Sizes in bytes of what zlib puts around a deflate stream."""
_InflateError = cast(type[Exception], igzip_lib.error)
_DEFLATE_RATIO_MAX = 1032
"""Maximum ratio of uncompressed to compressed size of a deflate stream."""
TRAILER_BYTES = 4096
BLOCK_HEADER = struct.Struct(">8siiqBii")
CHECKSUM_CHUNK_BYTES = 16384
HFILE_BLOCK_BYTES_MAX = 128 * 1024
"""Maximum uncompressed size in bytes of a data block that we write.

Large blocks compress better, small ones are searched faster. Hudi's 1 MiB takes milliseconds to search; with 128 KiB a
record index is still smaller than Hudi's.
"""

DATA, META, ROOT_INDEX, FILE_INFO = b"DATABLK*", b"METABLKc", b"IDXROOT2", b"FILEINF2"
LEAF_INDEX, INTERMEDIATE_INDEX = b"IDXLEAF2", b"IDXINTE2"
GZIP, NONE = 1, 2
Codec = Literal["gzip", "none"]
Packing = Literal["records", "searching", "general"]
"""How blocks of many records are compressed: see the `compress_` functions of `hfile.arrow`."""
CODEC_NAMES = ("lzo", "gzip", "none", "snappy", "lz4", "bzip2", "zstd")
_CODEC_HINT = "rewrite the metadata table with gzip, the codec that Apache Hudi writes by default"

_TRAILER_MAGIC = b'TRABLK"$'
_MAJOR_VERSION = 3
_FILE_INFO_MAGIC = b"PBUF"
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_LEVELS_MAX = 16
_INDEX_ENTRY = struct.Struct(">qi")
_NO_OFFSET = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Trailer:
    """The fields of the trailer, the last 4096 bytes of the file."""

    load_on_open_offset: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    codec: int


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The 33 bytes before a block's payload. Sizes are in bytes, and of the payload alone unless noted."""

    magic: bytes
    on_disk_bytes: int
    """Size of header, payload and checksums: the distance to the next block."""
    payload_bytes: int
    uncompressed_bytes: int


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Index entries as columns: the first row of a block (or a meta block's name), its offset and size."""

    rows: tuple[bytes, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.rows)


@contextmanager
def parsing(path: str, what: str, offset: int) -> Iterator[None]:
    """Turns the exceptions of parsing code on malformed bytes into CorruptTableError."""
    try:
        yield
    except (struct.error, ValueError, LookupError, OverflowError) as error:
        raise CorruptTableError(f"{what} cannot be decoded ({error})", path=path, offset=offset) from error


def decode_trailer(data: bytes, path: str, offset: int) -> Trailer:
    """The trailer from its 4096 bytes, which start at `offset` of the file."""
    with parsing(path, "HFile trailer", offset):
        if len(data) != TRAILER_BYTES or not data.startswith(_TRAILER_MAGIC):
            raise ValueError(f"it starts with {data[:8]!r}")
        version = int.from_bytes(data[-3:], "big")  # The fourth byte from the end is a minor version: 0 or 3.
        if version != _MAJOR_VERSION:
            raise ValueError(f"HFile version {version}")
        length, at = decode_varint(data, len(_TRAILER_MAGIC))
        fields = dict(_decode_fields(_cut(data, at, length)))
        trailer = Trailer(
            load_on_open_offset=_number(fields, 2),
            data_index_count=_number(fields, 5),
            meta_index_count=_number(fields, 6),
            entry_count=_number(fields, 7),
            index_levels=_number(fields, 8, default=1),
            codec=_number(fields, 12),
        )
        if not (0 <= trailer.load_on_open_offset <= offset and 1 <= trailer.index_levels <= _LEVELS_MAX):
            raise ValueError(f"{trailer}")
    _require_codec(trailer.codec, path)
    return trailer


def encode_trailer(
    *,
    file_info_offset: int,
    load_on_open_offset: int,
    data_bytes: int,
    data_index_count: int,
    meta_index_count: int,
    entry_count: int,
    last_data_block_offset: int,
    codec: int,
) -> bytes:
    """The 4096 bytes that end a file with one index level, whose data blocks (if any) start at 0."""
    numbers = (
        (1, file_info_offset),
        (2, load_on_open_offset),
        (3, data_bytes),
        (5, data_index_count),
        (6, meta_index_count),
        (7, entry_count),
        (8, 1),
        (9, 0 if data_index_count else _NO_OFFSET),
        (10, last_data_block_offset),
    )
    message = b"".join(encode_varint(field << 3) + encode_varint(value) for field, value in numbers)
    message += _encode_bytes_field(11, _COMPARATOR) + encode_varint(12 << 3) + encode_varint(codec)
    start = _TRAILER_MAGIC + encode_varint(len(message)) + message
    return start.ljust(TRAILER_BYTES - 4, b"\0") + struct.pack(">i", _MAJOR_VERSION)


def decode_block_header(data: bytes, path: str, offset: int) -> BlockHeader:
    """The header at the start of `data`; its sizes are consistent, but may exceed the file."""
    with parsing(path, "block header", offset):
        magic, on_disk, uncompressed, _, _, _, data_bytes = BLOCK_HEADER.unpack_from(data)
        header = BlockHeader(magic, BLOCK_HEADER.size + on_disk, data_bytes - BLOCK_HEADER.size, uncompressed)
        if not 0 <= header.payload_bytes <= on_disk or uncompressed < 0:
            raise ValueError(f"{header}")
    return header


def encode_block(magic: bytes, payload: bytes, uncompressed_bytes: int, previous_offset: int = -1) -> bytes:
    """A block with a checksum area of zeros, as the checksum type "none" requires."""
    data_bytes = BLOCK_HEADER.size + len(payload)
    checksums = bytes(4 * -(-data_bytes // CHECKSUM_CHUNK_BYTES))
    on_disk = len(payload) + len(checksums)
    header = BLOCK_HEADER.pack(magic, on_disk, uncompressed_bytes, previous_offset, 0, CHECKSUM_CHUNK_BYTES, data_bytes)
    return b"".join((header, payload, checksums))


def decode_root_index(data: bytes, count: int, path: str, offset: int, *, plain_keys: bool = False) -> BlockIndex:
    """The first `count` entries of a root index; `plain_keys` for the meta index, whose keys are names."""
    rows, offsets, sizes, at = [], [], [], 0
    with parsing(path, "root index", offset):
        for _ in range(count):
            block_offset, size = _INDEX_ENTRY.unpack_from(data, at)
            length, at = _decode_vint(data, at + _INDEX_ENTRY.size)
            key = _cut(data, at, length)
            at += length
            rows.append(key if plain_keys else _row_of(key))
            offsets.append(block_offset)
            sizes.append(size)
    return BlockIndex(tuple(rows), tuple(offsets), tuple(sizes))


def decode_inner_index(data: bytes, path: str, offset: int) -> BlockIndex:
    """A leaf or intermediate index block, as HBase writes them under the root of a large file."""
    rows, offsets, sizes = [], [], []
    with parsing(path, "index block", offset):
        (count,) = struct.unpack_from(">i", data)
        if not 0 <= count <= len(data) // 4:
            raise ValueError(f"{count} entries")
        ends = struct.unpack_from(f">{count + 1}i", data, 4)
        first = 4 + 4 * (count + 1)
        for start, end in pairwise(ends):
            block_offset, size = _INDEX_ENTRY.unpack_from(data, first + start)
            rows.append(_row_of(_cut(data, first + start + _INDEX_ENTRY.size, end - start - _INDEX_ENTRY.size)))
            offsets.append(block_offset)
            sizes.append(size)
    return BlockIndex(tuple(rows), tuple(offsets), tuple(sizes))


def encode_root_index(index: BlockIndex, *, plain_keys: bool = False) -> bytes:
    """Inverse of `decode_root_index`."""
    keys = index.rows if plain_keys else tuple(encode_row(row) for row in index.rows)
    return b"".join(
        _INDEX_ENTRY.pack(offset, size) + _encode_vint(len(key)) + key
        for key, offset, size in zip(keys, index.offsets, index.sizes, strict=True)
    )


def decode_file_info(data: bytes, path: str, offset: int) -> Mapping[str, bytes]:
    """The entries of the file info block."""
    with parsing(path, "file info", offset):
        if not data.startswith(_FILE_INFO_MAGIC):
            raise ValueError(f"it starts with {data[:4]!r}")
        length, at = decode_varint(data, len(_FILE_INFO_MAGIC))
        info: dict[str, bytes] = {}
        for field, pair in _decode_fields(_cut(data, at, length)):
            if field == 1:
                entry = dict(_decode_fields(_bytes(pair)))
                info[_bytes(entry[1]).decode()] = _bytes(entry.get(2, b""))
    return MappingProxyType(info)


def encode_file_info(info: Mapping[str, bytes]) -> bytes:
    """Inverse of `decode_file_info`; entries keep their order."""
    message = b"".join(_encode_info(key, value) for key, value in info.items())
    return _FILE_INFO_MAGIC + encode_varint(len(message)) + message


@lru_cache(maxsize=128)
def _encode_info(key: str, value: bytes) -> bytes:
    """An entry of the file info. Cached: the files of a commit share most entries."""
    return _encode_bytes_field(1, _encode_bytes_field(1, key.encode()) + _encode_bytes_field(2, value))


def encode_row(row: bytes) -> bytes:
    """A row as in index keys and `hfile.LASTKEY`: length-prefixed, without key suffix."""
    return struct.pack(">h", len(row)) + row


def _row_of(key: bytes) -> bytes:
    """The row in an index key. HBase's writer adds the key suffix, Hudi's own does not."""
    (length,) = struct.unpack_from(">h", key)
    return _cut(key, 2, length)


def _require_codec(codec: int, path: str) -> None:
    if codec not in (GZIP, NONE):
        name = CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"number {codec}"
        raise UnsupportedTableError(
            f"{path}: the HFile is compressed with {name}, which lakebed does not read", hint=_CODEC_HINT
        )


def _cut(data: bytes, at: int, length: int) -> bytes:
    if length < 0 or at < 0 or at + length > len(data):
        raise ValueError(f"{length} bytes at {at} of {len(data)}")
    return data[at : at + length]


def _number(fields: Mapping[int, int | bytes], field: int, default: int = 0) -> int:
    value = fields.get(field, default)
    if not isinstance(value, int):
        raise ValueError(f"field {field} is not a number")
    return value


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where bytes were expected")
    return value


def _decode_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message; fixed-width fields, which HFiles do not have, are refused."""
    at = 0
    while at < len(message):
        tag, at = decode_varint(message, at)
        number, at = decode_varint(message, at)
        if tag & 7 == 0:
            yield tag >> 3, number
        elif tag & 7 == 2:
            yield tag >> 3, _cut(message, at, number)
            at += number
        else:
            raise ValueError(f"wire type {tag & 7}")


def _encode_bytes_field(field: int, value: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(value)) + value


def _decode_vint(data: bytes, at: int) -> tuple[int, int]:
    """Hadoop's variable-length integer; used for lengths, which are never negative."""
    (first,) = struct.unpack_from(">b", data, at)
    if first >= 0:
        return first, at + 1
    width = -112 - first
    if not 1 <= width <= 8:
        raise ValueError("negative length")
    return int.from_bytes(_cut(data, at + 1, width), "big"), at + 1 + width


def _encode_vint(value: int) -> bytes:
    if value <= 127:
        return bytes((value,))
    width = (value.bit_length() + 7) // 8
    return struct.pack(">b", -112 - width) + value.to_bytes(width, "big")


def decode_payload(payload: bytes | memoryview, size: int, codec: int, path: str, offset: int) -> bytes:
    """The `size` uncompressed bytes of a payload. Never allocates more, whatever the stream contains."""
    if codec != GZIP:
        if len(payload) != size:
            raise CorruptTableError(f"block of {len(payload)} bytes, {size} announced", path=path, offset=offset)
        return bytes(payload)
    if size > _DEFLATE_RATIO_MAX * len(payload):
        raise CorruptTableError(f"{len(payload)} bytes cannot inflate to {size}", path=path, offset=offset)
    inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        data: bytes = inflater.decompress(payload, size + 1)
    except _InflateError as error:
        raise CorruptTableError(f"block cannot be inflated ({error})", path=path, offset=offset) from error
    if len(data) != size or not inflater.eof:
        raise CorruptTableError(f"block inflates to other than its {size} bytes", path=path, offset=offset)
    return data


def gzip_member(deflated: bytes | memoryview, data: bytes | memoryview) -> bytes:
    """A gzip member of a deflate stream of `data`, with the header of Java's writer."""
    return b"".join((_GZIP_HEADER, deflated, struct.pack("<II", isal_zlib.crc32(data), len(data) & 0xFFFFFFFF)))


def gzip_like_hudi(data: bytes | memoryview) -> bytes:
    """`data` compressed to the same bytes as by Apache Hudi. Slow: for small blocks."""
    return gzip_member(zlib.compress(data, 6)[_ZLIB_HEADER_BYTES:-_ZLIB_CHECKSUM_BYTES], data)
