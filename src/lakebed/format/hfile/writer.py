"""Encodes Arrow arrays as an HFile, in the layout of Apache Hudi's own writer."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.arrow import COMPRESSORS, SMALL_COUNT, binary_buffers, choose_packing, row_bytes
from lakebed.format.hfile.layout import (
    DATA,
    FILE_INFO,
    GZIP,
    HFILE_BLOCK_BYTES_MAX,
    KEY_SUFFIX,
    META,
    NONE,
    RECORD_BYTES,
    RECORD_HEADER,
    ROOT_INDEX,
    ROW_BYTES_MAX,
    BlockIndex,
    Codec,
    Packing,
    encode_block,
    encode_file_info,
    encode_root_index,
    encode_row,
    encode_trailer,
    gzip_like_hudi,
)
from lakebed.kernels.buffers import Int64s
from lakebed.kernels.hfile_records import Records, frame_blocks, measure_records

_BLOOM_NAME = "bloomFilter"
_BLOOM_TYPE = b"DYNAMIC_V0"
_CODECS = {"gzip": GZIP, "none": NONE}


@dataclass(frozen=True, slots=True)
class _DataBlock:
    first_row: bytes
    payload: bytes
    uncompressed_bytes: int


@dataclass(frozen=True, slots=True)
class _Totals:
    """Totals over all records, for file info and trailer."""

    entry_count: int
    first_row: bytes
    last_row: bytes
    rows_bytes: int
    values_bytes: int


def encode_hfile(
    keys: ArrowArray,
    values: ArrowArray,
    *,
    schema: str,
    created_ms: int,
    base_file: bool,
    codec: Codec = "gzip",
    block_bytes_max: int = HFILE_BLOCK_BYTES_MAX,
    bloom: bytes | None = None,
    order: npt.NDArray[np.int64] | None = None,
    packing: Packing | None = None,
) -> bytes:
    """The HFile of `keys` (string or binary) and `values` (binary, or a dictionary of binary).

    Keys must ascend and be unique, after sorting by `order` if it is given (see `key_order`). `schema` is the Avro
    schema of the values, `bloom` the text of a base file's Bloom filter. The encoding is deterministic; files of up to
    2048 records are identical to those of Apache Hudi. More records are compressed with `packing`, by default the one
    that is best for the first of them.
    """
    assert len(keys) == len(values)
    assert values.null_count == 0
    order = np.arange(len(keys)) if order is None else order
    if len(keys) <= SMALL_COUNT:
        blocks, totals = _small_blocks(keys.take(pa.array(order)), values.take(pa.array(order)), codec, block_bytes_max)
    else:
        blocks, totals = _bulk_blocks(_records(keys, values, order), codec, block_bytes_max, packing)
    return _assemble(blocks, totals, _file_info(totals, schema, created_ms, base_file, bloom), _CODECS[codec], bloom)


def _require_short(longest: int) -> None:
    if longest > ROW_BYTES_MAX:
        raise InvalidInputError(
            f"a key of {longest} bytes is too long",
            hint=f"use shorter keys: the metadata table takes keys of at most {ROW_BYTES_MAX} bytes",
        )


def _small_blocks(
    keys: ArrowArray, values: ArrowArray, codec: Codec, block_bytes_max: int
) -> tuple[Iterator[_DataBlock], _Totals]:
    rows, contents = row_bytes(keys), row_bytes(values)
    _require_short(max(map(len, rows), default=0))
    assert all(row < following for row, following in pairwise(rows)), "keys do not ascend"
    pack = gzip_like_hudi if codec == "gzip" else bytes

    def blocks() -> Iterator[_DataBlock]:
        first, content = b"", bytearray()
        for row, value in zip(rows, contents, strict=True):
            if content and len(content) + RECORD_BYTES + len(row) + len(value) > block_bytes_max:
                yield _DataBlock(first, pack(bytes(content)), len(content))
                content = bytearray()
            first = first if content else row
            header = RECORD_HEADER.pack(2 + len(row) + len(KEY_SUFFIX), len(value), len(row))
            content += b"".join((header, row, KEY_SUFFIX, value, b"\0"))
        if content:
            yield _DataBlock(first, pack(bytes(content)), len(content))

    sizes = sum(map(len, rows)), sum(map(len, contents))
    return blocks(), _Totals(len(rows), *((rows[0], rows[-1]) if rows else (b"", b"")), *sizes)


def _records(keys: ArrowArray, values: ArrowArray, order: Int64s) -> Records:
    """Many records in the form that kernels take."""
    if pa.types.is_dictionary(values.type):
        value_ids, distinct = values.indices.to_numpy().astype(np.int32, copy=False), values.dictionary
    else:
        value_ids, distinct = np.arange(len(values), dtype=np.int32), values
    return Records(*binary_buffers(keys), *binary_buffers(distinct), value_ids, order)


def _row(records: Records, at: int) -> bytes:
    return records.rows[records.row_offsets[at] : records.row_offsets[at + 1]].tobytes()


def best_packing(keys: ArrowArray, values: ArrowArray) -> Packing:
    """The packing that `encode_hfile` would choose for more than 2048 sorted records, for reuse on similar ones."""
    count = min(len(keys), HFILE_BLOCK_BYTES_MAX // RECORD_BYTES)
    records = _records(keys.slice(0, count), values.slice(0, count), np.arange(count))
    framed = frame_blocks(measure_records(records), block_bytes_max=HFILE_BLOCK_BYTES_MAX)
    return choose_packing(next(framed)[1], len(keys))


def _bulk_blocks(
    records: Records, codec: Codec, block_bytes_max: int, packing: Packing | None
) -> tuple[Iterator[_DataBlock], _Totals]:
    sizes, order = measure_records(records), records.order
    _require_short(sizes.longest_row)

    def blocks(packing: Packing | None) -> Iterator[_DataBlock]:
        for first_rows, some in frame_blocks(sizes, block_bytes_max=block_bytes_max):
            contents = some.contents()
            if codec == "gzip":
                packing = packing or choose_packing(some, len(order))
                payloads = COMPRESSORS[packing](some, len(order))
            else:
                payloads = [*map(bytes, contents)]
            for first, payload, content in zip(first_rows.tolist(), payloads, contents, strict=True):
                yield _DataBlock(_row(records, first), payload, len(content))

    totals = _Totals(len(order), _row(records, order[0]), _row(records, order[-1]), sizes.rows, sizes.values)
    return blocks(packing), totals


def _file_info(totals: _Totals, schema: str, created_ms: int, base_file: bool, bloom: bytes | None) -> dict[str, bytes]:
    """File info in the order of Hudi's writer, which is that of a Java hash map."""
    count = max(totals.entry_count, 1)
    info = {"schema": schema.encode()}
    if bloom is not None:
        info["bloomFilterTypeCode"] = _BLOOM_TYPE
    info["hfile.LASTKEY"] = encode_row(totals.last_row) if totals.entry_count else b""
    info["hfile.AVG_VALUE_LEN"] = struct.pack(">i", totals.values_bytes // count)
    if base_file:
        info["minRecordKey"] = totals.first_row
    info["hfile.AVG_KEY_LEN"] = struct.pack(">i", totals.rows_bytes // count)
    if base_file:
        info["maxRecordKey"] = totals.last_row
    info["KEY_VALUE_VERSION"] = struct.pack(">i", 1)
    info["MAX_MEMSTORE_TS_KEY"] = struct.pack(">q", 0)
    info["hfile.CREATE_TIME_TS"] = struct.pack(">q", created_ms)
    return info


def _assemble(
    blocks: Iterator[_DataBlock], totals: _Totals, info: dict[str, bytes], codec: int, bloom: bytes | None
) -> bytes:
    parts: list[bytes] = []
    rows, offsets, sizes, position, data_bytes = [], [], [], 0, 0
    for block in blocks:
        # A quirk of Hudi's writer: only the first block has no previous offset, the others have their own.
        parts.append(encode_block(DATA, block.payload, block.uncompressed_bytes, position or -1))
        rows.append(block.first_row)
        offsets.append(position)
        sizes.append(len(parts[-1]))
        position += sizes[-1]
        data_bytes += block.uncompressed_bytes
    meta = BlockIndex((), (), ())
    if bloom is not None:
        parts.append(_block(META, bloom, codec))
        meta = BlockIndex((_BLOOM_NAME.encode(),), (position,), (len(parts[-1]),))
    load_on_open_offset = position + sum(meta.sizes)
    index = encode_root_index(BlockIndex(tuple(rows), tuple(offsets), tuple(sizes)))
    section = [_block(ROOT_INDEX, index, codec), _meta_index(meta, codec)]
    trailer = encode_trailer(
        file_info_offset=load_on_open_offset + sum(map(len, section)),
        load_on_open_offset=load_on_open_offset,
        data_bytes=data_bytes,
        data_index_count=len(rows),
        meta_index_count=len(meta),
        entry_count=totals.entry_count,
        last_data_block_offset=offsets[-1] if offsets else 0,
        codec=codec,
    )
    return b"".join((*parts, *section, _block(FILE_INFO, encode_file_info(info), codec), trailer))


@lru_cache(maxsize=4)
def _meta_index(index: BlockIndex, codec: int) -> bytes:
    """The meta index: an entry for the Bloom filter. Cached: most files have none."""
    return _block(ROOT_INDEX, encode_root_index(index, plain_keys=True), codec)


def _block(magic: bytes, content: bytes, codec: int) -> bytes:
    return encode_block(magic, gzip_like_hudi(content) if codec == GZIP else content, len(content))
