"""What the footer of a Parquet base file says of it: rows, schema, key range and bloom filter.

A footer may lack everything but rows and schema: only writers that fill the meta columns add key range and
filter, only Avro writers the Avro schema. It is decoded here: what Arrow tells of column chunks ends the process if
certain bytes are bad.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTableError
from lakebed.format.bloom import (
    BloomFilter,
    BloomKind,
    bloom_capacity,
    build_bloom,
    decode_bloom,
    encode_bloom,
    key_bytes,
)
from lakebed.format.guard import decoding
from lakebed.format.parquet_pages import parquet_columns
from lakebed.format.thrift import Struct, decode_struct

_AVRO_SCHEMA = b"parquet.avro.schema"
_WRITER_MODEL = b"writer.model.name"
_KEY_MIN = b"hoodie_min_record_key"
_KEY_MAX = b"hoodie_max_record_key"
BLOOM = b"org.apache.hudi.bloomfilter"
_BLOOM_TYPE = b"hoodie_bloom_filter_type_code"
_BEYOND_BMP = 0xF0
"""First byte, in UTF-8, of characters above U+FFFF, and a byte of no other character."""

_NUMBER_BYTES = 4

_MAGIC, _TAIL = b"PAR1", struct.Struct("<I4s")
_SCHEMA, _ROWS, _ROW_GROUPS, _ENTRIES = 2, 3, 4, 5  # Numbers of fields: of the footer,
_CHUNKS = 1  # of a row group,
_VALUES, _UNCOMPRESSED_BYTES, _DICTIONARY_OFFSET = 5, 6, 11  # and of the metadata of a column chunk.
_TAIL_BYTES = 512 * 1024
"""Read at once from the end of a file: a footer with the usual bloom filter is 435 kB."""


@dataclass(frozen=True, slots=True)
class BaseFileFooter:
    """The footer of one base file. `key_min` and `key_max` bound its record keys, both included.

    `repetitive` columns hold text of which little more is stored than the numbers of its distinct values.
    """

    path: str
    rows: int
    avro_schema: str | None = field(default=None, repr=False)
    key_min: str | None = None
    key_max: str | None = None
    bloom_text: bytes | None = field(default=None, repr=False)
    bloom_type: str = BloomKind.SIMPLE.value
    repetitive: frozenset[str] = frozenset()

    @property
    def bloom(self) -> BloomFilter | None:
        """The bloom filter over the record keys, decoded anew on each access: it takes a millisecond."""
        if self.bloom_text is None:
            return None
        return decode_bloom(self.bloom_text, self.bloom_type, path=self.path)


def decode_parquet_footer(file: bytes | memoryview | pa.NativeFile, *, path: str) -> BaseFileFooter:
    """The footer of an open Parquet file, or of bytes that end as the file does and hold at least its footer.

    What an open file raises when it cannot be read passes through: it says nothing of the bytes.
    """
    tail = _read_tail(file) if isinstance(file, pa.NativeFile) else file
    with decoding(path, "the Parquet footer"):
        footer, _ = decode_struct(_footer_bytes(tail))
        rows = footer[_ROWS]
        if not isinstance(rows, int) or rows < 0:
            raise CorruptTableError(f"the Parquet footer says {rows} rows", path=path)
        entries = {entry[1]: entry.get(2, b"") for entry in footer.get(_ENTRIES, ())}
        return BaseFileFooter(
            path=path,
            rows=rows,
            avro_schema=_text(entries, _AVRO_SCHEMA),
            key_min=_text(entries, _KEY_MIN),
            key_max=_text(entries, _KEY_MAX),
            bloom_text=_bytes(entries, BLOOM),
            bloom_type=_text(entries, _BLOOM_TYPE) or BloomKind.SIMPLE.value,
            repetitive=frozenset(_repetitive(footer)),
        )


def footer_metadata(keys: pa.Array, avro_json: str, bloom: BloomFilter | None = None) -> dict[bytes, bytes]:
    """The footer entries of a new base file with these record keys and this Avro schema, as Hudi's writer has them.

    A `bloom` filter over the same keys saves building it.
    """
    bloom = build_bloom(keys, capacity=bloom_capacity(len(keys))) if bloom is None else bloom
    entries = avro_metadata(avro_json)
    entries |= {_BLOOM_TYPE: bloom.kind.value.encode(), BLOOM: encode_bloom(bloom)}
    if len(keys) > keys.null_count:
        entries[_KEY_MIN], entries[_KEY_MAX] = _key_range(keys)
    return entries


def avro_metadata(avro_json: str) -> dict[bytes, bytes]:
    """The footer entries that every Parquet file of Avro records has, in base files and in log blocks."""
    return {_AVRO_SCHEMA: avro_json.encode(), _WRITER_MODEL: b"avro"}


def _read_tail(file: Any) -> bytes:
    """The end of a file: all of its footer, if the file says how long that is."""
    size: int = file.size()
    tail: bytes = file.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))
    wanted = min(size, int.from_bytes(tail[-8:-4], "little") + 8)
    if wanted > len(tail):
        tail = file.read_at(wanted - len(tail), size - wanted) + tail
    return tail


def _footer_bytes(tail: bytes | memoryview) -> memoryview:
    """The footer in bytes that end as a file does."""
    length, magic = _TAIL.unpack(tail[-_TAIL.size :])
    if magic != _MAGIC or length > len(tail) - _TAIL.size:
        raise ValueError("the file does not end with a footer")
    return memoryview(tail)[len(tail) - _TAIL.size - length : len(tail) - _TAIL.size]


def _repetitive(footer: Struct) -> Iterator[str]:
    """Columns of text that are stored as numbers of dictionary entries, in all row groups."""
    groups = [group[_CHUNKS] for group in footer[_ROW_GROUPS]]
    for column in parquet_columns(footer[_SCHEMA]):
        if groups and column.is_text and all(_is_numbers(chunks[column.leaves[0].number][3]) for chunks in groups):
            yield column.name


def _is_numbers(chunk: Struct) -> bool:
    """Whether the values of a column chunk are stored as numbers of dictionary entries, by the room that they take."""
    has_dictionary = _DICTIONARY_OFFSET in chunk
    return has_dictionary and chunk[_UNCOMPRESSED_BYTES] <= _NUMBER_BYTES * chunk[_VALUES]


def _text(entries: dict[bytes, bytes], key: bytes) -> str | None:
    found = _bytes(entries, key)
    return None if found is None else found.decode()


def _bytes(entries: dict[bytes, bytes], key: bytes) -> bytes | None:
    found = entries.get(key)
    if found is not None and not isinstance(found, bytes):
        raise ValueError(f"{key!r} is not text")
    return found


def _key_range(keys: pa.Array) -> tuple[bytes, bytes]:
    """The least and greatest key in the order of Java strings.

    Java compares UTF-16 units, Arrow UTF-8 bytes: the orders part only above U+FFFF, where Java's surrogates
    sort below U+E000.
    """
    data, offsets = key_bytes(keys)
    if not (data[offsets[0] : offsets[-1]] >= _BEYOND_BMP).any():
        ends = pc.min_max(keys)
        return str(ends["min"]).encode(), str(ends["max"]).encode()
    texts: list[Any] = keys.drop_null().to_pylist()
    units = [text.encode("utf-16-be") for text in texts]
    return min(units).decode("utf-16-be").encode(), max(units).decode("utf-16-be").encode()
