"""Files of a shard of the metadata table, encoded.

base file      an HFile with all entries of the shard
log file       an HFile block with new entries, then a DELETE block with deleted keys; either may be missing
merged log     a DELETE block, then HFile blocks with entries; headers name the instants that they replace
placeholder    a log file with an empty DELETE block, which makes the shard exist
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakebed.format.arrow import ArrowArray
from lakebed.format.bloom import build_bloom, encode_bloom
from lakebed.format.hfile import encode_hfile, key_order
from lakebed.format.hfile.layout import Packing
from lakebed.format.log.blocks import encode_deletes
from lakebed.format.log.file import BlockKind, HeaderKey, encode_log_block

BLOOM_KEYS = 10_000
"""Number of keys for which Hudi sizes the Bloom filter of such a base file.

For more keys the filter would take longer to build than the rest of the file, and readers do not use it: base files of
more keys have none.
"""

_NO_DELETES = bytes.fromhex("000000030000000100")


def encode_shard_base(
    keys: ArrowArray, values: ArrowArray, *, schema: str, created_ms: int, in_order: bool = False
) -> bytes:
    """The base file of entries with unique keys, sorted (`in_order`) or not; there may be none."""
    bloom = encode_bloom(build_bloom(keys, capacity=BLOOM_KEYS)) if len(keys) <= BLOOM_KEYS else None
    return encode_hfile(
        keys,
        values,
        schema=schema,
        created_ms=created_ms,
        base_file=True,
        bloom=bloom,
        order=None if in_order else key_order(keys),
    )


def encode_shard_log(
    instant: str,
    keys: ArrowArray,
    values: ArrowArray,
    deletes: ArrowArray,
    *,
    mdt_partition: str,
    schema: str,
    created_ms: int,
    in_order: bool = False,
    packing: Packing | None = None,
) -> bytes:
    """The log file of an instant: entries with unique keys, sorted (`in_order`) or not, and deleted keys.

    `packing` is for many entries, see `encode_hfile`.
    """
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    blocks = []
    if len(keys):
        order = None if in_order else key_order(keys)
        hfile = encode_hfile(
            keys, values, schema=schema, created_ms=created_ms, base_file=False, order=order, packing=packing
        )
        blocks.append(encode_log_block(BlockKind.HFILE_DATA, header, hfile))
    if len(deletes):
        blocks.append(encode_log_block(BlockKind.DELETE, header, _delete_content(deletes, mdt_partition)))
    assert blocks, "a log file has a block"
    return b"".join(blocks)


def encode_merged_log(
    instant: str,
    deletes: ArrowArray,
    entries: Sequence[tuple[ArrowArray, ArrowArray]],
    *,
    replaced: Iterable[str],
    mdt_partition: str,
    schema: str,
    created_ms: int,
) -> bytes:
    """The log file of a log compaction: deleted keys, then blocks of entries, each with unique keys in ascending order.

    It replaces the blocks of the `replaced` instants, newest first.
    """
    times = {HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(replaced)}
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema, **times}
    blocks = []
    if len(deletes):
        blocks.append(encode_log_block(BlockKind.DELETE, header, _delete_content(deletes, mdt_partition)))
    for keys, values in entries:
        hfile = encode_hfile(keys, values, schema=schema, created_ms=created_ms, base_file=False, order=None)
        blocks.append(encode_log_block(BlockKind.HFILE_DATA, header, hfile))
    assert blocks, "a log file has a block"
    return b"".join(blocks)


def _delete_content(deletes: ArrowArray, mdt_partition: str) -> bytes:
    in_order = deletes.take(pa.array(key_order(deletes)))
    return encode_deletes(in_order, pa.repeat(mdt_partition, len(deletes)))


def encode_placeholder_log(instant: str) -> bytes:
    """The log file that creates a shard without entries."""
    return encode_log_block(BlockKind.DELETE, {HeaderKey.INSTANT_TIME: instant}, _NO_DELETES)
