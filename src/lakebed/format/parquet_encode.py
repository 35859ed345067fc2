"""Parquet files of flat columns in one row group, encoded by compiled code.

Arrow's writer would need the rows of each file gathered first, and does not report min and max of columns. Here columns
are prepared once for all files, and each file selects its rows; one call encodes all pages of a file and finds min and
max on the way. Tables with other columns are left to Arrow: see `can_encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lakebed.format.arrow import ArrowArray
from lakebed.format.parquet_footer import (
    PLAIN_ENCODING,
    RLE_DICTIONARY,
    chunk_head,
    chunk_metadata,
    dictionary_header,
    encode_footer,
    page_header,
    parquet_schema,
)
from lakebed.format.parquet_pages import PARQUET_MAGIC
from lakebed.format.varint import encode_varint
from lakebed.kernels.parquet import encode_pages

_SIGNED, _FLOAT, _TEXT, _LARGE_TEXT, _BITS, _CODES, _DECIMAL, _NUMBERED, _SNAPPY_NUMBERED = range(9)
_CODECS = {"NONE": 0, "SNAPPY": 1, "GZIP": 2, "ZSTD": 6}
_WIDTHS = {pa.int32(): 4, pa.int64(): 8, pa.float32(): 4, pa.float64(): 8, pa.date32(): 4, pa.time64("us"): 8}
_PAGE_BYTES = 1 << 20
_DISTINCT_MAX = 0.5
"""Maximum share of distinct values among the rows of a file for which a column gets a dictionary."""
_SMALL_BYTES = 256
"""Maximum size in bytes of pages that are not worth compressing."""
_PREFIX_MAX = 200
"""Maximum length in bytes of the prefix of numbered texts, a limit of the compiled code."""

Rows = npt.NDArray[np.int64]
Allocate = Callable[[int], memoryview]
"""Allocates a number of bytes, valid until the next call."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """The texts `<prefix><first>`, `<prefix><first + 1>`, …, one per row."""

    prefix: str
    first: int


ConstantText = str
FileColumns = Mapping[str, "pa.ChunkedArray | Numbered | ConstantText"]
"""FileColumns by name: values, or a description of the values in all rows of a file."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of a column in a file: type, null count, and min and max of the other values, if any."""

    kind: pa.DataType
    nulls: int
    low: pa.Scalar | None
    high: pa.Scalar | None


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """The consecutive parts of a file, and statistics of its columns, except numbered ones."""

    parts: Sequence[bytes | memoryview]
    spreads: Mapping[str, Spread]


def can_encode(schema: pa.Schema, columns: FileColumns, codecs: Mapping[str, str]) -> bool:
    """Whether all types and codecs are supported here, and only nullable columns have nulls."""
    if not _are_known(schema) or not _CODECS.keys() >= {*codecs.values()}:
        return False
    return all(_is_fit(field, columns[field.name]) for field in schema)


class ParquetEncoder:
    """Encodes files from the rows of some columns, in the order of a schema."""

    def __init__(
        self,
        schema: pa.Schema,
        columns: FileColumns,
        *,
        codecs: Mapping[str, str],
        repetitive: Collection[str],
        files: int = 1,
    ) -> None:
        """Prepares columns for a number of `files`.

        `repetitive` columns, and those that are dictionaries already, get a dictionary if it is small compared to a
        file.
        """
        self._schema = parquet_schema(schema)
        self._codecs = codecs
        known: dict[object, _Source] = {}
        self._sources = {
            field.name: _source(field, values, known, files, is_repetitive=field.name in repetitive)
            for field in schema
            if not isinstance(values := columns[field.name], (Numbered, ConstantText))
        }
        self._rows = min((len(source.array) for source in self._sources.values()), default=0)

    def encode(
        self,
        rows: Rows,
        entries: Mapping[bytes, bytes],
        memory: Allocate,
        alike: Mapping[str, Numbered | ConstantText],
    ) -> EncodedFile:
        """A file with the rows at these positions, at least one, and with footer `entries`.

        `alike` describes columns whose values follow from a constant or a number. Pages are written into `memory`.
        """
        assert rows.min() >= 0, "compiled code does not check"
        assert rows.max() < self._rows, "compiled code does not check"
        tasks, count = _Tasks(rows), len(rows)
        planned = [self._plan(name, tasks, alike) for name in self._schema.names]
        made = tasks.run(memory)
        parts: list[bytes | memoryview] = [PARQUET_MAGIC]
        at, chunks = len(PARQUET_MAGIC), []
        stored: dict[object, _Chunk] = {}
        for column, kind in zip(planned, self._schema.kinds, strict=True):
            chunk = stored.get(column.identity)
            if chunk is None:
                chunk = stored[column.identity] = _encode_chunk(column, count, at, made)
                parts += chunk.parts
                at += chunk.size
            chunks.append(chunk.metadata(column, kind))
        footer = encode_footer(self._schema, count, at - len(PARQUET_MAGIC), chunks, entries)
        spreads = {column.name: spread for column in planned if (spread := column.spread(made)) is not None}
        return EncodedFile([*parts, footer], spreads)

    def _plan(self, name: str, tasks: _Tasks, alike: Mapping[str, Numbered | ConstantText]) -> _Column:
        codec, value = self._codecs.get(name, "NONE"), alike.get(name)
        if isinstance(value, ConstantText):
            return _Column(name, codec, [_constant_page(tasks.count)], dictionary=_text_dictionary(value))
        if isinstance(value, Numbered):
            return _Column(name, codec, [tasks.add_numbered(value, codec)])
        source = self._sources[name]
        return _Column(name, codec, tasks.add(source), source, source.dictionary)


class PageTask(NamedTuple):
    """A page to encode: a column by its addresses, the rows of the page, and its place in the output.

    `picked` is the address of the row numbers, which count from row `first` of the column.
    """

    kind: int
    width: int
    values: int
    offsets: int
    validity: int
    first: int
    rows: int
    is_optional: int
    picked: int
    at: int


class _Tasks:
    """The pages of a file that are to be encoded."""

    def __init__(self, rows: Rows) -> None:
        self.count = len(rows)
        self._rows = np.ascontiguousarray(rows, np.int64)
        self._pages: list[PageTask] = []
        self._of_source: dict[int, list[_Page]] = {}
        self._held: list[object] = []

    def add(self, source: _Source) -> list[_Page]:
        """The pages of a column. Columns with the same source, such as record key and key column, share them."""
        found = self._of_source.get(id(source))
        if found is None:
            starts = range(0, self.count, source.page_rows)
            found = [self._add(source, start, min(source.page_rows, self.count - start)) for start in starts]
            self._of_source[id(source)] = found
        return found

    def add_numbered(self, texts: Numbered, codec: str) -> _Page:
        """The page of numbered texts, which compiled code can write snappy-compressed."""
        prefix = np.frombuffer(texts.prefix.encode() or b"\0", np.uint8)
        length = len(texts.prefix.encode())
        assert length <= _PREFIX_MAX, texts
        self._held.append(prefix)
        kind = _SNAPPY_NUMBERED if codec == "SNAPPY" else _NUMBERED
        self._pages.append(PageTask(kind, length, prefix.ctypes.data, 0, 0, texts.first, self.count, 1, 0, 0))
        return _Page(self.count, len(self._pages) - 1, is_compressed=kind == _SNAPPY_NUMBERED)

    def _add(self, source: _Source, start: int, count: int) -> _Page:
        self._pages.append(source.task._replace(rows=count, picked=self._rows.ctypes.data + 8 * start))
        return _Page(count, len(self._pages) - 1)

    def run(self, memory: Allocate) -> _Made:
        """Encodes all pages."""
        tasks = np.array(self._pages, np.int64).reshape(-1, len(PageTask._fields))
        found, room = encode_pages(tasks, memory)
        return _Made(tasks[:, -1].tolist(), found.tolist(), room)


@dataclass(frozen=True, slots=True)
class _Made:
    """Encoded pages: the start of each in memory, and four facts of each, see `encode_pages`."""

    places: Sequence[int]
    found: Sequence[Sequence[int]]
    room: memoryview

    def page(self, number: int) -> memoryview:
        """The bytes of a page."""
        at = self.places[number]
        return self.room[at : at + self.found[number][0]]


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of `count` values, nulls included: the number of its task, or its bytes if it needs none."""

    count: int
    content: int | bytes
    is_compressed: bool = False

    def read(self, made: _Made) -> bytes | memoryview:
        """The bytes of the page."""
        return self.content if isinstance(self.content, bytes) else made.page(self.content)

    def stored(self, made: _Made, codec: str) -> tuple[int, bytes | memoryview]:
        """The uncompressed size of the page, and its stored bytes."""
        content = self.read(made)
        if self.is_compressed:
            assert isinstance(self.content, int)
            return made.found[self.content][2], content
        return len(content), _compressed(content, codec)


@dataclass(frozen=True, slots=True)
class _Dictionary:
    """A dictionary: its values, sorted, and their page."""

    values: ArrowArray
    page: bytes


@dataclass(frozen=True, slots=True)
class _Source:
    """A prepared column: a task for all of its rows, the rows per page, and its dictionary, if it has one."""

    task: PageTask
    page_rows: int
    array: ArrowArray
    dictionary: _Dictionary | None = None

    def value(self, found: int) -> pa.Scalar:
        """The value of a min or max found by compiled code: a code or a row."""
        return self.dictionary.values[found] if self.dictionary else self.array[found - self.array.offset]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file."""

    name: str
    codec: str
    pages: Sequence[_Page]
    source: _Source | None = None
    dictionary: _Dictionary | None = None

    @property
    def identity(self) -> object:
        """A key that is equal for columns with the same pages and codec."""
        return (id(self.source), self.codec) if self.source is not None else self.name

    def is_large(self, made: _Made) -> bool:
        """Whether the column is worth compressing, or is compressed already."""
        if self.dictionary is not None and len(self.dictionary.page) > _SMALL_BYTES:
            return True
        return any(page.is_compressed or len(page.read(made)) > _SMALL_BYTES for page in self.pages)

    def spread(self, made: _Made) -> Spread | None:
        """Statistics of the column; None if they were not computed."""
        if self.source is None:
            return None if self.dictionary is None else _one_value(self.dictionary.values)
        kind = self.source.array.type if self.dictionary is None else self.dictionary.values.type
        pages = [made.found[page.content] for page in self.pages if isinstance(page.content, int)]
        nulls = sum(page.count for page in self.pages) - sum(found[1] for found in pages)
        lows = [self.source.value(found[2]) for found in pages if found[1]]
        highs = [self.source.value(found[3]) for found in pages if found[1]]
        if len(lows) == 1:
            return Spread(kind, nulls, lows[0], highs[0])
        return Spread(kind, nulls, min(lows, key=_order, default=None), max(highs, key=_order, default=None))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column chunk: its pages with their headers, their start, codec and sizes.

    Columns with the same pages share a chunk. The format allows it, and a file of one key column is a third smaller.
    """

    parts: Sequence[bytes | memoryview]
    at: int
    codec: str
    rows: int
    before: int
    size: int
    dictionary: int

    def metadata(self, column: _Column, kind: int) -> bytes:
        """The footer's entry for one of the columns that share the chunk."""
        head = chunk_head(column.name, kind, _CODECS[self.codec], has_dictionary=self.dictionary > 0)
        return chunk_metadata(head, self.rows, self.before, self.size, self.at, self.dictionary)


def _one_value(values: ArrowArray) -> Spread:
    return Spread(values.type, 0, values[0], values[0])


def _order(bound: pa.Scalar) -> tuple[bool, object]:
    value = bound.value if pat.is_temporal(bound.type) else bound.as_py()
    return value != value, value.encode() if isinstance(value, str) else value


@lru_cache(maxsize=64)
def _are_known(schema: pa.Schema) -> bool:
    return all(map(_is_known, schema.types))


def _is_known(kind: pa.DataType) -> bool:
    if pat.is_dictionary(kind):
        return bool(pat.is_string(kind.value_type))
    return _width(kind) > 0 or _is_text(kind) or bool(pat.is_boolean(kind))


def _is_fit(field: pa.Field, values: pa.ChunkedArray | Numbered | ConstantText) -> bool:
    return field.nullable or not (isinstance(values, (ConstantText, Numbered)) or values.null_count)


def _width(kind: pa.DataType) -> int:
    """The stored size of a number in bytes; 0 for other types."""
    if pat.is_timestamp(kind):
        return 8 if kind.unit in ("us", "ms") else 0
    if pat.is_decimal128(kind):
        return ((10**kind.precision).bit_length() + 8) // 8  # A bit more for the sign.
    return _WIDTHS.get(kind, 0)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_binary(kind) or _is_large(kind))


def _is_large(kind: pa.DataType) -> bool:
    return bool(pat.is_large_string(kind) or pat.is_large_binary(kind))


def _source(
    field: pa.Field, column: pa.ChunkedArray, known: dict[object, _Source], files: int, *, is_repetitive: bool
) -> _Source:
    """Prepares a column. Columns over the same memory share one source, found in `known`."""
    has_codes = pat.is_dictionary(column.type)
    if has_codes or (is_repetitive and not pat.is_boolean(column.type)):
        encoded = _in_one_piece(column if has_codes else column.dictionary_encode())
        values = encoded.dictionary
        if 0 < len(values) * files <= _DISTINCT_MAX * len(encoded) and values.nbytes < _PAGE_BYTES:
            return _coded_source(encoded, is_optional=field.nullable)
        column = column.cast(column.type.value_type) if has_codes else column
    array = _in_one_piece(column)
    task = _plain_task(array, is_optional=field.nullable)
    if task not in known:
        known[task] = _Source(task, _page_rows(array, task), array)
    return known[task]


def _coded_source(encoded: ArrowArray, *, is_optional: bool) -> _Source:
    """A column as codes of a sorted dictionary, so that min and max are those of the codes."""
    found, indices = encoded.dictionary, encoded.indices
    order = sorted(range(len(found)), key=[_order(value) for value in found].__getitem__)
    values, ranks = found.take(pa.array(order, pa.int64())), np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    nulls = np.asarray(indices.is_null()) if indices.null_count else None
    codes = pa.array(ranks[np.asarray(indices if nulls is None else indices.fill_null(0))], mask=nulls)
    task = _task(codes, _CODES, max(1, (len(values) - 1).bit_length()), is_optional=is_optional)
    return _Source(task, max(1, len(codes)), codes, _Dictionary(values, _plain_page(values)))


def _plain_page(values: ArrowArray) -> bytes:
    """The page of the values of a dictionary."""
    tasks = _Tasks(np.arange(len(values)))
    (page,) = tasks.add(_Source(_plain_task(values, is_optional=False), len(values), values))
    return bytes(page.read(tasks.run(lambda size: memoryview(bytearray(size)))))


@lru_cache(maxsize=256)
def _text_dictionary(value: str) -> _Dictionary:
    """A dictionary of one text."""
    word = value.encode()
    return _Dictionary(pa.array([value], pa.string()), len(word).to_bytes(4, "little") + word)


@lru_cache(maxsize=64)
def _constant_page(count: int) -> _Page:
    """The page of a column without nulls that has the first value of its dictionary in every row."""
    levels, run = encode_varint(count << 1) + b"\1", encode_varint(count << 1) + b"\0"
    return _Page(count, len(levels).to_bytes(4, "little") + levels + b"\1" + run)


def _plain_task(array: ArrowArray, *, is_optional: bool) -> PageTask:
    kind, width = array.type, _width(array.type)
    if width:
        layout = _FLOAT if pat.is_floating(kind) else _DECIMAL if pat.is_decimal(kind) else _SIGNED
        return _task(array, layout, width, is_optional=is_optional)
    layout = _BITS if pat.is_boolean(kind) else _LARGE_TEXT if _is_large(kind) else _TEXT
    return _task(array, layout, 0, is_optional=is_optional)


def _task(array: ArrowArray, kind: int, width: int, *, is_optional: bool) -> PageTask:
    """The task of a page with all rows of an array."""
    validity, *others = array.buffers()
    places = [0 if buffer is None else buffer.address for buffer in others]
    known = validity.address if array.null_count else 0
    offsets = places[0] if len(places) > 1 else 0
    return PageTask(kind, width, places[-1], offsets, known, array.offset, len(array), int(is_optional), 0, 0)


def _page_rows(array: ArrowArray, task: PageTask) -> int:
    """The average number of rows that fill a page."""
    size = task.width * len(array)
    if task.offsets and len(array):
        starts = np.frombuffer(array.buffers()[1], np.int64 if task.kind == _LARGE_TEXT else np.int32)
        size = int(starts[array.offset + len(array)] - starts[array.offset]) + 4 * len(array)
    return max(1, _PAGE_BYTES * len(array) // max(size, 1))


def _in_one_piece(column: pa.ChunkedArray) -> ArrowArray:
    if column.num_chunks == 1:
        return column.chunk(0)
    return (column.unify_dictionaries() if pat.is_dictionary(column.type) else column).combine_chunks()


def _compressed(content: bytes | memoryview, codec: str) -> bytes | memoryview:
    if codec == "NONE":
        return content
    compressed: bytes = pa.Codec(codec.lower()).compress(content, asbytes=True)
    return compressed


def _encode_chunk(column: _Column, rows: int, at: int, made: _Made) -> _Chunk:
    """A column chunk that begins at a position of the file."""
    dictionary, codec = column.dictionary, column.codec if column.is_large(made) else "NONE"
    parts: list[bytes | memoryview] = []
    size, first = 0, 0
    if dictionary is not None:
        stored = _compressed(dictionary.page, codec)
        header = dictionary_header(len(dictionary.page), len(stored), len(dictionary.values))
        parts += [header, stored]
        first, size = len(header) + len(stored), len(header) + len(dictionary.page)
    encoding, total = PLAIN_ENCODING if dictionary is None else RLE_DICTIONARY, first
    for page in column.pages:
        before, stored = page.stored(made, codec)
        header = page_header(before, len(stored), page.count, encoding)
        parts += [header, stored]
        size, total = size + len(header) + before, total + len(header) + len(stored)
    return _Chunk(parts, at, codec, rows, size, total, first)
