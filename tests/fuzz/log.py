"""Log files: damage to content, headers and frames of blocks of all kinds."""

from __future__ import annotations

import random
import struct
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.format.hfile import arrow
from lakebed.format.hfile.reader import HFile
from lakebed.format.log import deletes
from lakebed.format.log.blocks import (
    decode_positions,
    decode_records,
    encode_positions,
    find_avro_records,
    hfile_content,
)
from lakebed.format.log.deletes import decode_deletes, encode_deletes
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file

from . import avro, hfile
from .codec import PATH, Codec
from .mutate import damaged, maybe, strange, wrapped

_Entries = list[tuple[int, bytes]]


def make(rng: random.Random) -> bytes:
    """A log file of one or two blocks."""
    return b"".join(_block(rng) for _ in range(rng.choice((1, 1, 2))))


def decode(data: bytes) -> list[Any]:
    """What all blocks hold, and the blocks of a file that may be torn."""
    found: list[Any] = [len(decode_log_file(data, path=PATH, torn="skip"))]
    for block in decode_log_file(data, path=PATH):
        found += _content(block)
    return found


CODEC = Codec(make, decode)


def _content(block: LogBlock) -> list[Any]:
    found: list[Any] = [block.kind, dict(block.header), decode_positions(block, path=PATH)]
    if block.kind is BlockKind.COMMAND:
        return found
    if block.kind is BlockKind.DELETE:
        return [*found, decode_deletes(block, path=PATH)]
    if block.kind is BlockKind.HFILE_DATA:
        keys, values = arrow.decode_blocks(HFile.open(hfile_content(block, path=PATH)))
        return [*found, pa.record_batch([keys, values], names=["key", "value"])]
    rows = decode_records(block, path=PATH)
    found += [rows, decode_records(block, path=PATH, columns=rows.column_names[:1])]
    if block.kind is BlockKind.AVRO_DATA:
        schema = block.header[HeaderKey.SCHEMA]
        found.append(find_avro_records(block, schema, rows.column_names, [b"", b"a"], path=PATH))
    return found


def _block(rng: random.Random) -> bytes:
    kind = rng.choice((0, 1, 1, 3, 3, 3, 3, 4, 5, 6))
    schema = rng.choice(avro.schemas())
    entries = [(0, b"20260101000000000"), (2, schema.encode())]
    if rng.random() < 0.2:
        entries.append((5, _positions(rng)))
    content = _CONTENTS[kind](rng, schema)
    layer = rng.choice(("content", "header", "frame", "none", "none"))
    if layer == "content":
        content = damaged(content, rng)
    return _framed(kind, entries, content, rng, layer)


def _records(rng: random.Random, schema: str) -> bytes:
    datums = [avro.datum(schema, rng) for _ in range(rng.choice((0, 1, 2, 4)))]
    count, version = len(datums), 3
    lengths = [len(each) for each in datums]
    if rng.random() < 0.2:
        count = wrapped(strange(rng, count), 32)
    if rng.random() < 0.05:
        version = wrapped(strange(rng, version), 32)
    if lengths and rng.random() < 0.2:
        at = rng.randrange(len(lengths))
        lengths[at] = wrapped(strange(rng, lengths[at]), 32)
    parts = (struct.pack(">i", length) + each for length, each in zip(lengths, datums, strict=True))
    return struct.pack(">ii", version, count) + b"".join(parts)


def _deletes(rng: random.Random, _schema: str) -> bytes:
    if rng.random() < 0.5:  # Random values of the list's schema.
        payload = avro.datum(deletes._schema(), rng)
    else:
        payload = maybe(0.7, rng, lambda data: damaged(data, rng), rng.choice(_sound_deletes())[8:])
    length = maybe(0.1, rng, lambda n: wrapped(strange(rng, n), 32), len(payload))
    return struct.pack(">ii", maybe(0.03, rng, lambda n: n + 1, 3), length) + payload


@cache
def _sound_deletes() -> list[bytes]:
    keys, paths = pa.array(["a", "b", "c"]), pa.array(["p", "q", ""])
    orders = [None, pa.array([1, 2, None], pa.int64()), pa.array(["x", "y", "z"]), pa.array([1.5, None, 2.5])]
    orders.append(pa.StructArray.from_arrays([pa.array([1, 2, 3]), pa.array(["x", "y", "z"])], names=["0", "1"]))
    return [encode_deletes(keys, paths, order) for order in orders]


def _hfile(rng: random.Random, _schema: str) -> bytes:
    return hfile.make(rng)


def _parquet(rng: random.Random, _schema: str) -> bytes:
    from . import parquet

    return parquet.make(rng)


_CONTENTS: dict[int, Any] = {
    0: lambda *_: b"",
    1: _deletes,
    3: _records,
    4: _hfile,
    5: _parquet,
    6: _records,
}


def _positions(rng: random.Random) -> bytes:
    import base64

    numbers = np.array(sorted({rng.choice((n, n << 20, n << 40)) for n in range(rng.randint(0, 6))}), np.int64)
    raw = base64.b64decode(encode_positions(numbers))
    raw = maybe(0.6, rng, lambda data: damaged(data, rng), raw)
    return maybe(0.1, rng, lambda data: damaged(data, rng), base64.b64encode(raw))


def _framed(kind: int, entries: _Entries, content: bytes, rng: random.Random, layer: str) -> bytes:
    """The block: its lengths are right, unless frames are what is damaged."""
    is_header = layer == "header"

    def odd(number: int, bits: int, of: str) -> int:
        return wrapped(strange(rng, number), bits) if layer == of and rng.random() < 0.15 else number

    header = b""
    for key, value in entries:
        value = maybe(0.2 * is_header, rng, lambda text: damaged(text, rng), value)
        header += struct.pack(">ii", odd(key, 32, "header"), odd(len(value), 32, "header")) + value
    body = struct.pack(">iii", odd(1, 32, "header"), odd(kind, 32, "header"), odd(len(entries), 32, "header")) + header
    body += struct.pack(">q", odd(len(content), 64, "frame")) + content + struct.pack(">i", odd(0, 32, "frame"))
    size = len(body) + 8
    start = struct.pack(">6sq", b"#HUDI#", odd(size, 64, "frame"))
    return start + body + struct.pack(">q", odd(6 + size, 64, "frame"))
