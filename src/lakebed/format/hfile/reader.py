"""Reads an HFile by ranges: a few reads find a key, however large the file."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from lakebed.errors import CorruptTableError
from lakebed.format.hfile.layout import (
    BLOCK_HEADER,
    DATA,
    FILE_INFO,
    INTERMEDIATE_INDEX,
    LEAF_INDEX,
    META,
    RECORD_HEADER,
    ROOT_INDEX,
    ROW_BYTES_MAX,
    TRAILER_BYTES,
    BlockIndex,
    Trailer,
    decode_block_header,
    decode_file_info,
    decode_inner_index,
    decode_payload,
    decode_root_index,
    decode_trailer,
    parsing,
)
from lakebed.model.source import ByteSource

TAIL_BYTES = 32 * 1024
"""Bytes read at once from the end of the file: trailer, file info and the index of up to some hundred blocks."""
_SEEKS_MAX = 64
"""Maximum number of keys that are searched individually in a block; for more, walking the block once is cheaper."""
_STRIDE = 64
"""Number of records of a block per remembered record start."""


class HFile:
    """An open HFile. Caches its trailer, index and file info; data blocks are read on each access.

    Keys are rows: the record key in UTF-8, without HBase's suffix. They are unique and in ascending order of
    their bytes.
    """

    def __init__(self, source: ByteSource, trailer: Trailer, tail: bytes) -> None:
        self._source = source
        self._trailer = trailer
        self._tail = tail
        self._tail_offset = source.size - len(tail)
        self._starts: dict[int, array[int]] = {}

    @classmethod
    def open(cls, source: ByteSource) -> HFile:
        """Open with one read, of the end of the file."""
        length = min(source.size, TAIL_BYTES)
        tail = source.read(source.size - length, length)
        offset = max(source.size - TRAILER_BYTES, 0)
        return cls(source, decode_trailer(tail[-TRAILER_BYTES:], source.path, offset), tail)

    @property
    def path(self) -> str:
        """The file's name, for messages."""
        return self._source.path

    @property
    def entry_count(self) -> int:
        """Number of records according to the trailer."""
        return self._trailer.entry_count

    @cached_property
    def schema(self) -> str | None:
        """The Avro schema of the values, if the file names one."""
        schema = self.file_info.get("schema")
        if schema is None:
            return None
        with parsing(self.path, "schema", self._trailer.load_on_open_offset):
            return schema.decode()

    @property
    def file_info(self) -> Mapping[str, bytes]:
        """The named values of the writer, e.g. `schema`, `minRecordKey`, `hfile.LASTKEY`."""
        return self._load_on_open[2]

    def find(self, key: bytes) -> bytes | None:
        """The value of `key`, or None."""
        return self.find_many((key,)).get(key)

    def find_many(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values of the keys that the file has. Reads and inflates each data block at most once."""
        by_block: dict[tuple[int, int], list[bytes]] = {}
        for key in sorted(set(keys)):
            block = self._find_block(key)
            if block is not None:
                by_block.setdefault(block, []).append(key)
        found: dict[bytes, bytes] = {}
        for (offset, size), wanted in by_block.items():
            data = self._read_block(offset, size, DATA)
            if len(wanted) <= _SEEKS_MAX:
                found.update(self._seek(data, offset, wanted))
            else:
                want = frozenset(wanted)
                found.update((row, value) for row, value in self._records(data, offset) if row in want)
        return found

    def scan_prefix(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys that start with `prefix`, and their values, in key order."""
        for offset, size in self.data_blocks(prefix):
            for row, value in self._records(self._read_block(offset, size, DATA), offset):
                if row.startswith(prefix):
                    yield row, value
                elif row > prefix:
                    return

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values, in key order."""
        count = 0
        for offset, size in self.data_blocks():
            for record in self._records(self._read_block(offset, size, DATA), offset):
                count += 1
                yield record
            if count > self.entry_count:
                break
        self.check_count(count)

    def check_count(self, count: int) -> None:
        """CorruptTableError if `count` is not the number of records in the trailer."""
        if count != self.entry_count:
            raise CorruptTableError(f"{count} records, the trailer says {self.entry_count}", path=self.path)

    def meta_block(self, name: str) -> bytes | None:
        """The content of a meta block, e.g. `bloomFilter`, or None."""
        index = self._load_on_open[1]
        wanted = name.encode()
        if wanted not in index.rows:
            return None
        at = index.rows.index(wanted)
        return self._read_block(index.offsets[at], index.sizes[at], META)

    def data_blocks(self, start: bytes = b"") -> Iterator[tuple[int, int]]:
        """Offset and size of the data blocks that may hold keys from `start` on, in order.

        They do not overlap, so together they are no larger than the file.
        """
        if self.entry_count:
            levels = self._trailer.index_levels
            yield from self._descend(self._load_on_open[0], levels, start, [0] * levels)

    def read_data_block(self, offset: int, size: int) -> bytes:
        """The records of one of `data_blocks`, inflated."""
        return self._read_block(offset, size, DATA)

    def _descend(self, index: BlockIndex, level: int, start: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
        first = max(bisect_left(index.rows, start) - 1, 0)
        for offset, size in zip(index.offsets[first:], index.sizes[first:], strict=True):
            if offset < ends[level - 1] or size < BLOCK_HEADER.size:
                raise CorruptTableError("block index out of order", path=self.path, offset=offset)
            ends[level - 1] = offset + size
            if level == 1:
                yield offset, size
            else:
                yield from self._descend(self._read_index(offset, size, level - 1), level - 1, start, ends)

    def _find_block(self, key: bytes) -> tuple[int, int] | None:
        if not self.entry_count or len(key) > ROW_BYTES_MAX:
            return None
        index = self._load_on_open[0]
        for level in range(self._trailer.index_levels, 0, -1):
            at = bisect_right(index.rows, key) - 1
            if at < 0:
                return None
            offset, size = index.offsets[at], index.sizes[at]
            if level > 1:
                index = self._read_index(offset, size, level - 1)
        return offset, size

    def _read_index(self, offset: int, size: int, level: int) -> BlockIndex:
        magic = LEAF_INDEX if level == 1 else INTERMEDIATE_INDEX
        return decode_inner_index(self._read_block(offset, size, magic), self.path, offset)

    @cached_property
    def _load_on_open(self) -> tuple[BlockIndex, BlockIndex, Mapping[str, bytes]]:
        """Data index, meta index and file info, which are consecutive."""
        trailer, offset = self._trailer, self._trailer.load_on_open_offset
        section = self._read(offset, self._source.size - TRAILER_BYTES - offset)
        contents, offsets, at = [], [], 0
        for magic in (ROOT_INDEX, ROOT_INDEX, FILE_INFO):
            content, on_disk_bytes = self._decode_block(section[at:], offset + at, magic)
            contents.append(content)
            offsets.append(offset + at)
            at += on_disk_bytes
        return (
            decode_root_index(contents[0], trailer.data_index_count, self.path, offsets[0]),
            decode_root_index(contents[1], trailer.meta_index_count, self.path, offsets[1], plain_keys=True),
            decode_file_info(contents[2], self.path, offsets[2]),
        )

    def _read_block(self, offset: int, size: int, magic: bytes) -> bytes:
        return self._decode_block(self._read(offset, size), offset, magic)[0]

    def _decode_block(self, data: bytes, offset: int, magic: bytes) -> tuple[bytes, int]:
        """The content of the block at the start of `data`, and its size on disk in bytes."""
        header = decode_block_header(data, self.path, offset)
        end = BLOCK_HEADER.size + header.payload_bytes
        if header.magic != magic or end > len(data):
            what = f"block {header.magic!r} of {end} bytes where {magic!r} within {len(data)} was expected"
            raise CorruptTableError(what, path=self.path, offset=offset)
        payload = memoryview(data)[BLOCK_HEADER.size : end]
        content = decode_payload(payload, header.uncompressed_bytes, self._trailer.codec, self.path, offset)
        return content, header.on_disk_bytes

    def _read(self, offset: int, length: int) -> bytes:
        """Bytes of the file; those in the tail, which was read at opening, are not read again."""
        end = offset + length
        if length < 0 or offset < 0 or end > self._source.size:
            what = f"{length} bytes wanted, the file has {self._source.size}"
            raise CorruptTableError(what, path=self.path, offset=offset)
        start = self._tail_offset
        if offset >= start:
            return self._tail[offset - start : end - start]
        if end <= start:
            return self._source.read(offset, length)
        return self._source.read(offset, start - offset) + self._tail[: end - start]

    def _records(self, block: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
        """Rows and values of an inflated data block; `offset` is for messages."""
        at, end = 0, len(block)
        while at < end:
            with parsing(self.path, "record", offset):
                key_length, value_length, row_length = RECORD_HEADER.unpack_from(block, at)
            row_at = at + RECORD_HEADER.size
            value_at = at + 8 + key_length
            at = value_at + value_length + 1
            if not (0 <= row_length <= key_length - 2 and value_length >= 0 and at <= end and not block[at - 1]):
                raise CorruptTableError("record with impossible lengths", path=self.path, offset=offset)
            yield block[row_at : row_at + row_length], block[value_at : at - 1]

    def _seek(self, block: bytes, offset: int, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The records of a few ascending keys.

        The bytes of a key are searched, then the lengths of the records before prove that a record starts there. Both
        are faster than decoding every record of the block.
        """
        at = 0
        for key in keys:
            needle = len(key).to_bytes(2, "big") + key
            hit = block.find(needle, at + 8)
            while hit >= 0:
                here = self._next_record(block, offset, hit - 8)
                if here == hit - 8:
                    yield next(self._records(block[here:], offset))
                    at = here
                    break
                hit = block.find(needle, here + 8)

    def _next_record(self, block: bytes, offset: int, until: int) -> int:
        """The start of the first record at or after `until`, by walking from the last known start before it.

        Every `_STRIDE`-th start on the way is remembered.
        """
        unpack = RECORD_HEADER.unpack_from
        known = self._starts.get(offset) or array("Q", (0,))
        at, passed = known[bisect_right(known, until) - 1], array("Q")
        with parsing(self.path, "record", offset):
            while at < until:
                for _ in range(_STRIDE):
                    key_length, value_length, _row_length = unpack(block, at)
                    if key_length < 2 or value_length < 0:
                        raise ValueError("impossible lengths")
                    at += 9 + key_length + value_length
                    if at >= until:
                        break
                else:
                    passed.append(at)
        if passed and passed[-1] > known[-1]:
            self._starts[offset] = known + passed[bisect_right(passed, known[-1]) :]
        return at
