"""Exchange of rows between tasks through files; the input is evaluated exactly once.

A task sorts its rows by label and writes them to one file. Its result, a `StagedFile`, says where the rows of each
label are. The driver plans the next tasks from these counts and gives each of them ranges of files. Files that no
result names, left by failed or duplicate attempts, are never read and are removed with the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.engine.randomness import new_token
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file

Ints = npt.NDArray[np.int64]
Label = Any
"""The key by which rows are exchanged: hashable, picklable, and all of one ordered type."""
Split = Callable[[pa.Table], Iterable[tuple[Label, Ints]]]
"""Function from a table to the row numbers of each label, labels ascending. Rows without a label are left out."""

_BATCH_BYTES = 256 << 10
"""Bytes per Arrow batch: the unit of a ranged read, hence the read amplification at either end."""
_NUMBER = "lakebed.number"
"""Name of the column that holds the position of a row before the split."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Some rows of a file: `rows` of them, after the first `skipped` of the batches at `offset`."""

    path: str
    head: int
    offset: int
    bytes: int
    skipped: int
    rows: int


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Rows in a file, in the order of their labels; `starts` has the first row of each label, and the number of rows.

    `head` bytes hold the schema and dictionaries, batches of `batch_rows` follow at `offsets`, which end with its size.
    """

    path: str
    head: int
    batch_rows: int
    offsets: tuple[int, ...]
    labels: tuple[Label, ...]
    starts: tuple[int, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.starts[-1]

    @property
    def bytes(self) -> int:
        """Size of the rows in bytes."""
        return self.offsets[-1] - self.head

    def range(self, first: int, last: int) -> RowRange:
        """The rows from `first` to before `last`."""
        batch, end = first // self.batch_rows, -(-last // self.batch_rows)
        offset = self.offsets[batch]
        return RowRange(
            self.path, self.head, offset, self.offsets[end] - offset, first - batch * self.batch_rows, last - first
        )


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder through which tasks pass rows to other tasks. Whoever made it removes it."""

    storage: Storage
    folder: str

    def put(self, rows: pa.Table, labels: Sequence[Label], starts: Sequence[int]) -> StagedFile:
        """Writes rows, sorted by label, to a new file."""
        path = f"{self.folder}/rows-{new_token()}.arrow"
        batch_rows = max(1, rows.num_rows * _BATCH_BYTES // max(rows.nbytes, 1))
        # Dictionaries are written once, with a first batch that has no rows.
        rows = rows.unify_dictionaries().combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(_without_rows(rows))
            offsets = [sink.tell()]
            for first in range(0, rows.num_rows, batch_rows):
                writer.write_table(rows.slice(first, batch_rows))
                offsets.append(sink.tell())
        create_file(self.storage, path, memoryview(sink.getvalue()).cast("B"))
        return StagedFile(path, offsets[0], batch_rows, tuple(offsets), tuple(labels), tuple(starts))

    def put_split(self, rows: pa.Table, split: Split) -> StagedFile | None:
        """Sorts rows by label and writes them to a new file; None if no row has a label."""
        parts = list(split(rows))
        if not parts:
            return None
        order = np.concatenate([numbers for _, numbers in parts])
        starts = np.cumsum([0, *(len(numbers) for _, numbers in parts)]).tolist()
        rows = rows.combine_chunks().take(pa.array(order)).append_column(_NUMBER, pa.array(order.astype(np.int32)))
        return self.put(rows, [label for label, _ in parts], starts)

    def read(self, ranges: Iterable[RowRange]) -> Iterator[pa.Table]:
        """The rows of each range."""
        for path, group in groupby(ranges, key=lambda each: each.path):
            here = list(group)
            spans = [(0, here[0].head), *((each.offset, each.bytes) for each in here)]
            head, *bodies = self.storage.get_ranges(path, spans)
            for each, body in zip(here, bodies, strict=True):
                table = pa.ipc.open_stream(pa.py_buffer(head + body)).read_all().slice(each.skipped, each.rows)
                yield table.drop_columns([_NUMBER]) if _NUMBER in table.column_names else table

    def read_unsplit(self, file: StagedFile) -> pa.Table:
        """All rows of a file that `put_split` wrote, in their order before the split."""
        table = pa.ipc.open_stream(pa.py_buffer(self.storage.get(file.path))).read_all()
        order = np.argsort(table[_NUMBER].to_numpy(), kind="stable")
        return table.drop_columns([_NUMBER]).combine_chunks().take(pa.array(order))


@dataclass(frozen=True, slots=True)
class Run:
    """All rows of one label: per file, the first row and the end."""

    parts: tuple[tuple[StagedFile, int, int], ...]

    def __len__(self) -> int:
        return sum(last - first for _, first, last in self.parts)

    def cut(self, start: int, stop: int) -> tuple[RowRange, ...]:
        """The rows from number `start` to before `stop`."""
        found, before = [], 0
        for file, first, last in self.parts:
            begin, end = max(first, first + start - before), min(last, first + stop - before)
            if begin < end:
                found.append(file.range(begin, end))
            before += last - first
        return tuple(found)


def runs(files: Iterable[StagedFile]) -> dict[Label, Run]:
    """The rows of each label in all files."""
    parts: dict[Label, list[tuple[StagedFile, int, int]]] = {}
    for file in files:
        for label, (first, last) in zip(file.labels, pairwise(file.starts), strict=True):
            parts.setdefault(label, []).append((file, first, last))
    return {label: Run(tuple(found)) for label, found in parts.items()}


def lots(files: Sequence[StagedFile], bytes_max: int) -> tuple[tuple[RowRange, ...], ...]:
    """Row ranges for tasks: each takes one label, or several consecutive ones of at most `bytes_max` together."""
    number_of = _lot_numbers(files, bytes_max)
    found: dict[int, list[RowRange]] = {}
    for file in files:
        bounds = list(pairwise(file.starts))
        numbered = [(number_of[label], *bound) for label, bound in zip(file.labels, bounds, strict=True)]
        for number, group in groupby(numbered, key=itemgetter(0)):
            here = list(group)
            found.setdefault(number, []).append(file.range(here[0][1], here[-1][2]))
    return tuple(tuple(found[number]) for number in sorted(found))


def _lot_numbers(files: Sequence[StagedFile], bytes_max: int) -> dict[Label, int]:
    """The lot of each label."""
    sizes: dict[Label, float] = {}
    for file in files:
        row_bytes = file.bytes / max(file.rows, 1)
        for label, (first, last) in zip(file.labels, pairwise(file.starts), strict=True):
            sizes[label] = sizes.get(label, 0.0) + (last - first) * row_bytes
    numbers, number, filled = {}, 0, 0.0
    for label in sorted(sizes):
        if filled and filled + sizes[label] > bytes_max:
            number, filled = number + 1, 0.0
        numbers[label], filled = number, filled + sizes[label]
    return numbers


def _without_rows(rows: pa.Table) -> pa.RecordBatch:
    """An empty batch with the dictionaries of all rows; an empty slice would carry the buffers of all rows."""
    columns = [
        pa.DictionaryArray.from_arrays(pa.array([], column.type.index_type), column.chunk(0).dictionary)
        if pa.types.is_dictionary(column.type) and column.num_chunks
        else pa.nulls(0, column.type)
        for column in rows.columns
    ]
    return pa.record_batch(columns, schema=rows.schema)
