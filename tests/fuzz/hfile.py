"""HFiles: damage to records, compressed streams, index blocks, file info and trailer."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.hfiles import SUFFIX, field, file_info, inner_index, root_index, uvarint

from lakebed.format.hfile import HFile, arrow, encode_hfile
from lakebed.model.source import BytesSource

from .codec import PATH, Codec
from .mutate import damaged, maybe, rearranged, strange, wrapped
from .outcome import is_typed

_MAGICS = (b"DATABLK*", b"IDXLEAF2", b"IDXINTE2", b"IDXROOT2", b"FILEINF2", b"METABLKc", b"NOTABLCK")
_Entry = tuple[bytes, int, int]


def make(rng: random.Random) -> bytes:
    """A file whose parts agree with each other, but for what was damaged."""
    if rng.random() < 0.05:
        return damaged(_own_file(rng), rng)
    return _File(rng).encode()


def _decode_one_by_one(data: bytes) -> None:
    """What readers of single keys do with a file."""
    file = HFile.open(BytesSource(data, PATH))
    for key in (b"", b"key-00003", b"\xff"):
        file.find(key)
    file.find_many([b"key-%05d" % at for at in range(6)])
    list(file.scan_prefix(b"key-0000"))
    assert isinstance(file.schema, str | None)
    file.meta_block("bloomFilter")


def decode(data: bytes) -> list[Any]:
    """All records at once, after all other ways to read a file."""
    _try(_decode_one_by_one, data)
    _try(_decode_small, data)
    file = HFile.open(BytesSource(data, PATH))
    keys, values = arrow.decode_blocks(file)
    return [pa.record_batch([keys, values], names=["key", "value"])]


def _decode_small(data: bytes) -> None:
    arrow._decode_small(HFile.open(BytesSource(data, PATH)))


def _try(read: Callable[[bytes], object], data: bytes) -> None:
    """Read a file; only errors that bad bytes may not end in pass through."""
    try:
        read(data)
    except Exception as error:
        if not is_typed(error):
            raise


CODEC = Codec(make, decode)


def _own_file(rng: random.Random) -> bytes:
    rows = [b"key-%05d" % at for at in range(rng.choice((1, 5, 12)))]
    values = pa.array([b"value %d" % (at % 3) for at in range(len(rows))], pa.binary())
    options = {"codec": rng.choice(("gzip", "none")), "block_bytes_max": 120, "bloom": b"QUJD", "base_file": True}
    return encode_hfile(pa.array(rows, pa.binary()), values, schema='"bytes"', created_ms=1, **options)


class _File:
    """Builds a file from the inside out. At each layer there is a chance that something is wrong."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.body = rng, b""
        self.layer = rng.choice(
            ("record", "record", "lengths", "lengths", "stream", "head", "index", "info", "trailer")
        )
        self.levels, self.codec = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 2))

    def hits(self, layer: str, share: float = 0.5) -> bool:
        """Whether to do damage here."""
        return self.layer == layer and self.rng.random() < share

    def encode(self) -> bytes:
        rng, count = self.rng, 0
        entries: list[_Entry] = []
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            records = [self.record(count + at) for at in range(rng.choice((1, 2, 5)))]
            if self.hits("record"):
                records = rearranged(records, rng)
            content = b"".join(records)
            if self.hits("record"):
                content = damaged(content, rng)
            entries.append(self.put(b"DATABLK*", content, b"key-%05d" % count))
            count += len(records)
        for magic in (b"IDXLEAF2", b"IDXINTE2")[: self.levels - 1]:
            entries = [self.put(magic, self.index(inner_index, [each]), each[0]) for each in entries]
        at = len(self.body)
        meta = [(b"bloomFilter", *self.put(b"METABLKc", b"QUJD", b"")[1:])] if rng.random() < 0.3 else []
        at = len(self.body)
        self.put(b"IDXROOT2", self.index(root_index, entries), b"")
        self.put(b"IDXROOT2", b"".join(_meta_entry(*each) for each in meta), b"")
        info = file_info({b"schema": b'"bytes"', b"other": b"x" * 20})
        self.put(b"FILEINF2", damaged(info, rng) if self.hits("info", 1) else info, b"")
        return self.body + self.trailer(at, len(entries), len(meta), count)

    def record(self, number: int) -> bytes:
        rng = self.rng
        row, value = b"key-%05d" % number, rng.choice((b"", b"value 1", b"v" * 40, b"%d" % number))
        key_bytes, value_bytes, row_bytes = 2 + len(row) + len(SUFFIX), len(value), len(row)
        if self.hits("lengths"):
            key_bytes = maybe(0.4, rng, lambda n: wrapped(strange(rng, n), 32), key_bytes)
            value_bytes = maybe(0.4, rng, lambda n: wrapped(strange(rng, n), 32), value_bytes)
            row_bytes = maybe(0.4, rng, lambda n: wrapped(strange(rng, n), 16), row_bytes)
        return struct.pack(">iih", key_bytes, value_bytes, row_bytes) + row + SUFFIX + value + b"\0"

    def put(self, magic: bytes, content: bytes, row: bytes) -> _Entry:
        rng, offset = self.rng, len(self.body)
        payload = gzip.compress(content, 1, mtime=0) if self.codec == 1 else content
        if self.hits("stream"):
            # A damaged stream of deflate whose checksum is that of the content.
            payload = payload[:10] + damaged(payload[10:-8], rng) + payload[-8:] if self.codec == 1 else payload
        if self.hits("stream", 0.1):
            payload = payload[:-8] + struct.pack("<II", zlib.crc32(content) ^ rng.choice((0, 1)), strange(rng) & 0xFFFF)
        checksums = bytes(4 * -(-(33 + len(payload)) // 16384))
        numbers = [len(payload) + len(checksums), len(content), -1, 0, 16384, 33 + len(payload)]
        if self.hits("head"):
            magic = maybe(0.2, rng, lambda _: rng.choice(_MAGICS), magic)
            for at, bits in enumerate((32, 32, 64, 8, 32, 32)):
                number = wrapped(strange(rng, numbers[at]), bits)
                numbers[at] = number & 0xFF if bits == 8 else maybe(0.3, rng, lambda _, n=number: n, numbers[at])
        self.body += struct.pack(">8siiqBii", magic, *numbers) + payload + checksums
        return row, offset, len(self.body) - offset

    def index(self, encode: Any, entries: list[_Entry]) -> bytes:
        rng = self.rng
        if self.hits("index"):
            entries = rearranged(entries, rng)
        if self.hits("index"):
            entries = [
                (
                    maybe(0.2, rng, lambda row: damaged(row, rng), row),
                    maybe(0.3, rng, lambda n: wrapped(strange(rng, n), 64), at),
                    maybe(0.3, rng, lambda n: wrapped(strange(rng, n), 32), size),
                )
                for row, at, size in entries
            ]
        content = encode(entries)
        return damaged(content, rng) if self.hits("index") else content

    def trailer(self, at: int, index_count: int, meta_count: int, count: int) -> bytes:
        rng = self.rng
        numbers = {2: at, 3: 0, 4: 0, 5: index_count, 6: meta_count, 7: count, 8: self.levels, 9: 0, 10: 0}
        numbers[12] = self.codec
        if self.hits("trailer", 0.9):
            for number in rng.sample([*numbers], rng.choice((1, 1, 2))):
                numbers[number] = strange(rng, numbers[number]) & (1 << 64) - 1
        message = b"".join(field(number, value) for number, value in numbers.items())
        if self.hits("trailer", 0.2):
            message = damaged(message, rng)
        return (b'TRABLK"$' + uvarint(len(message)) + message).ljust(4092, b"\0")[:4092] + bytes.fromhex("03000003")


def _meta_entry(name: bytes, at: int, size: int) -> bytes:
    return struct.pack(">qi", at, size) + bytes([len(name)]) + name
