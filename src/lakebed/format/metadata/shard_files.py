"""What the files of one shard of the metadata table hold.

base file      an HFile with all entries of the shard
log file       an HFile block with new entries, then a DELETE block with the keys that go; either may be missing
merged log     a DELETE block with keys that go first, then HFile blocks with entries; they name whom they stand for
placeholder    a log file with an empty DELETE block: it says that the shard exists
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
"""The keys for which Hudi sizes the bloom filter of such a base file.

Beyond, the filter grows row by row and takes longer to fill than all the rest, for readers that do not ask it: base
files of more keys have none.
"""

_NO_DELETES = bytes.fromhex("000000030000000100")


def encode_shard_base(
    keys: ArrowArray, values: ArrowArray, *, schema: str, created_ms: int, in_order: bool = False
) -> bytes:
    """The base file of entries with unique keys, given in ascending order or in any; also of none."""
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
    """The log file that an instant writes: entries with unique keys, in ascending or any order, and keys to delete.

    `packing` is for many entries, as in `encode_hfile`.
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
    assert blocks, "a log file says something"
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
    """The log file of a log compaction: keys that go, then blocks of entries, each with unique keys in ascending order.

    It stands for the blocks of the `replaced` instants, newest first.
    """
    times = {HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(replaced)}
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema, **times}
    blocks = []
    if len(deletes):
        blocks.append(encode_log_block(BlockKind.DELETE, header, _delete_content(deletes, mdt_partition)))
    for keys, values in entries:
        hfile = encode_hfile(keys, values, schema=schema, created_ms=created_ms, base_file=False, order=None)
        blocks.append(encode_log_block(BlockKind.HFILE_DATA, header, hfile))
    assert blocks, "a log file says something"
    return b"".join(blocks)


def _delete_content(deletes: ArrowArray, mdt_partition: str) -> bytes:
    in_order = deletes.take(pa.array(key_order(deletes)))
    return encode_deletes(in_order, pa.repeat(mdt_partition, len(deletes)))


def encode_placeholder_log(instant: str) -> bytes:
    """The log file that brings a shard into being, without an entry."""
    return encode_log_block(BlockKind.DELETE, {HeaderKey.INSTANT_TIME: instant}, _NO_DELETES)
