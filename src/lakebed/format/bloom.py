"""Bloom filters over record keys, as base files and the metadata table store them.

The text is base64 of big-endian fields. SIMPLE is one row:

    int32 -1 | int32 hash count | int8 hash type | int32 bit count | bits, bit i in byte i/8 at i%8

DYNAMIC_V0 is a matrix of such rows, after a row header without bits, the capacity of a row, the number of keys
in the last row, and the number of rows. A key is in a row if all its bits are set; each bit comes from MurmurHash2
seeded with the hash before it. `kernels.bloom` hashes many keys at a time.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pybase64

from lakebed.errors import CorruptTableError
from lakebed.kernels.bloom import insert, probe
from lakebed.model.words import Word

CAPACITY = 60_000
_SMALL_CAPACITIES = (1_000, 10_000)
BLOOM_KEYS_MAX = 100_000
"""Number of keys after which a dynamic filter stops growing, Hudi's default."""

_ROW_HEADER = struct.Struct(">iibi")
_MATRIX_HEADER = struct.Struct(">iii")
_VERSION = -1
_MURMUR = 1
_HASHES_MAX = 1024
"""Maximum number of hashes, to bound the work of a probe of hostile bytes; one in a billion needs 30."""


class BloomKind(Word):
    """The serialized form of a filter, spelled as its type code."""

    SIMPLE = "SIMPLE"
    DYNAMIC = "DYNAMIC_V0"


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """Tells that a key is certainly not in a file, or that it might be.

    `rows` has one row of bits, packed in bytes, per `capacity` keys; a SIMPLE filter has one row and no capacity.
    """

    kind: BloomKind
    hash_count: int
    bit_count: int
    rows: npt.NDArray[np.uint8] = field(repr=False)
    capacity: int = 0
    last_row_count: int = 0

    @property
    def key_count(self) -> int:
        """Number of keys in a dynamic filter."""
        return (len(self.rows) - 1) * self.capacity + self.last_row_count

    def might_contain(self, key: str) -> bool:
        """False only if the key was not added."""
        positions = np.array(_bits_of(key.encode(), self.hash_count, self.bit_count), dtype=np.int64)
        probed = self.rows[:, positions >> 3] >> (positions & 7).astype(np.uint8) & 1
        return bool(probed.all(axis=1).any())

    def might_contain_many(self, keys: pa.Array) -> npt.NDArray[np.bool_]:
        """One answer per key; a null key is in no file."""
        data, offsets = key_bytes(keys)
        found = probe(data, offsets, self.rows, self.hash_count, self.bit_count)
        if keys.null_count:
            found &= np.asarray(keys.is_valid())
        return found


def bloom_capacity(keys: int) -> int:
    """Capacity in keys of a row of a dynamic filter: Hudi's 60,000, which takes 430 KB, and less in small files."""
    return next((capacity for capacity in _SMALL_CAPACITIES if keys <= capacity), CAPACITY)


def build_bloom(
    keys: pa.Array,
    *,
    capacity: int = CAPACITY,
    fpp: float = 1e-9,
    kind: BloomKind = BloomKind.DYNAMIC,
    keys_max: int = BLOOM_KEYS_MAX,
) -> BloomFilter:
    """The filter that Hudi's writer makes of the same keys in the same order, sized for `capacity` keys at `fpp`.

    A dynamic filter starts a new row every `capacity` keys up to `keys_max` keys; further keys go to the rows in turn,
    and the false-positive rate rises.
    """
    keys = keys.drop_null()
    bit_count = math.ceil(capacity * -math.log(fpp) / math.log(2) ** 2)
    hash_count = math.ceil(bit_count * math.log(2) / capacity)
    row_of, row_count, last_row_count = _assign_rows(len(keys), capacity, keys_max, kind)
    rows = np.zeros((row_count, _bytes_for(bit_count)), dtype=np.uint8)
    _insert(keys, row_of, rows, hash_count, bit_count)
    if kind is BloomKind.SIMPLE:
        return BloomFilter(kind, hash_count, bit_count, rows)
    return BloomFilter(kind, hash_count, bit_count, rows, capacity, last_row_count)


def extend_bloom(bloom: BloomFilter, keys: pa.Array, *, keys_max: int = BLOOM_KEYS_MAX) -> BloomFilter:
    """A dynamic filter with more keys: the same as `build_bloom` of the old keys followed by these."""
    assert bloom.kind is BloomKind.DYNAMIC, "a simple filter does not grow"
    keys = keys.drop_null()
    placed = _assign_rows(len(keys), bloom.capacity, keys_max, bloom.kind, first=bloom.key_count)
    row_of, row_count, last_row_count = placed
    rows = np.zeros((row_count, bloom.rows.shape[1]), dtype=np.uint8)
    rows[: len(bloom.rows)] = bloom.rows
    _insert(keys, row_of, rows, bloom.hash_count, bloom.bit_count)
    return replace(bloom, rows=rows, last_row_count=last_row_count)


def encode_bloom(bloom: BloomFilter) -> bytes:
    """The base64 text of a filter."""
    row_header = _ROW_HEADER.pack(_VERSION, bloom.hash_count, _MURMUR, bloom.bit_count)
    parts = [row_header + row.tobytes() for row in bloom.rows]
    if bloom.kind is BloomKind.DYNAMIC:
        parts.insert(0, row_header + _MATRIX_HEADER.pack(bloom.capacity, bloom.last_row_count, len(bloom.rows)))
    return pybase64.b64encode(b"".join(parts))


def decode_bloom(text: bytes | str, type_code: str, *, path: str) -> BloomFilter:
    """The filter of a base64 text in the form that `type_code` names."""
    if type_code not in (BloomKind.SIMPLE, BloomKind.DYNAMIC):
        raise CorruptTableError(f"Bloom filter type {type_code!r} is unknown", path=path)
    try:
        data = pybase64.b64decode(text, validate=True)
    except ValueError as error:
        raise CorruptTableError(f"a Bloom filter is not base64 ({error})", path=path) from error
    if type_code == BloomKind.DYNAMIC:
        return _decode_dynamic(data, path)
    hash_count, bit_count = _decode_row_header(data, 0, path)
    rows = _decode_rows(data, 0, 1, (hash_count, bit_count), path)
    return BloomFilter(BloomKind.SIMPLE, hash_count, bit_count, rows)


def _decode_dynamic(data: bytes, path: str) -> BloomFilter:
    hash_count, bit_count = _decode_row_header(data, 0, path)
    start = _ROW_HEADER.size + _MATRIX_HEADER.size
    if start > len(data):
        raise CorruptTableError("a Bloom filter ends early", path=path)
    capacity, last_row_count, row_count = _MATRIX_HEADER.unpack_from(data, _ROW_HEADER.size)
    rows = _decode_rows(data, start, row_count, (hash_count, bit_count), path)
    return BloomFilter(BloomKind.DYNAMIC, hash_count, bit_count, rows, capacity, last_row_count)


def _decode_row_header(data: bytes, at: int, path: str) -> tuple[int, int]:
    """Hash count and bit count of the row at `at`."""
    if at + _ROW_HEADER.size > len(data):
        raise CorruptTableError("a Bloom filter ends early", path=path)
    version, hash_count, hash_type, bit_count = _ROW_HEADER.unpack_from(data, at)
    if version != _VERSION or hash_type != _MURMUR:
        raise CorruptTableError(f"Bloom filter version {version} with hash {hash_type} is unknown", path=path)
    if not (0 < hash_count <= _HASHES_MAX and bit_count > 0):
        raise CorruptTableError(f"a Bloom filter has {bit_count} bits and {hash_count} hashes", path=path)
    return hash_count, bit_count


def _decode_rows(data: bytes, start: int, row_count: int, shape: tuple[int, int], path: str) -> npt.NDArray[np.uint8]:
    """The bits of rows that all have `shape` and fill `data` from `start`."""
    row_bytes = _ROW_HEADER.size + _bytes_for(shape[1])
    if row_count < 1 or start + row_count * row_bytes != len(data):
        raise CorruptTableError(f"a Bloom filter of {row_count} rows has {len(data)} bytes", path=path)
    for row in range(row_count):
        if _decode_row_header(data, start + row * row_bytes, path) != shape:
            raise CorruptTableError("the rows of a Bloom filter differ in shape", path=path)
    framed = np.frombuffer(data, dtype=np.uint8, offset=start).reshape(row_count, row_bytes)
    rows = np.ascontiguousarray(framed[:, _ROW_HEADER.size :])
    rows.flags.writeable = False
    return rows


def _insert(
    keys: pa.Array, row_of: npt.NDArray[np.int64], rows: npt.NDArray[np.uint8], hash_count: int, bit_count: int
) -> None:
    if len(keys):
        data, offsets = key_bytes(keys)
        insert(data, offsets, row_of, rows, hash_count, bit_count)
    rows.flags.writeable = False


def _assign_rows(
    key_count: int, capacity: int, keys_max: int, kind: BloomKind, first: int = 0
) -> tuple[npt.NDArray[np.int64], int, int]:
    """The row of each key, after `first` earlier ones; the number of rows; and Hudi's key count for the last row."""
    order = np.arange(first, first + key_count, dtype=np.int64)
    key_count += first
    if kind is BloomKind.SIMPLE:
        return np.zeros_like(order), 1, key_count
    row_max = max(1, -(-keys_max // capacity))
    row_count = max(1, min(row_max, -(-key_count // capacity)))
    beyond = order - row_max * capacity
    # Once full, the first key goes to row 0 and only then the turns begin, at row 0 again.
    row_of = np.where(beyond < 0, order // capacity, np.maximum(beyond - 1, 0) % row_max)
    return row_of, row_count, key_count - (row_count - 1) * capacity


def _bits_of(key: bytes, hash_count: int, bit_count: int) -> list[int]:
    """The bits of one key, in plain Python."""
    bits = []
    seed = 0
    for _ in range(hash_count):
        seed = murmur2(key, seed)
        signed = seed - (1 << 32) if seed >> 31 else seed
        bits.append(abs(signed) % bit_count)  # Java's remainder has the sign of the dividend, and abs drops it
    return bits


def murmur2(key: bytes, seed: int) -> int:
    """MurmurHash2 with the tail that Hudi inherited: the last byte lowest, all bytes signed."""
    mixed = seed ^ len(key)
    words = len(key) // 4
    for (word,) in struct.iter_unpack("<I", key[: words * 4]):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        mixed = mixed * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995
        mixed &= 0xFFFFFFFF
    tail = key[words * 4 :]
    for place, byte in enumerate(reversed(tail)):
        mixed ^= (byte - 256 if byte > 127 else byte) << 8 * place
    if tail:
        mixed = mixed * 0x5BD1E995
    mixed &= 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return mixed ^ mixed >> 15


def _bytes_for(bit_count: int) -> int:
    return -(-bit_count // 8)


def key_bytes(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The UTF-8 bytes of all keys, and their offsets."""
    large = keys.cast(pa.large_string())
    buffers: list[Any] = large.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int64)[large.offset : large.offset + len(large) + 1]
    data = np.frombuffer(buffers[2] or b"", dtype=np.uint8)
    return data, offsets
