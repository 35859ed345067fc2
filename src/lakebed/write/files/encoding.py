"""Encoding base files and log blocks as Parquet: which columns get a dictionary or a codec, and the memory for it.

Only plain and dictionary encodings are used. Delta encodings would be smaller, but the vectorised readers of several
engines do not support them.

Each thread encodes its files into the same buffer, one after the other. Memory returned to the system is cleared before
it is used again, and a growing buffer is copied each time: together that costs a tenth of a merge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.kernels.buffers import Bytes
from lakebed.model.words import COMMIT_SEQNO, FILE_NAME

_SAMPLE_ROWS = 2048
"""Rows of a base file that are sampled to choose encodings."""
LOG_SAMPLE_ROWS = 512
"""Rows of a log block that are sampled to choose encodings."""
_DISTINCT_MAX = 0.5
"""Maximum share of distinct values in the sample for which a dictionary pays."""
_SHRINKS_BELOW = 0.85
"""Compressed share of the size below which a column is compressed. Text without repetitions, such as UUIDs, is not:
only entropy coding would shrink it, which takes longer than the rest of a write."""
_NUMBERS_SHRINK_BELOW = 0.5
"""The same for numbers with snappy: uncompressed, they are written in a quarter of the time."""
_BATCH = "write_batch_size"
_PAGE_BYTES = 1 << 20
"""Bytes of a page, about."""
_BATCH_ROWS = (1 << 10, 1 << 16)
"""Minimum and maximum rows per batch of the Parquet writer, which checks only between batches whether a page is full:
wide rows need small batches. The minimum is its default, with which narrow rows would take a tenth longer."""
_WITHOUT_STATISTICS = frozenset({COMMIT_SEQNO, FILE_NAME})
"""Columns that queries never filter by range."""
Encodings = dict[Hashable, dict[str, Any]]
"""Cached options of the Parquet writer, by the schema of the rows."""
_KEPT_BYTES_MAX = 32 << 20
"""Maximum bytes of the buffer that a thread keeps for its next file; merging large files needs the memory."""
_IDLE_BYTES_MAX = 4 << 20
"""Maximum bytes that a thread keeps after a write."""
_FOOTER_BYTES = 1 << 20
"""Bytes reserved for footer, page indexes and page headers; more than enough, and unused pages take no memory."""
_BUFFERS: dict[int, Bytes] = {}
"""The buffer of each thread, by thread id."""


def column_options(table: pa.Table, compression: str, *, is_log: bool = False) -> dict[str, Any]:
    """Options of the Parquet writer: dictionaries for repetitive columns, `compression` for columns that it shrinks.

    Log blocks are small and short-lived: the sample is smaller, and there are no statistics, which nobody would read.
    """
    sample_rows = LOG_SAMPLE_ROWS if is_log else _SAMPLE_ROWS
    codec = compression.upper()
    dictionaries: list[str] = []
    codecs: dict[str, str] = {}
    for field in table.schema:
        if pat.is_nested(field.type):
            leaves = list(_leaves(field.name, field.type))
            dictionaries += leaves
            codecs |= dict.fromkeys(leaves, codec)
        elif field.name == COMMIT_SEQNO:
            codecs[field.name] = codec
        else:
            sample = _sample(table[field.name], sample_rows)
            is_repetitive = _is_repetitive(sample)
            dictionaries += [field.name] if is_repetitive else []
            codecs[field.name] = codec if is_repetitive or _shrinks(sample, codec) else "NONE"
    with_statistics = False if is_log else [name for name in codecs if name not in _WITHOUT_STATISTICS]
    return {
        "use_dictionary": dictionaries or False,
        "compression": codecs,
        "write_statistics": with_statistics,
        _BATCH: _batch_rows(table),
    }


def cached_options(table: pa.Table, compression: str, known: Encodings, *, is_log: bool = False) -> dict[str, Any]:
    """Like `column_options`, but taken from `known` if an earlier file of the write had the same schema.

    Options are cached only if there were enough rows to sample.
    """
    form = (is_log, tuple(table.column_names), tuple(table.schema.types))
    if form in known:
        return {**known[form], _BATCH: _batch_rows(table)}  # Values may be wider here.
    found = column_options(table, compression, is_log=is_log)
    if table.num_rows >= (LOG_SAMPLE_ROWS if is_log else _SAMPLE_ROWS):
        known[form] = found
    return found


def _batch_rows(table: pa.Table) -> int:
    """The number of rows that fill a page of the widest column."""
    widest = max(map(_value_bytes, table.columns), default=0.0)
    least, most = _BATCH_ROWS
    return max(least, min(most, int(_PAGE_BYTES / max(widest, 1.0))))


def _value_bytes(column: pa.ChunkedArray) -> float:
    """Average bytes of a value; of dictionaries, those of a dictionary value."""
    if not pat.is_dictionary(column.type):
        return float(column.nbytes / max(len(column), 1))
    return float(max((chunk.dictionary.nbytes / max(len(chunk.dictionary), 1) for chunk in column.chunks), default=0))


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The leaf columns of a nested column in Parquet."""
    if pat.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pat.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pat.is_nested(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _sample(column: pa.ChunkedArray, rows: int) -> pa.Array:
    """The first values, copied to new buffers."""
    head = column.slice(0, rows)
    return pa.concat_arrays(head.chunks) if head.num_chunks else pa.array([], column.type)


def _is_repetitive(sample: pa.Array) -> bool:
    if pat.is_dictionary(sample.type):
        return True
    if pat.is_boolean(sample.type):
        return False
    return bool(pc.count_distinct(sample).as_py() <= _DISTINCT_MAX * len(sample))


def _shrinks(sample: pa.Array, codec: str) -> bool:
    """Whether snappy, which finds repetitions only, shrinks the values enough."""
    values = sample.buffers()[-1]
    if values is None or not values.size:
        return False
    is_quick = codec == "SNAPPY" and pat.is_primitive(sample.type)
    share = _NUMBERS_SHRINK_BELOW if is_quick else _SHRINKS_BELOW
    return pa.Codec("snappy").compress(values).size < share * values.size


def scratch_memory(size: int) -> memoryview:
    """`size` bytes of this thread's buffer, valid until its next call."""
    if size > _KEPT_BYTES_MAX:
        return np.empty(size, np.uint8).data
    thread = threading.get_ident()
    buffer = _BUFFERS.get(thread)
    if buffer is None or len(buffer) < size:
        buffer = None
        _BUFFERS.pop(thread, None)  # Frees the old buffer before the new one is allocated.
        buffer = _BUFFERS[thread] = np.empty(size, np.uint8)
    return buffer.data


def trim_scratch() -> None:
    """Frees large buffers, and those of threads that have ended, after a write."""
    alive = {thread.ident for thread in threading.enumerate()}
    for thread, buffer in [*_BUFFERS.items()]:
        if thread not in alive or len(buffer) > _IDLE_BYTES_MAX:
            _BUFFERS.pop(thread, None)


def parquet_bytes_max(table: pa.Table, metadata_bytes: int) -> int:
    """Probable maximum bytes of a table as a Parquet file; it may exceed this if dictionaries are expanded."""
    return int(table.nbytes + table.nbytes // 8 + 2 * metadata_bytes + _FOOTER_BYTES)


def encode_file(bytes_max: int, encode: Callable[[pa.NativeFile], None]) -> memoryview:
    """The bytes that `encode` writes; if they exceed `bytes_max`, `encode` is called again with a growing buffer.

    They are valid until this thread encodes its next file.
    """
    memory = scratch_memory(bytes_max)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
    try:
        encode(sink)
    except OSError:  # The buffer is too small.
        growing = pa.BufferOutputStream()
        encode(growing)
        return memoryview(growing.getvalue()).cast("B")
    return memory[: sink.tell()]
