"""The Thrift structs of Parquet files that `parquet_encode` makes: headers of pages, and the footer.

Those of which there is one for every page or column are spelled out: the heads of their fields, and numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.thrift import (
    RAW,
    decode_struct,
    encode_struct,
    integer,
    integer_list,
    struct_list,
    text,
    text_list,
)
from lakebed.format.varint import encode_zigzag

MAGIC = b"PAR1"
PLAIN, _RLE, RLE_DICTIONARY = 0, 3, 8
"""Encodings."""
_TAIL = struct.Struct("<I4s")
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
    """ColumnChunk: where it begins; ColumnMetaData: its head, values, sizes, where its pages and dictionary begin."""
    sizes = encode_zigzag(rows) + b"\x16" + encode_zigzag(size) + b"\x16" + encode_zigzag(stored)
    places = encode_zigzag(at + dictionary) + (b"\x26" + encode_zigzag(at) if dictionary else b"")
    return b"\x26" + encode_zigzag(at) + b"\x1c" + head + b"\x16" + sizes + b"\x26" + places + b"\x00\x00"


@lru_cache(maxsize=1024)
def chunk_head(name: str, kind: int, codec: int, *, has_dictionary: bool) -> bytes:
    """What ColumnMetaData begins with, which is the same in every file."""
    encodings = [PLAIN, _RLE, RLE_DICTIONARY] if has_dictionary else [PLAIN, _RLE]
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
def stored_schema(schema: pa.Schema) -> StoredSchema:
    """A schema as Arrow's writer stores it."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    file = sink.getvalue().to_pybytes()
    length, _ = _TAIL.unpack(file[-_TAIL.size :])
    footer, _ = decode_struct(file[-_TAIL.size - length : -_TAIL.size])
    root, *fields = footer[2]
    kinds = tuple(field[1] for field in fields)
    return StoredSchema(struct_list(each[RAW] for each in (root, *fields)), tuple(schema.names), kinds)


def encode_footer(
    schema: StoredSchema, rows: int, size: int, chunks: Iterable[bytes], entries: Mapping[bytes, bytes]
) -> bytes:
    """FileMetaData of one row group with these column chunks, which take so many bytes, and its length and magic."""
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
    return footer + _TAIL.pack(len(footer), MAGIC)
