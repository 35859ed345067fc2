"""Many records at once: data blocks to Arrow arrays, and Arrow arrays to data blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from isal import isal_zlib

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.arrow import binary_array, value_array
from lakebed.format.hfile.layout import Packing
from lakebed.format.hfile.payload import gzip_member
from lakebed.format.hfile.reader import HFile
from lakebed.kernels import hfile_records as kernels
from lakebed.kernels.choice import uses_compiled
from lakebed.kernels.hfile_records import BrokenRecordError, FramedBlocks

_DISTINCT_MAX = 4096
"""With more distinct values too few of them recur within deflate's reach of 32 KiB."""
_SEARCH_GAIN = 0.98
"""Searching keys takes half as long again: it must save this much."""
_GENERAL_LEVEL = 3
Compressor = Callable[[FramedBlocks, int], list[bytes]]


def decode_records(file: HFile) -> tuple[ArrowArray, ArrowArray]:
    """Keys and values of a file, block by block: only the keys and the distinct values are kept."""
    places = [*file.data_blocks()]
    blocks = (np.frombuffer(file.read_data_block(offset, size), np.uint8) for offset, size in places)
    try:
        found = kernels.decode_records(blocks, file.entry_count)
    except BrokenRecordError as error:
        raise CorruptTableError(str(error), path=file.path, offset=places[error.block][0]) from error
    file.check_count(len(found.row_offsets) - 1)
    values = value_array(binary_array(found.values, found.value_offsets), found.value_ids)
    return binary_array(found.rows, found.row_offsets), values


def choose_packing(blocks: FramedBlocks, count: int) -> Packing:
    """What makes the beginning of the first block smallest; all blocks of a file of so many records are of a kind."""
    if blocks.value_count > _DISTINCT_MAX or not uses_compiled(count):
        return "general"
    some = blocks.beginning()
    sizes = {packing: len(compress(some, count)[0]) for packing, compress in COMPRESSORS.items()}
    best: Packing = "searching" if sizes["searching"] < _SEARCH_GAIN * sizes["records"] else "records"
    return "general" if sizes["general"] < sizes[best] else best


def compress_records(blocks: FramedBlocks, count: int) -> list[bytes]:
    """A gzip member for each: values by their last occurrence, the rest of keys literally."""
    return _members(blocks, count, search_keys=False)


def compress_searching(blocks: FramedBlocks, count: int) -> list[bytes]:
    """A gzip member for each: as `compress_records`, with matches all through the keys."""
    return _members(blocks, count, search_keys=True)


def compress_general(blocks: FramedBlocks, count: int) -> list[bytes]:  # noqa: ARG001
    """A gzip member for each by a deflate that knows nothing of records."""
    return [bytes(isal_zlib.compress(content, _GENERAL_LEVEL, wbits=31)) for content in blocks.contents()]


def _members(blocks: FramedBlocks, count: int, *, search_keys: bool) -> list[bytes]:
    deflated = kernels.deflate_blocks(blocks, count, search_keys=search_keys)
    return [*map(gzip_member, deflated, blocks.contents())]


COMPRESSORS: Mapping[Packing, Compressor] = MappingProxyType(
    {"records": compress_records, "searching": compress_searching, "general": compress_general}
)
