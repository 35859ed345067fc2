"""How the rows of a large write are split: one task sees all rows of a key, and few shards of the record index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakebed.engine.exchange import Ints, Label, Split
from lakebed.format.arrow import ArrowArray
from lakebed.format.java import shards_of
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.keys import KEY_INDEX, find_key_index
from lakebed.model.words import RECORD_KEY
from lakebed.table import TableState
from lakebed.write.operations import Operation
from lakebed.write.plan import TagRule, inserts_by_partition
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.tag.files import rows_by_partition

_BUCKETS, _BUCKETS_OF_PARTITION = 256, 16
"""At least so many, however few shards there are: a task takes as many as it has room for, but no part of one."""
_SHORT_MAX = 2**15 - 1


def plan_split(state: TableState, operation: Operation, rule: TagRule, arrangement: Arrangement) -> Split:
    """How rows are staged: all of a key together if they are looked for or combined, else by partition."""
    if not operation.finds_keys and not arrangement.combines:
        return split_inserts
    metadata = find_key_index(state) if operation.finds_keys and rule.by_index else None
    if metadata is None:
        return KeyBuckets(arrangement.by_partition)
    file_ids = (file_slice.group.file_id for file_slice in metadata.slices(KEY_INDEX))
    # Those of an index over the whole table have no partition in them.
    return KeyBuckets(arrangement.by_partition, Counter(data_partition_of_group(id_) or "" for id_ in file_ids))


def split_inserts(rows: pa.Table) -> Iterable[tuple[Label, Ints]]:
    """Row numbers of each partition; deletes have nothing to delete."""
    return sorted(inserts_by_partition(rows).items())


@dataclass(frozen=True, slots=True)
class KeyBuckets:
    """Splits rows by the hash that the record index takes, so that a bucket is a shard, or a part of one.

    Rows of one key are together. With `by_partition`, those of one key and partition are, and `shards` has the number
    of shards of each partition; otherwise that of all under "".
    """

    by_partition: bool
    shards: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, rows: pa.Table) -> Iterator[tuple[Label, Ints]]:
        """Row numbers by bucket number, or by partition and bucket number."""
        keys = rows[RECORD_KEY].combine_chunks()
        if not self.by_partition:
            yield from _numbered(keys, self.shards.get("", 1), _BUCKETS)
            return
        for partition, numbers in sorted(rows_by_partition(rows).items()):
            here = keys.take(pa.array(numbers))
            for bucket, some in _numbered(here, self.shards.get(partition, 1), _BUCKETS_OF_PARTITION):
                yield (partition, bucket), numbers[some]


def _numbered(keys: ArrowArray, shards: int, least: int) -> Iterator[tuple[int, Ints]]:
    """Positions of the keys of each bucket that has any; the buckets of a shard follow each other."""
    share = -(-least // shards)
    hashed = shards_of(keys, shards * share)
    numbers = hashed % shards * share + hashed // shards
    if shards * share <= _SHORT_MAX:
        numbers = numbers.astype(np.int16)  # These are sorted five times as fast.
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(numbers[order[start]]), order[start:end]
