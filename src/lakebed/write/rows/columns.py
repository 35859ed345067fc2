"""Whole columns of prepared rows: as one array, with some rows picked, or made of a prefix and consecutive numbers.

The record key is often one of the data columns; such a shared array is processed once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import map_tasks
from lakebed.format.arrow import identity
from lakebed.kernels.buffers import Bytes, Int64s

_FEW_ROWS = 10_000
"""Number of rows up to which starting threads takes longer than picking rows."""
_BLOCK = 1000
_OFFSET_MAX = 2**31 - 1


def joined(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; copied only if it has several chunks."""
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    # More than 2 GiB of text does not fit into an array with 32-bit offsets.
    return whole if isinstance(whole, pa.Array) else column.cast(pa.large_string()).combine_chunks()


def take_rows(table: pa.Table, rows: Int64s) -> pa.Table:
    """Picks the rows with these numbers, in that order; one thread per column."""
    places = [identity(column) for column in table.columns]
    distinct = dict(zip(places, table.columns, strict=True))
    numbers = pa.array(rows)
    threads = 1 if len(rows) <= _FEW_ROWS else None
    taken = map_tasks([*distinct.values()], lambda column: column.take(numbers), threads=threads)
    of_place = dict(zip(distinct, taken, strict=True))
    return pa.table([of_place[place] for place in places], schema=table.schema)


def numbered_texts(prefix: str, first: int, count: int) -> pa.Array:
    """The `count` strings `<prefix><first>`, `<prefix><first + 1>`, …"""
    head = np.frombuffer(prefix.encode(), np.uint8)
    runs = list(_runs_of_one_width(first, first + count))
    texts = [_run(head, start, end) for start, end in runs]
    lengths = np.repeat([text.shape[1] for text in texts], [len(text) for text in texts])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    is_large = offsets[-1] > _OFFSET_MAX
    data = np.concatenate([text.reshape(-1) for text in texts] or [np.empty(0, np.uint8)])
    kind, width = (pa.large_string(), np.int64) if is_large else (pa.string(), np.int32)
    buffers = [None, pa.py_buffer(offsets.astype(width, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, 0)


def _runs_of_one_width(start: int, end: int) -> list[tuple[int, int]]:
    """Splits the range into runs of numbers with the same number of digits."""
    runs = []
    while start < end:
        stop = min(end, 10 ** len(str(start)))
        runs.append((start, stop))
        start = stop
    return runs


def _run(head: Bytes, start: int, end: int) -> Bytes:
    """One row of bytes per number: a block of a thousand is built once and repeated with other leading digits."""
    digits = len(str(start))
    low = min(digits, 3)
    template = np.empty((_BLOCK, len(head) + digits), np.uint8)
    template[:, : len(head)] = head
    template[:, -low:] = _last_digits(low)
    blocks = np.arange(start // _BLOCK, (end - 1) // _BLOCK + 1)
    text = np.empty((len(blocks), *template.shape), np.uint8)
    text[:] = template
    for place, digit in enumerate(_digits(blocks, digits - low).T):
        text[:, :, len(head) + place] = digit[:, None]
    first = start - start // _BLOCK * _BLOCK
    return text.reshape(-1, text.shape[2])[first : first + end - start]


@cache
def _last_digits(width: int) -> Bytes:
    """The last digits of the numbers in a block."""
    return _digits(np.arange(_BLOCK), width)


def _digits(numbers: Int64s, width: int) -> Bytes:
    powers = 10 ** np.arange(width - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
