"""A Parquet file of flat columns in one row group, encoded by compiled code.

For files as small as log blocks Arrow's writer takes most of its time to get ready. Here one call encodes all pages
and tells the bounds of texts on the way. Tables with columns that are not known here are Arrow's: see `can_encode`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from lakebed.format.arrow import ArrowArray
from lakebed.format.thrift import (
    RAW,
    decode_struct,
    encode_struct,
    integer,
    integer_list,
    struct_list,
    text,
    text_list,
    varint,
    zigzag,
)

_MAGIC, _TAIL = b"PAR1", struct.Struct("<I4s")
_CREATED_BY, _VERSION = b"lakebed version 1", 2
_FIXED, _TEXT, _LARGE_TEXT, _BITS, _CODES, _NUMBERED = range(6)
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_CODECS = {"NONE": 0, "SNAPPY": 1, "GZIP": 2, "ZSTD": 6}
_WIDTHS = {pa.int32(): 4, pa.int64(): 8, pa.float32(): 4, pa.float64(): 8, pa.date32(): 4}
_PAGE_BYTES = 1 << 20
_LENGTH_BYTES = 4
_HEAD_BYTES = 16
"""Of what stands before the values of a page that has one in every row, at most."""
_SMALL_BYTES = 256
"""Column chunks up to this size are not compressed."""
_NUMBERED_MAX = 200
"""Bytes of a numbered text, with its length: compiled code knows no longer ones."""
_DISTINCT_MAX = 0.5
"""Up to this share of distinct values a column gets a dictionary."""

Memory = Callable[[int], memoryview]
"""So many bytes, which are good until they are asked for again."""
Bounds = tuple[str, str]
Ends = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Numbered:
    """Texts that are not spelled out: `<prefix><first>`, `<prefix><first + 1>`, … up to `count` of them.

    Only snappy compresses them as they are; the prefix is short.
    """

    prefix: str
    first: int
    count: int


Columns = Mapping[str, pa.ChunkedArray | Numbered]


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """The parts that a file consists of, one after the other, and the bounds of some of its columns of text."""

    parts: Sequence[bytes | memoryview]
    bounds: Mapping[str, Bounds]


def can_encode(schema: pa.Schema, columns: Columns, codecs: Mapping[str, str]) -> bool:
    """Whether all columns are of types that are known here, and of codecs; and null only if they may be."""
    if not _are_known(schema) or not _CODECS.keys() >= {*codecs.values()}:
        return False
    return all(
        codecs.get(field.name) == "SNAPPY" if isinstance(values, Numbered) else field.nullable or not values.null_count
        for field, values in zip(schema, columns.values(), strict=True)
    )


def encode_parquet(
    schema: pa.Schema,
    columns: Columns,
    entries: Mapping[bytes, bytes],
    *,
    codecs: Mapping[str, str],
    repetitive: Collection[str],
    memory: Memory,
) -> EncodedFile:
    """A file with one row or more in these columns, which are those of the schema, and footer `entries`.

    Columns that are `repetitive` get a dictionary, as those do that come with one. Some of it lies in `memory`.
    """
    from lakebed.format.parquet_kernels import encode_pages

    tasks, stored = _Tasks(), _stored_schema(schema)
    planned = [
        _plan_column(field, values, codecs.get(field.name, "NONE"), tasks, is_repetitive=field.name in repetitive)
        for field, values in zip(schema, columns.values(), strict=True)
    ]
    room, found = memory(tasks.size), np.empty(3 * len(tasks.pages), np.int64)
    address = np.frombuffer(room, np.uint8).ctypes.data if tasks.size else 0
    encode_pages(np.array(tasks.pages, np.int64).reshape(-1), address, found)
    made = _Made(tasks, found.tolist(), room)
    rows = sum(page.count for page in planned[0].pages)
    parts: list[bytes | memoryview] = [_MAGIC]
    at, chunks = len(_MAGIC), []
    for column, kind in zip(planned, stored.kinds, strict=True):
        chunk = _encode_chunk(column, kind, rows, at, made)
        parts += chunk.parts
        chunks.append(chunk.metadata)
        at += chunk.size
    footer = _encode_footer(stored, rows, at - len(_MAGIC), chunks, entries)
    bounds = {column.name: ends for column in planned if (ends := column.find_bounds(made)) is not None}
    return EncodedFile([*parts, footer, _TAIL.pack(len(footer), _MAGIC)], bounds)


class PageTask(NamedTuple):
    """A page, for compiled code: rows of a column that lies at these addresses, and where in memory they go."""

    kind: int
    width: int
    values: int
    offsets: int
    validity: int
    first: int
    rows: int
    is_optional: int
    at: int


class _Tasks:
    """Pages that are to be encoded, the arrays that they lie in, and the memory that they take, at most.

    The record key often is a data column, too: arrays that are the same in memory share their `plain` pages.
    """

    def __init__(self) -> None:
        self.pages: list[PageTask] = []
        self.arrays: list[ArrowArray] = []
        self.plain: dict[PageTask, Sequence[_Page]] = {}
        self.size = 0

    def add(self, array: ArrowArray, page: PageTask, size: int) -> _Page:
        """The page of an array whose values take so many bytes."""
        levels = page.is_optional * (_HEAD_BYTES + (page.rows // 8 if page.validity else 0))
        self.pages.append(page._replace(at=self.size))
        self.arrays.append(array)
        self.size += _HEAD_BYTES + levels + size
        return _Page(page.rows, len(self.pages) - 1)


@dataclass(frozen=True, slots=True)
class _Made:
    """Tasks that are done: three numbers were found for each, see `encode_pages`, and its page lies in memory."""

    tasks: _Tasks
    found: Sequence[int]
    room: memoryview

    def page(self, number: int) -> memoryview:
        """The bytes of a page."""
        at = self.tasks.pages[number].at
        return self.room[at : at + self.found[3 * number]]

    def ends(self, number: int) -> Iterator[str]:
        """The least and the greatest text of a page, if it has any."""
        values = self.tasks.arrays[number]
        for row in self.found[3 * number + 1 : 3 * number + 3]:
            if row >= 0:
                yield values[row - values.offset].as_py()


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of so many values, nulls among them: the number of its task, or the bytes of one that needs none."""

    count: int
    content: int | bytes

    def read(self, made: _Made) -> bytes | memoryview:
        """Its bytes."""
        return self.content if isinstance(self.content, bytes) else made.page(self.content)

    def is_compressed(self, made: _Made) -> bool:
        """Whether its bytes are those that are stored, whatever the codec."""
        return isinstance(self.content, int) and made.tasks.pages[self.content].kind == _NUMBERED

    def stored(self, made: _Made, codec: str) -> tuple[int, bytes | memoryview]:
        """Its size, and its bytes, compressed."""
        content = self.read(made)
        if isinstance(self.content, int) and self.is_compressed(made):
            return made.found[3 * self.content + 1], content
        return len(content), content if codec == "NONE" else pa.Codec(codec.lower()).compress(content, asbytes=True)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its pages, and that of its dictionary, if it has one.

    Its bounds are those of the `bounding` pages, or the `only` text that it has.
    """

    name: str
    codec: str
    pages: Sequence[_Page]
    dictionary: _Page | None = None
    bounding: Sequence[_Page] = ()
    only: str | None = None

    def is_large(self, made: _Made) -> bool:
        """Whether it is worth compressing, or has been."""
        return any(page.is_compressed(made) or len(page.read(made)) > _SMALL_BYTES for page in self.pages)

    def find_bounds(self, made: _Made) -> Bounds | None:
        """The least and the greatest text by their bytes, if they were looked for and there is any."""
        if self.only is not None:
            return self.only, self.only
        tasks = (page.content for page in self.bounding)
        ends = [end for task in tasks if isinstance(task, int) for end in made.ends(task)]
        return (min(ends, key=str.encode), max(ends, key=str.encode)) if ends else None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column chunk: its pages with their headers, and what the footer says of it."""

    parts: Sequence[bytes | memoryview]
    size: int
    metadata: bytes


@lru_cache(maxsize=64)
def _are_known(schema: pa.Schema) -> bool:
    return all(map(_is_known, schema.types))


def _is_known(kind: pa.DataType) -> bool:
    if pat.is_dictionary(kind):
        return bool(pat.is_string(kind.value_type))
    return _width(kind) > 0 or _is_text(kind) or bool(pat.is_boolean(kind))


def _width(kind: pa.DataType) -> int:
    """The bytes of a value that is stored as it is in memory; else 0."""
    if pat.is_timestamp(kind):
        return 8 if kind.unit in ("us", "ms") else 0
    return _WIDTHS.get(kind, 0)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_binary(kind) or _is_large(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pat.is_large_string(kind) or pat.is_large_binary(kind))


def _plan_column(
    field: pa.Field, column: pa.ChunkedArray | Numbered, codec: str, tasks: _Tasks, *, is_repetitive: bool
) -> _Column:
    """The pages of a column, as tasks where they need one."""
    if isinstance(column, Numbered):
        return _Column(field.name, codec, [_numbered_page(column, tasks, is_optional=field.nullable)])
    has_codes = pat.is_dictionary(column.type)
    if has_codes or (is_repetitive and not pat.is_boolean(column.type)):
        encoded = _in_one_piece(column if has_codes else column.dictionary_encode())
        if _is_small(encoded):
            return _plan_codes(field, encoded, codec, tasks, is_used=not has_codes)
        column = column.cast(column.type.value_type) if has_codes else column
    pages = [page for chunk in column.chunks for page in _plain_pages(chunk, tasks, is_optional=field.nullable)]
    return _Column(field.name, codec, pages, bounding=pages if pat.is_string(column.type) else ())


def _numbered_page(texts: Numbered, tasks: _Tasks, *, is_optional: bool) -> _Page:
    assert is_optional, "sequence numbers are"
    prefix = texts.prefix.encode()
    array = pa.array([prefix], pa.binary())
    task = _task(array, _NUMBERED, len(prefix), is_optional=is_optional)
    room = len(prefix) + 2 * _HEAD_BYTES
    assert room < _NUMBERED_MAX, texts
    return tasks.add(array, task._replace(first=texts.first, rows=texts.count), (texts.count + 2) * room)


def _plan_codes(field: pa.Field, encoded: ArrowArray, codec: str, tasks: _Tasks, *, is_used: bool) -> _Column:
    """A page of the numbers of dictionary entries, and one of these, all of which occur if it `is_used`."""
    values, count = encoded.dictionary, len(encoded)
    if len(values) == 1 and not encoded.null_count and pat.is_string(values.type):
        levels = _level_of_all(count) if field.nullable else b""
        only: str = values[0].as_py()
        word = only.encode()
        first, rest = _Page(1, len(word).to_bytes(4, "little") + word), levels + b"\1" + varint(count << 1) + b"\0"
        return _Column(field.name, codec, [_Page(count, rest)], first, only=only)
    (dictionary,) = _plain_pages(values, tasks, is_optional=False)
    codes, width = encoded.indices.cast(pa.int32()), max(1, (len(values) - 1).bit_length())
    task = _task(codes, _CODES, width, is_optional=field.nullable)
    page = tasks.add(codes, task, (count + 7) // 8 * width)
    return _Column(
        field.name, codec, [page], dictionary, [dictionary] if is_used and pat.is_string(values.type) else []
    )


def _plain_pages(array: ArrowArray, tasks: _Tasks, *, is_optional: bool) -> Sequence[_Page]:
    """Pages of an array with the values as they are."""
    if not len(array):
        return ()
    whole = _plain_task(array, is_optional=is_optional)
    if whole not in tasks.plain:
        ends = _text_ends(array) if whole.offsets else None
        size = whole.width * len(array) if ends is None else int(ends[-1] - ends[0]) + _LENGTH_BYTES * len(array)
        rows = max(1, _PAGE_BYTES * len(array) // max(1, size))
        tasks.plain[whole] = [
            _add_plain(array, whole, ends, first, rows, tasks) for first in range(0, len(array), rows)
        ]
    return tasks.plain[whole]


def _add_plain(array: ArrowArray, whole: PageTask, ends: Ends | None, first: int, rows: int, tasks: _Tasks) -> _Page:
    """A page of some rows of an array."""
    rows = min(rows, len(array) - first)
    page = whole._replace(first=whole.first + first, rows=rows)
    size = max(1, whole.width) * rows if ends is None else int(ends[first + rows] - ends[first]) + _LENGTH_BYTES * rows
    return tasks.add(array, page, size)


def _plain_task(array: ArrowArray, *, is_optional: bool) -> PageTask:
    kind, width = array.type, _width(array.type)
    if width:
        return _task(array, _FIXED, width, is_optional=is_optional)
    layout = _BITS if pat.is_boolean(kind) else _LARGE_TEXT if _is_large(kind) else _TEXT
    return _task(array, layout, 0, is_optional=is_optional)


def _text_ends(array: ArrowArray) -> Ends:
    """Where each text begins among the bytes of all, and where the last one ends."""
    width = np.int64 if _is_large(array.type) else np.int32
    ends: Ends = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    return ends


def _task(array: ArrowArray, kind: int, width: int, *, is_optional: bool) -> PageTask:
    """The page that has all of an array."""
    validity, *others = array.buffers()
    places = [0 if buffer is None else buffer.address for buffer in others]
    known = validity.address if array.null_count else 0
    offsets = places[0] if len(places) > 1 else 0
    return PageTask(kind, width, places[-1], offsets, known, array.offset, len(array), int(is_optional), 0)


def _is_small(encoded: ArrowArray) -> bool:
    """Whether a dictionary pays, and is one page."""
    values = encoded.dictionary
    return 0 < len(values) <= _DISTINCT_MAX * len(encoded) and values.nbytes < _PAGE_BYTES // 2


def _in_one_piece(column: pa.ChunkedArray) -> ArrowArray:
    return column.chunk(0) if column.num_chunks == 1 else column.unify_dictionaries().combine_chunks()


def _level_of_all(count: int) -> bytes:
    """Definition levels of values none of which is null."""
    levels = varint(count << 1) + b"\1"
    return len(levels).to_bytes(4, "little") + levels


def _encode_chunk(column: _Column, kind: int, rows: int, at: int, made: _Made) -> _Chunk:
    """A column chunk that begins at a position of the file."""
    dictionary, codec = column.dictionary, column.codec if column.is_large(made) else "NONE"
    parts: list[bytes | memoryview] = []
    size, first = 0, 0
    if dictionary is not None:
        before, stored = dictionary.stored(made, codec)
        parts += [_dictionary_header(before, len(stored), dictionary.count), stored]
        first, size = len(parts[0]) + len(stored), len(parts[0]) + before
    encoding, total = _PLAIN if dictionary is None else _RLE_DICTIONARY, first
    for page in column.pages:
        before, stored = page.stored(made, codec)
        header = _page_header(before, len(stored), page.count, encoding)
        parts += [header, stored]
        size, total = size + len(header) + before, total + len(header) + len(stored)
    head = _chunk_head(column.name, kind, _CODECS[codec], has_dictionary=dictionary is not None)
    return _Chunk(parts, total, _chunk_metadata(head, rows, size, total, at, first))


# Structs of which there is one for every page or column are spelled out: the heads of their fields, and numbers.


def _page_header(size: int, stored: int, count: int, encoding: int) -> bytes:
    """PageHeader: type 0, sizes; DataPageHeader: values, their encoding, RLE for the levels of both kinds."""
    sizes, values = zigzag(size) + b"\x15" + zigzag(stored), zigzag(count) + b"\x15" + zigzag(encoding)
    return b"\x15\x00\x15" + sizes + b"\x2c\x15" + values + b"\x15\x06\x15\x06\x00\x00"


def _dictionary_header(size: int, stored: int, count: int) -> bytes:
    """PageHeader: type 2, sizes; DictionaryPageHeader: values, plain."""
    return b"\x15\x04\x15" + zigzag(size) + b"\x15" + zigzag(stored) + b"\x4c\x15" + zigzag(count) + b"\x15\x00\x00\x00"


def _chunk_metadata(head: bytes, rows: int, size: int, stored: int, at: int, dictionary: int) -> bytes:
    """ColumnChunk: where it begins; ColumnMetaData: its head, values, sizes, where its pages and dictionary begin."""
    sizes = zigzag(rows) + b"\x16" + zigzag(size) + b"\x16" + zigzag(stored)
    places = zigzag(at + dictionary) + (b"\x26" + zigzag(at) if dictionary else b"")
    return b"\x26" + zigzag(at) + b"\x1c" + head + b"\x16" + sizes + b"\x26" + places + b"\x00\x00"


@lru_cache(maxsize=1024)
def _chunk_head(name: str, kind: int, codec: int, *, has_dictionary: bool) -> bytes:
    """What ColumnMetaData begins with, which is the same in every file."""
    encodings = [_PLAIN, _RLE, _RLE_DICTIONARY] if has_dictionary else [_PLAIN, _RLE]
    fields = {
        1: integer(kind, wide=False),
        2: integer_list(encodings),
        3: text_list([name.encode()]),
        4: integer(codec, wide=False),
    }
    return encode_struct(fields)[:-1]


@dataclass(frozen=True, slots=True)
class _StoredSchema:
    """The schema of a file, encoded, and the physical types of its columns."""

    elements: bytes
    kinds: tuple[int, ...]


@lru_cache(maxsize=64)
def _stored_schema(schema: pa.Schema) -> _StoredSchema:
    """A schema as Arrow's writer stores it."""
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    file = sink.getvalue().to_pybytes()
    length, _ = _TAIL.unpack(file[-_TAIL.size :])
    footer, _ = decode_struct(file[-_TAIL.size - length : -_TAIL.size])
    elements = footer[2]
    return _StoredSchema(struct_list(each[RAW] for each in elements), tuple(each[1] for each in elements[1:]))


def _encode_footer(
    schema: _StoredSchema, rows: int, size: int, chunks: Iterable[bytes], entries: Mapping[bytes, bytes]
) -> bytes:
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
    return encode_struct(fields)
