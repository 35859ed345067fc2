"""Footers and page headers of Parquet files: read from base files, and written for `parquet_encode`.

A footer may lack everything but rows and schema: only writers that fill the meta columns add key range and Bloom
filter, only Avro writers the Avro schema. It is not decoded by Arrow, because malformed metadata of column chunks can
crash the process there. Structs written once per page or column are concatenated from constant field headers and
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

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
from lakebed.format.parquet_pages import FOOTER_BYTES, PARQUET_MAGIC, TAIL, parquet_columns
from lakebed.format.thrift import (
    RAW,
    Struct,
    decode_struct,
    encode_struct,
    integer,
    integer_list,
    struct_list,
    text,
    text_list,
)
from lakebed.format.varint import encode_zigzag

PLAIN_ENCODING, _RLE, RLE_DICTIONARY = 0, 3, 8
"""Encodings of Parquet pages."""
_CREATED_BY, _VERSION = b"lakebed version 1", 2


def page_header(size: int, stored: int, count: int, encoding: int) -> bytes:
    """PageHeader: type 0, sizes; DataPageHeader: values, their encoding, RLE for the levels of both kinds."""
    sizes, values = (
        encode_zigzag(size) + b"\x15" + encode_zigzag(stored),
        encode_zigzag(count) + b"\x15" + encode_zigzag(encoding),
    )
    return b"\x15\x00\x15" + sizes + b"\x2c\x15" + values + b"\x15\x06\x15\x06\x00\x00"


def dictionary_header(size: int, stored: int, count: int) -> bytes:
    """PageHeader: type 2, sizes; DictionaryPageHeader: values, plain."""
    sizes = encode_zigzag(size) + b"\x15" + encode_zigzag(stored)
    return b"\x15\x04\x15" + sizes + b"\x4c\x15" + encode_zigzag(count) + b"\x15\x00\x00\x00"


def chunk_metadata(head: bytes, rows: int, size: int, stored: int, at: int, dictionary: int) -> bytes:
    """ColumnChunk: its offset; ColumnMetaData: its head, value count, sizes, offsets of data pages and dictionary."""
    sizes = encode_zigzag(rows) + b"\x16" + encode_zigzag(size) + b"\x16" + encode_zigzag(stored)
    places = encode_zigzag(at + dictionary) + (b"\x26" + encode_zigzag(at) if dictionary else b"")
    return b"\x26" + encode_zigzag(at) + b"\x1c" + head + b"\x16" + sizes + b"\x26" + places + b"\x00\x00"


@lru_cache(maxsize=1024)
def chunk_head(name: str, kind: int, codec: int, *, has_dictionary: bool) -> bytes:
    """The first fields of ColumnMetaData, which are the same in every file."""
    encodings = [PLAIN_ENCODING, _RLE, RLE_DICTIONARY] if has_dictionary else [PLAIN_ENCODING, _RLE]
    fields = {
        1: integer(kind, wide=False),
        2: integer_list(encodings),
        3: text_list([name.encode()]),
        4: integer(codec, wide=False),
    }
    return encode_struct(fields)[:-1]


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """The schema of a file, encoded, and the names and physical types of its columns."""

    elements: bytes
    names: tuple[str, ...]
    kinds: tuple[int, ...]


@lru_cache(maxsize=64)
def parquet_schema(schema: pa.Schema) -> StoredSchema:
    """The stored form of a schema, taken from Arrow's writer."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    file = sink.getvalue().to_pybytes()
    length, _ = TAIL.unpack(file[-TAIL.size :])
    footer, _ = decode_struct(file[-TAIL.size - length : -TAIL.size])
    root, *fields = footer[2]
    kinds = tuple(field[1] for field in fields)
    return StoredSchema(struct_list(each[RAW] for each in (root, *fields)), tuple(schema.names), kinds)


def encode_footer(
    schema: StoredSchema, rows: int, size: int, chunks: Iterable[bytes], entries: Mapping[bytes, bytes]
) -> bytes:
    """FileMetaData of one row group with these column chunks of `size` bytes, followed by its length and the magic."""
    group = encode_struct({1: struct_list(chunks), 2: integer(size), 3: integer(rows)})
    pairs = (encode_struct({1: text(key), 2: text(value)}) for key, value in entries.items())
    fields = {
        1: integer(_VERSION, wide=False),
        2: schema.elements,
        3: integer(rows),
        4: struct_list([group]),
        5: struct_list(pairs),
        6: text(_CREATED_BY),
    }
    footer = encode_struct(fields)
    return footer + TAIL.pack(len(footer), PARQUET_MAGIC)


_AVRO_SCHEMA = b"parquet.avro.schema"
_WRITER_MODEL = b"writer.model.name"
_KEY_MIN = b"hoodie_min_record_key"
_KEY_MAX = b"hoodie_max_record_key"
BLOOM = b"org.apache.hudi.bloomfilter"
_BLOOM_TYPE = b"hoodie_bloom_filter_type_code"
_BEYOND_BMP = 0xF0
"""First byte, in UTF-8, of characters above U+FFFF, and a byte of no other character."""

_NUMBER_BYTES = 4

_SCHEMA, _ROWS, _ROW_GROUPS, _ENTRIES = 2, 3, 4, 5  # Numbers of fields: of the footer,
_CHUNKS = 1  # of a row group,
_VALUES, _UNCOMPRESSED_BYTES, _DICTIONARY_OFFSET = 5, 6, 11  # and of the metadata of a column chunk.


@dataclass(frozen=True, slots=True)
class BaseFileFooter:
    """The footer of one base file. `key_min` and `key_max` bound its record keys, both included.

    `repetitive` columns hold text that is stored as little more than dictionary indices.
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
        """The Bloom filter over the record keys, decoded on each access, which takes a millisecond."""
        if self.bloom_text is None:
            return None
        return decode_bloom(self.bloom_text, self.bloom_type, path=self.path)


def decode_parquet_footer(file: bytes | memoryview | pa.NativeFile, *, path: str) -> BaseFileFooter:
    """The footer of an open Parquet file, or of bytes from the end of a file that include the footer.

    Errors of reading an open file are passed on, not turned into CorruptTableError.
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
    """The footer entries that Hudi's writer gives a base file with these record keys and this Avro schema.

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
    """The end of a file, with all of its footer."""
    size: int = file.size()
    tail: bytes = file.read_at(min(size, FOOTER_BYTES), max(0, size - FOOTER_BYTES))
    wanted = min(size, int.from_bytes(tail[-8:-4], "little") + 8)
    if wanted > len(tail):
        tail = file.read_at(wanted - len(tail), size - wanted) + tail
    return tail


def _footer_bytes(tail: bytes | memoryview) -> memoryview:
    """The footer in bytes from the end of a file."""
    length, magic = TAIL.unpack(tail[-TAIL.size :])
    if magic != PARQUET_MAGIC or length > len(tail) - TAIL.size:
        raise ValueError("the file does not end with a footer")
    return memoryview(tail)[len(tail) - TAIL.size - length : len(tail) - TAIL.size]


def _repetitive(footer: Struct) -> Iterator[str]:
    """Columns of text that are stored as dictionary indices in all row groups."""
    groups = [group[_CHUNKS] for group in footer[_ROW_GROUPS]]
    for column in parquet_columns(footer[_SCHEMA]):
        if groups and column.is_text and all(_is_numbers(chunks[column.leaves[0].number][3]) for chunks in groups):
            yield column.name


def _is_numbers(chunk: Struct) -> bool:
    """Whether the values of a column chunk are stored as dictionary indices, judging by its size."""
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

    Java compares UTF-16 units, Arrow UTF-8 bytes. The orders differ only for characters above U+FFFF, whose surrogates
    sort below U+E000.
    """
    data, offsets = key_bytes(keys)
    if not (data[offsets[0] : offsets[-1]] >= _BEYOND_BMP).any():
        ends = pc.min_max(keys)
        return str(ends["min"]).encode(), str(ends["max"]).encode()
    texts: list[Any] = keys.drop_null().to_pylist()
    units = [text.encode("utf-16-be") for text in texts]
    return min(units).decode("utf-16-be").encode(), max(units).decode("utf-16-be").encode()
