"""Deflate by a general-purpose library: streams are larger than those of `compiled.deflate`, with the same content."""

from __future__ import annotations

from isal import isal_zlib

from lakebed.kernels.hfile_records import FramedBlocks

_LEVEL = 3
_RAW_WBITS = -15


def deflate_blocks(blocks: FramedBlocks, *, search_keys: bool) -> list[memoryview]:  # noqa: ARG001
    """A stream for each block."""
    return [memoryview(isal_zlib.compress(content, _LEVEL, wbits=_RAW_WBITS)) for content in blocks.contents()]
