"""Memory that a thread encodes files into, one after the other.

What is given back to the system is cleared before it comes again, and a buffer that grows is copied each time: together
that takes a tenth of a merge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_KEPT_BYTES_MAX = 32 << 20
"""What a thread keeps for its next file. That of larger ones is missed while their rows are read and merged."""
_IDLE_BYTES_MAX = 4 << 20
"""What a thread keeps when a write is over."""

_FOOTER_BYTES = 1 << 20
"""Of a footer, its page indexes and page headers, more than enough. What is not used takes no memory."""


_BUFFERS: dict[int, npt.NDArray[np.uint8]] = {}
"""By thread."""


def scratch_memory(size: int) -> memoryview:
    """So many bytes of this thread's memory, good until it asks for the next."""
    if size > _KEPT_BYTES_MAX:
        return np.empty(size, np.uint8).data
    thread = threading.get_ident()
    buffer = _BUFFERS.get(thread)
    if buffer is None or len(buffer) < size:
        buffer = None
        _BUFFERS.pop(thread, None)  # Never both at a time.
        buffer = _BUFFERS[thread] = np.empty(size, np.uint8)
    return buffer.data


def trim_scratch() -> None:
    """Lets go of memory that is much, or of threads that are no more: a write is over, others have asked already."""
    alive = {thread.ident for thread in threading.enumerate()}
    for thread, buffer in [*_BUFFERS.items()]:
        if thread not in alive or len(buffer) > _IDLE_BYTES_MAX:
            _BUFFERS.pop(thread, None)


def parquet_bytes_max(table: pa.Table, metadata_bytes: int) -> int:
    """What a Parquet file of a table most likely takes at most; more if its dictionaries are spelled out there."""
    return int(table.nbytes + table.nbytes // 8 + 2 * metadata_bytes + _FOOTER_BYTES)


def encode_file(bytes_max: int, encode: Callable[[pa.NativeFile], None]) -> memoryview:
    """What `encode` writes, which is most likely no more than `bytes_max`; else it is called again.

    The bytes are good until this thread encodes its next file.
    """
    memory = scratch_memory(bytes_max)
    sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
    try:
        encode(sink)
    except OSError:  # It does not fit.
        growing = pa.BufferOutputStream()
        encode(growing)
        return memoryview(growing.getvalue()).cast("B")
    return memory[: sink.tell()]
