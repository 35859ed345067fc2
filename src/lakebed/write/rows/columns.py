"""Columns of prepared rows as arrays in one piece.

The record key is often one of the data columns: what is done to the values of both is done once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.engine.engines import map_tasks
from lakebed.format.arrow import identity

Ints = npt.NDArray[np.int64]

_FEW_ROWS = 10_000
"""Up to so many, threads take longer to start than to pick them."""


def joined(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array, which is not copied if it is in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    # Texts of more than 2 GiB do not fit one array with offsets of 32 bits.
    return whole if isinstance(whole, pa.Array) else column.cast(pa.large_string()).combine_chunks()


def take_rows(table: pa.Table, rows: Ints) -> pa.Table:
    """The rows with these numbers, in that order. Columns are picked one after the other, each on a thread."""
    places = [identity(column) for column in table.columns]
    distinct = dict(zip(places, table.columns, strict=True))
    numbers = pa.array(rows)
    threads = 1 if len(rows) <= _FEW_ROWS else None
    taken = map_tasks([*distinct.values()], lambda column: column.take(numbers), threads=threads)
    of_place = dict(zip(distinct, taken, strict=True))
    return pa.table([of_place[place] for place in places], schema=table.schema)
