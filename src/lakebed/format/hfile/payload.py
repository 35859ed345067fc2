"""Compressed payloads of blocks: a gzip member, or the bytes as they are."""

from __future__ import annotations

import struct
import zlib
from typing import cast

from isal import igzip_lib, isal_zlib

from lakebed.errors import CorruptTableError
from lakebed.format.hfile.layout import GZIP

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_ZLIB_HEADER_BYTES, _ZLIB_CHECKSUM_BYTES = 2, 4
"""What zlib puts around a deflate stream."""
_InflateError = cast(type[Exception], igzip_lib.error)
_DEFLATE_RATIO_MAX = 1032
"""No deflate stream is longer, uncompressed, than this many times its length."""


def decode_payload(payload: bytes | memoryview, size: int, codec: int, path: str, offset: int) -> bytes:
    """The `size` bytes that `payload` stands for. Never makes more than that, whatever the stream says."""
    if codec != GZIP:
        if len(payload) != size:
            raise CorruptTableError(f"block of {len(payload)} bytes, {size} announced", path=path, offset=offset)
        return bytes(payload)
    if size > _DEFLATE_RATIO_MAX * len(payload):
        raise CorruptTableError(f"{len(payload)} bytes cannot inflate to {size}", path=path, offset=offset)
    inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        data: bytes = inflater.decompress(payload, size + 1)
    except _InflateError as error:
        raise CorruptTableError(f"block cannot be inflated ({error})", path=path, offset=offset) from error
    if len(data) != size or not inflater.eof:
        raise CorruptTableError(f"block inflates to other than its {size} bytes", path=path, offset=offset)
    return data


def gzip_member(deflated: bytes | memoryview, data: bytes | memoryview) -> bytes:
    """A gzip member, with the header of Java's writer, around the deflate stream of `data`."""
    return b"".join((_GZIP_HEADER, deflated, struct.pack("<II", isal_zlib.crc32(data), len(data) & 0xFFFFFFFF)))


def gzip_like_hudi(data: bytes | memoryview) -> bytes:
    """The very bytes that Apache Hudi compresses `data` to. Slow: for small blocks."""
    return gzip_member(zlib.compress(data, 6)[_ZLIB_HEADER_BYTES:-_ZLIB_CHECKSUM_BYTES], data)
