"""Record-index HFiles: encode, decode and look up 1,000,000 uuid keys in 10 shards of 20 file groups each, on one core.

Run with `python -m benchmarks.codecs`. Figures are CPU time, which other work on the machine disturbs least: the best
of several runs after a warm-up that loads compiled code. The reference for bytes is what Apache Hudi makes of the same
entries: zlib level 6 in blocks of 1 MiB.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from isal import isal_zlib

import lakebed.format
from lakebed.format.hfile import HFile, decode_hfile, encode_hfile, key_order
from lakebed.format.hfile.arrow import (
    binary_buffers,
    compress_general,
    compress_records,
    compress_searching,
)
from lakebed.format.java import shards_of
from lakebed.format.metadata.record_index import decode_record_index, encode_record_index
from lakebed.kernels.hfile_records import FramedBlocks, Records, frame_blocks, measure_records
from lakebed.model.source import BytesSource

ENTRIES, SHARDS, FILE_GROUPS = 1_000_000, 10, 20
RUNS = 5
LOOKUPS = 200
MIB = 1024 * 1024
SCHEMA_FILE = Path(lakebed.format.__file__).parent / "schemas" / "HoodieMetadataRecord.as-stored.avsc"
SCHEMA = json.dumps(json.loads(SCHEMA_FILE.read_text()), separators=(",", ":"))


@dataclass
class CountingSource:
    """A file in memory that counts its reads."""

    data: bytes
    path: str = "bench.hfile"
    reads: int = 0

    @property
    def size(self) -> int:
        """The file's length in bytes."""
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        """A range of the file."""
        self.reads += 1
        return self.data[offset : offset + length]


def uuids(count: int, rng: np.random.Generator) -> list[str]:
    """Random version 4 uuids."""
    digits = rng.bytes(16 * count).hex()
    texts = (digits[at : at + 32] for at in range(0, 32 * count, 32))
    return [f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}" for text in texts]


def entries(count: int, seed: int) -> pa.RecordBatch:
    """Entries with uuid keys, evenly over the file groups of two partitions."""
    rng = np.random.default_rng(seed)
    file_ids = [f"{uuid}-0" for uuid in uuids(FILE_GROUPS, rng)]
    groups = rng.integers(0, FILE_GROUPS, count, dtype=np.int32)
    columns = {
        "key": pa.array(uuids(count, rng)),
        "partition": pa.DictionaryArray.from_arrays(groups % 2, pa.array(["region=eu", "region=us"])),
        "file_id": pa.DictionaryArray.from_arrays(groups, pa.array(file_ids)),
        "instant_ms": pa.array(np.full(count, 1794786930634)),
    }
    return pa.record_batch(columns)


def encode(batch: pa.RecordBatch, **options: int) -> bytes:
    """A base file of the entries."""
    return encode_record_index(batch, schema=SCHEMA, created_ms=0, base_file=True, **options)


def best_seconds(run: Callable[[], object], runs: int = RUNS) -> float:
    """The least time of some runs."""
    spent = []
    for _ in range(runs):
        started = time.process_time()
        run()
        spent.append(time.process_time() - started)
    return min(spent)


def blocks_of(batch: pa.RecordBatch, block_bytes_max: int) -> list[FramedBlocks]:
    """The framed data blocks of a shard, for compressors to try."""
    values = decode_hfile(BytesSource(encode(batch)))["value"]
    order = key_order(batch["key"])
    ids = np.empty(len(order), np.int32)
    ids[order] = values.indices.to_numpy()
    rows, contents = binary_buffers(batch["key"]), binary_buffers(values.dictionary)
    framed = frame_blocks(measure_records(Records(*rows, *contents, ids, order)), block_bytes_max=block_bytes_max)
    return [deepcopy(blocks) for _, blocks in framed]


def compare_compressors(shard: pa.RecordBatch) -> None:
    """Bytes and nanoseconds per entry of one shard's blocks."""
    compressors: dict[str, Callable[[FramedBlocks], list[bytes]]] = {
        "zlib 6 (Hudi)": lambda blocks: [zlib.compress(content, 6) for content in blocks.contents()],
        "isal 1": lambda blocks: [isal_zlib.compress(content, 1) for content in blocks.contents()],
        "isal 2": lambda blocks: [isal_zlib.compress(content, 2) for content in blocks.contents()],
        "isal 3 (general)": lambda blocks: compress_general(blocks, ENTRIES),
        "records": lambda blocks: compress_records(blocks, ENTRIES),
        "records, searching": lambda blocks: compress_searching(blocks, ENTRIES),
    }
    for size in (64, 128, 256, 1024):
        runs = blocks_of(shard, size * 1024)
        for name, compress in compressors.items():
            length = sum(len(packed) for blocks in runs for packed in compress(blocks)) / shard.num_rows
            spent = best_seconds(lambda runs=runs, compress=compress: [compress(blocks) for blocks in runs], 3)
            print(f"  {size:5} KiB  {name:20} {length:6.2f} B/entry {spent / shard.num_rows * 1e9:7.0f} ns/entry")


def measure_lookup(keys: pa.Array, file: bytes) -> None:
    """Reads and time to find one key in a file of all entries."""
    wanted = [key.encode() for key in keys.take(pa.array(np.arange(LOOKUPS) * 4999)).to_pylist()]
    source = CountingSource(file)
    opened = HFile.open(source)
    assert opened.find(wanted[0]) is not None
    first_reads = source.reads
    spent = []
    for key in wanted:
        started = time.process_time()
        assert opened.find(key) is not None
        spent.append(time.process_time() - started)
    warm_reads = (source.reads - first_reads) / len(wanted)
    print(f"one key of {opened.entry_count:,}: {first_reads} reads cold, {warm_reads:.0f} warm; ", end="")
    print(f"warm {np.median(spent) * 1e3:.3f} ms median, {max(spent) * 1e3:.3f} ms worst of {len(wanted)}")


def main() -> None:
    """Prints all figures with their units."""
    batch = entries(ENTRIES, seed=7)
    shard_ids = shards_of(batch["key"], SHARDS)
    print(f"shard hash: {ENTRIES / best_seconds(lambda: shards_of(batch['key'], SHARDS)) / 1e6:.1f} M keys/s")
    shards = [batch.take(pa.array(np.flatnonzero(shard_ids == shard))) for shard in range(SHARDS)]
    files = [encode(shard) for shard in shards]
    print(f"encode: {ENTRIES / best_seconds(lambda: [encode(shard) for shard in shards]) / 1e6:.2f} M entries/s")
    sources = [BytesSource(file) for file in files]
    decoded = best_seconds(lambda: [decode_record_index(source) for source in sources])
    print(f"decode: {ENTRIES / decoded / 1e6:.2f} M entries/s")
    ours = sum(map(len, files)) / ENTRIES
    hudi = sum(len(zlib.compress(block.data, 6)) for shard in shards[:2] for block in blocks_of(shard, MIB))
    print(f"bytes per entry: {ours:.2f}; data blocks as Hudi compresses them {hudi / sum(map(len, shards[:2])):.2f}")
    measure_lookup(batch["key"], encode(batch))
    sorting = best_seconds(lambda: [key_order(shard["key"]) for shard in shards])
    print(f"  of encode: sort {sorting / ENTRIES * 1e9:.0f} ns/entry")
    print("compressors, one shard:")
    compare_compressors(shards[0])
    plain = decode_hfile(sources[0])
    again = encode_hfile(plain["key"], plain["value"], schema=SCHEMA, created_ms=0, base_file=True)
    assert again == files[0]


if __name__ == "__main__":
    main()
