"""Memory that a thread encodes files into, one after the other.

What is given back to the system is cleared before it comes again, and a buffer that grows is copied each time: together
that takes a tenth of a merge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pyarrow as pa

_KEPT_BYTES_MAX = 32 << 20
"""What a thread keeps for its next file. That of larger ones is missed while their rows are read and merged."""

_FOOTER_BYTES = 1 << 20
"""Of a footer, its page indexes and page headers, more than enough. What is not used takes no memory."""


class _Scratch(threading.local):
    """The memory of one thread: it goes with the thread."""

    buffer = np.empty(0, np.uint8)

    def of_size(self, size: int) -> memoryview:
        if size > _KEPT_BYTES_MAX:
            return np.empty(size, np.uint8).data
        if len(self.buffer) < size:
            self.buffer = np.empty(0, np.uint8)  # Never both at a time.
            self.buffer = np.empty(size, np.uint8)
        return self.buffer.data


_SCRATCH = _Scratch()


def scratch_memory(size: int) -> memoryview:
    """So many bytes of this thread's memory, good until it asks for the next."""
    return _SCRATCH.of_size(size)


def parquet_bytes_max(table: pa.Table, metadata_bytes: int) -> int:
    """What a Parquet file of a table most likely takes at most; more if its dictionaries are spelled out there."""
    return int(table.nbytes + table.nbytes // 8 + 2 * metadata_bytes + _FOOTER_BYTES)


def encode_file(bytes_max: int, encode: Callable[[pa.NativeFile], None]) -> memoryview:
    """What `encode` writes, which is most likely no more than `bytes_max`; else it is called again.

    The bytes are good until this thread encodes its next file.
    """
    memory = _SCRATCH.of_size(bytes_max)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
    try:
        encode(sink)
    except OSError:  # It does not fit.
        growing = pa.BufferOutputStream()
        encode(growing)
        return memoryview(growing.getvalue()).cast("B")
    return memory[: sink.tell()]
