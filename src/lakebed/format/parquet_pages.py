"""Reads a few rows of a Parquet file: only the pages that hold them are read and decoded.

Arrow reads whole column chunks, a row group at a time. So the wanted pages are copied into a small Parquet file in
memory, which Arrow decodes: every type, encoding and codec is left to Arrow. Pages of several columns with the same
rows share such a file.

Pages are located by the file's offset index or, without one, by walking the page headers. Repeated columns (lists,
maps) need the index, because headers count values, not rows: without one they are read as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, empty_table, position_array
from lakebed.format.guard import check_row_counts, decoding
from lakebed.format.thrift import (
    RAW,
    Struct,
    decode_struct,
    encode_struct,
    integer,
    integer_list,
    nested,
    struct_list,
    text,
    text_list,
)
from lakebed.model.source import ByteSource

PARQUET_MAGIC = b"PAR1"
"""The first and the last four bytes of a Parquet file."""
TAIL = struct.Struct("<I4s")
"""The end of a Parquet file: the length of the footer, and the magic."""
FOOTER_BYTES = 512 * 1024
"""Bytes read at once from the end of a file: a footer with the usual Bloom filter has 435 kB."""
_HEADER_BYTES = 1 << 10
_HEADER_BYTES_MAX = 1 << 20
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_REPEATED = 2
_BYTE_ARRAY, _UTF8 = 6, 0


@dataclass(frozen=True, slots=True)
class Page:
    """Position and size of a page, header included, and the rows of the row group that it has."""

    offset: int
    size: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a column chunk: its dictionary, if it has one, and its data."""

    dictionary: tuple[int, int] | None
    data: tuple[Page, ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the schema: its path, its number, and whether it can have several values per row."""

    path: tuple[bytes, ...]
    number: int
    is_repeated: bool


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A top-level column: its name, the elements of the schema that describe it, and its leaves.

    `is_text`: it is flat and holds texts.
    """

    name: str
    elements: tuple[bytes, ...]
    leaves: tuple[Leaf, ...]
    is_text: bool


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: its first row in the file, how many it has, and its column chunks."""

    first_row: int
    rows: int
    chunks: tuple[Struct, ...]


Windows = Callable[..., pa.Table]
"""Calls its first argument with the others, or returns a cached result: decoded rows, by row group and columns."""


def read_again(read: Windows, *what: Any) -> pa.Table:
    """Decodes rows without a cache."""
    return read(*what)


class ParquetPages:
    """A Parquet file opened to read a few rows. Keeps the positions of pages."""

    def __init__(self, source: ByteSource, windows: Windows = read_again) -> None:
        self._source = source
        self._windows = windows
        with decoding(source.path, "the Parquet footer"):
            footer, _ = decode_struct(_read_footer(source))
            self._created_by: bytes | None = footer.get(6)
            self._version = int(footer.get(1, 1))
            self.columns = {column.name: column for column in parquet_columns(footer[2])}
            self.row_groups = tuple(_row_groups(footer[4]))
            check_row_counts([group.rows for group in self.row_groups], source.size)
        self._pages: dict[tuple[int, int], Pages | None] = {}

    @property
    def rows(self) -> int:
        """Number of rows in the file."""
        return sum(group.rows for group in self.row_groups)

    def read_column(self, name: str) -> Iterator[ArrowArray]:
        """A flat column of bytes or texts, row group by row group."""
        for group in self.row_groups:
            if group.rows:
                with decoding(self._source.path, "a column of the Parquet file"):
                    column = self._read_whole(group, (self.columns[name],)).column(0).combine_chunks()
                yield column

    def read_rows(self, names: Sequence[str], rows: Sequence[int]) -> pa.Table:
        """Some columns of the rows with these ascending numbers. Columns that the file lacks are left out."""
        wanted = tuple(self.columns[name] for name in names if name in self.columns)
        tables = []
        with decoding(self._source.path, "rows of the Parquet file"):
            for number, group in enumerate(self.row_groups):
                here = (row - group.first_row for row in rows)
                tables += [self._read_row(number, group, wanted, row) for row in here if 0 <= row < group.rows]
            return pa.concat_tables(tables) if tables else empty_table(_open(self._file_of(wanted, 0, ())).schema_arrow)

    def _read_row(self, number: int, group: RowGroup, columns: tuple[ParquetColumn, ...], row: int) -> pa.Table:
        windows: dict[tuple[int, int], list[ParquetColumn]] = {}
        for column in columns:
            windows.setdefault(self._window(number, group, column, row), []).append(column)
        parts: dict[str, ArrowArray] = {}
        for (first, count), together in windows.items():
            table = self._windows(self._read_window, number, group, tuple(together), first, count)
            # `take` copies; a slice would keep all rows in memory.
            taken = table.take(position_array(np.array([row - first])))
            parts.update(zip(taken.schema.names, taken.columns, strict=True))
        return pa.table({column.name: parts[column.name] for column in columns})

    def _window(self, number: int, group: RowGroup, column: ParquetColumn, row: int) -> tuple[int, int]:
        """First row and row count of the pages that hold a row, if equal for all leaves; else of the row group."""
        found = set()
        for leaf in column.leaves:
            pages = self._find_pages(number, group, leaf)
            page = None if pages is None else _page_of(pages, row)
            found.add((0, group.rows) if page is None else (page.first_row, page.rows))
        return found.pop() if len(found) == 1 else (0, group.rows)

    def _read_window(
        self, number: int, group: RowGroup, columns: tuple[ParquetColumn, ...], first: int, count: int
    ) -> pa.Table:
        if (first, count) == (0, group.rows):
            return self._read_whole(group, columns)
        chunks = []
        for leaf in (leaf for column in columns for leaf in column.leaves):
            pages = self._find_pages(number, group, leaf)
            page = None if pages is None else _page_of(pages, first)
            assert pages is not None, "a window is that of a page"
            assert page is not None, "a window is that of a page"
            chunks.append(self._page_chunk(group.chunks[leaf.number], pages.dictionary, page))
        return self._decode(self._file_of(columns, count, chunks), count)

    def _read_whole(self, group: RowGroup, columns: tuple[ParquetColumn, ...]) -> pa.Table:
        chunks = [self._whole_chunk(group.chunks[leaf.number]) for column in columns for leaf in column.leaves]
        return self._decode(self._file_of(columns, group.rows, chunks), group.rows)

    def _decode(self, file: bytes, rows: int) -> pa.Table:
        table = _open(file).read(use_threads=False)
        if table.num_rows != rows:
            raise ValueError(f"{table.num_rows} rows, {rows} expected")
        return table

    def _page_chunk(self, chunk: Struct, dictionary: tuple[int, int] | None, page: Page) -> _Chunk:
        data = self._source.read(page.offset, page.size)
        header, _ = decode_struct(data)
        values = (header.get(5) or header[8])[1]
        head = b"" if dictionary is None else self._source.read(*dictionary)
        return _Chunk(chunk, head, data, values)

    def _whole_chunk(self, chunk: Struct) -> _Chunk:
        meta = chunk[3]
        start = _chunk_start(meta)
        data = self._source.read(start, meta[7])
        dictionary_bytes = meta[9] - start
        return _Chunk(chunk, data[:dictionary_bytes], data[dictionary_bytes:], meta[5])

    def _file_of(self, columns: tuple[ParquetColumn, ...], rows: int, chunks: Sequence[_Chunk]) -> bytes:
        """A Parquet file of one row group with these columns; without chunks, of none."""
        body, at, encoded = [PARQUET_MAGIC], len(PARQUET_MAGIC), []
        for chunk in chunks:
            encoded.append(chunk.encode(at))
            body += [chunk.dictionary, chunk.data]
            at += len(chunk.dictionary) + len(chunk.data)
        root = encode_struct({4: text(b"schema"), 5: integer(len(columns), wide=False)})
        group = encode_struct({1: struct_list(encoded), 2: integer(at), 3: integer(rows)})
        fields = {
            1: integer(self._version, wide=False),
            2: struct_list([root, *(element for column in columns for element in column.elements)]),
            3: integer(rows),
            4: struct_list([group] if chunks else []),
        }
        if self._created_by is not None:  # Readers know mistakes of certain writers by it.
            fields[6] = text(self._created_by)
        footer = encode_struct(fields)
        return b"".join((*body, footer, TAIL.pack(len(footer), PARQUET_MAGIC)))

    def _find_pages(self, number: int, group: RowGroup, leaf: Leaf) -> Pages | None:
        """The pages of a column chunk; None if their rows are unknown."""
        key = (number, leaf.number)
        if key not in self._pages:
            self._pages[key] = self._load_pages(group, leaf)
        return self._pages[key]

    def _load_pages(self, group: RowGroup, leaf: Leaf) -> Pages | None:
        chunk = group.chunks[leaf.number]
        meta = chunk[3]
        start, end = _chunk_start(meta), _chunk_start(meta) + meta[7]
        if 4 in chunk and 5 in chunk:
            return self._indexed_pages(chunk, group.rows, start, end)
        return None if leaf.is_repeated else self._walked_pages(start, end, group.rows)

    def _indexed_pages(self, chunk: Struct, rows: int, start: int, end: int) -> Pages:
        index, _ = decode_struct(self._source.read(chunk[4], chunk[5]))
        found = [(place[1], place[2], place.get(3, 0)) for place in index[1]]
        firsts = [first for *_, first in found]
        if not found or firsts[0] or firsts != sorted(firsts) or firsts[-1] > rows:
            raise ValueError("the offset index is out of order")
        counts = [after - first for first, after in zip(firsts, [*firsts[1:], rows], strict=True)]
        pages = tuple(Page(*place, count) for place, count in zip(found, counts, strict=True))
        if any(page.offset < start or page.offset + page.size > end for page in pages):
            raise ValueError("a page lies outside its column chunk")
        return Pages((start, found[0][0] - start) if found[0][0] > start else None, pages)

    def _walked_pages(self, start: int, end: int, rows: int) -> Pages:
        dictionary, pages, at, row = None, [], start, 0
        while row < rows:
            header, length = self._read_header(at, end)
            size = length + header[3]
            if size <= 0 or header[3] < 0 or at + size > end:
                raise ValueError("a page lies outside its column chunk")
            if header[1] == _DICTIONARY:
                dictionary = (at, size)
            elif header[1] in (_DATA, _DATA_V2):
                count = (header.get(5) or header[8])[1]
                if count <= 0 or count > rows - row:
                    raise ValueError("a page has other rows than its column chunk")
                pages.append(Page(at, size, row, count))
                row += count
            at += size
        return Pages(dictionary, tuple(pages))

    def _read_header(self, at: int, end: int) -> tuple[Struct, int]:
        length = _HEADER_BYTES
        while True:
            data = self._source.read(at, min(length, end - at))
            try:
                return decode_struct(data)
            except (IndexError, struct.error):
                if length >= min(end - at, _HEADER_BYTES_MAX):
                    raise
                length *= 8


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column chunk to be copied to another file: dictionary page, data pages, and the number of their values."""

    chunk: Struct
    dictionary: bytes
    data: bytes
    values: int

    def encode(self, at: int) -> bytes:
        """The chunk's metadata, for pages that begin at a position."""
        meta, size = self.chunk[3], len(self.dictionary) + len(self.data)
        fields = {
            1: integer(meta[1], wide=False),
            2: integer_list(meta[2]),
            3: text_list(meta[3]),
            4: integer(meta[4], wide=False),
            5: integer(self.values),
            6: integer(max(meta[6], size)),
            7: integer(size),
            9: integer(at + len(self.dictionary)),
        }
        if self.dictionary:
            fields[11] = integer(at)
        return encode_struct({2: integer(at), 3: nested(encode_struct(fields))})


def _open(file: bytes) -> Any:
    return pq.ParquetFile(pa.BufferReader(file), coerce_int96_timestamp_unit="us")


def _read_footer(source: ByteSource) -> bytes:
    tail = source.read(max(source.size - FOOTER_BYTES, 0), min(source.size, FOOTER_BYTES))
    length, magic = TAIL.unpack_from(tail, len(tail) - TAIL.size)
    if magic != PARQUET_MAGIC:
        raise CorruptTableError("this is not a Parquet file", path=source.path, offset=source.size - len(PARQUET_MAGIC))
    wanted = length + TAIL.size
    if wanted > len(tail):
        tail = source.read(source.size - wanted, wanted)
    return tail[len(tail) - wanted : len(tail) - TAIL.size]


def parquet_columns(elements: list[Struct]) -> Iterator[ParquetColumn]:
    """The top-level columns of a schema, which is a tree in pre-order."""
    at, number = 1, 0
    for _ in range(elements[0].get(5, 0)):
        leaves: list[Leaf] = []
        end = _descend(elements, at, (), False, number, leaves)
        number += len(leaves)
        raw = tuple(element[RAW] for element in elements[at:end])
        yield ParquetColumn(elements[at][4].decode(), raw, tuple(leaves), end == at + 1 and _is_text(elements[at]))
        at = end


def _is_text(element: Struct) -> bool:
    """By its logical type or, in files of older writers, its converted type."""
    return element.get(1) == _BYTE_ARRAY and (1 in element.get(10, {}) or element.get(6) == _UTF8)


def _descend(
    elements: list[Struct], at: int, path: tuple[bytes, ...], repeated: bool, number: int, leaves: list[Leaf]
) -> int:
    """Collect the leaves below an element; returns the position of the next element."""
    element = elements[at]
    here, repeated = (*path, element[4]), repeated or element.get(3) == _REPEATED
    children, at = element.get(5, 0), at + 1
    if not children:
        leaves.append(Leaf(here, number + len(leaves), repeated))
    for _ in range(children):
        at = _descend(elements, at, here, repeated, number, leaves)
    return at


def _row_groups(groups: list[Struct]) -> Iterator[RowGroup]:
    first = 0
    for group in groups:
        yield RowGroup(first, group[3], tuple(group[1]))
        first += group[3]


def _chunk_start(meta: Struct) -> int:
    """Where the first page lies; writers before the dictionary's offset was required left it out."""
    dictionary = meta.get(11)
    return min(dictionary, meta[9]) if dictionary else meta[9]


def _page_of(pages: Pages, row: int) -> Page | None:
    return next((page for page in pages.data if page.first_row <= row < page.first_row + page.rows), None)
