"""What a decoder did with an input, and whether it may do so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTableError, UnsupportedTableError

from .codec import PATH

REFUSED = "refused"


def is_typed(error: BaseException) -> bool:
    """Whether an error is what bad bytes may end in: one of ours, that names the file."""
    return isinstance(error, CorruptTableError | UnsupportedTableError) and PATH in str(error)


def are_same(one: Any, other: Any) -> bool:
    """Whether two results are equal; not-a-number is equal to itself."""
    if isinstance(one, pa.RecordBatch | pa.Table):
        return one.equals(other) or (one.schema.equals(other.schema) and _stored(one) == _stored(other))
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        return len(one) == len(other) and all(map(are_same, one, other))
    return one == other


def _stored(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Rows as bytes, which are the same for the same rows: what lies under nulls is left out."""
    table = pa.table(rows) if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.take(list(range(table.num_rows))).combine_chunks())
    return sink.getvalue().to_pybytes()
