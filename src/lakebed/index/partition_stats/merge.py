"""Merging statistics of partitions: the newest are widened by older ones unless they are tight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.metadata.records import decode_metadata_record, encode_column_stats_record, merge_column_stats
from lakebed.format.metadata.schema import is_own
from lakebed.index.column_stats.kind import encode_current_stats
from lakebed.index.column_stats.ranges import PARTITION_STATS
from lakebed.metadata.entries import concat_texts
from lakebed.metadata.merging import PLAIN, Form, Merged, MergedLogs, NewestWins, flags
from lakebed.metadata.shard import DeleteLayer, EntryLayer, Shard, StoredValue
from lakebed.model.metadata import ColumnStats

_PAYLOAD = "ColumnStatsMetadata"
_STAND_ALONE = ("isTightBound", "isDeleted")
"""Flags of entries that replace older ones; other entries are widened by older ones."""
_NEWEST = NewestWins(_PAYLOAD, encode_current_stats)


@dataclass(frozen=True, slots=True)
class Widening:
    """The merge rule for statistics of partitions."""

    def shard(self, shard: Shard, *, has_base: bool, form: Form = PLAIN) -> Merged:
        """The newest entries, widened by older ones where they are not tight."""
        return _widen(_NEWEST.shard(shard, has_base=has_base, form=form), shard, form.version)

    def logs(self, shard: Shard, *, form: Form = PLAIN) -> MergedLogs:
        """The same for log files alone; keys whose entries below the logs do not count are deleted first."""
        merged = _NEWEST.logs(shard, form=form)
        if not merged.blocks:
            return merged
        ((entries, values),) = merged.blocks
        values, stand_alone = _widen_logs(entries, values, shard, form.version)
        return replace(merged, deletes=concat_texts([merged.deletes, stand_alone]), blocks=((entries, values),))


WIDENING = Widening()


def _widen(merged: Merged, shard: Shard, stats_version: str) -> Merged:
    """Widens entries by all layers where the newest is not tight, or was written by another engine.

    Another engine may not have known all files, and stored in our schema its entries would look reliable.
    """
    if not len(merged.keys):
        return merged
    plain = merged.values.dictionary_decode()
    loose = ~flags(plain, _PAYLOAD, "isTightBound", PARTITION_STATS)
    keys, values = merged.keys.to_pylist(), plain.to_pylist()
    has_others = any(isinstance(layer, EntryLayer) and not is_own(layer.hfile.schema) for layer in shard.layers())
    found = shard.find_many(keys if has_others else (keys[row] for row in np.flatnonzero(loose)))
    for row, key in enumerate(keys):
        if loose[row] or (has_others and not is_own(found[key][-1].schema)):
            stats = reduce(merge_column_stats, map(_stats, found[key]))
            stats = replace(stats, is_tight_bound=False)
            values[row] = encode_column_stats_record(stats, version=stats_version, partition_stats=True)
    return replace(merged, values=pa.array(values, pa.binary()))


def _stats(stored: StoredValue) -> ColumnStats:
    payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
    if not isinstance(payload, ColumnStats):
        raise CorruptTableError("a record of another kind among statistics", path=stored.path)
    return payload


def _widen_logs(keys: ArrowArray, values: ArrowArray, shard: Shard, stats_version: str) -> tuple[pa.Array, pa.Array]:
    """The widened entries, and the keys whose entries below the logs do not count.

    Those keys were deleted or tight in an older log. The merged entry is not tight, so without a delete it would be
    widened by the entries below.
    """
    plain = values.dictionary_decode()
    tight, deleted = (flags(plain, _PAYLOAD, name, PARTITION_STATS) for name in _STAND_ALONE)
    loose = np.flatnonzero(~tight & ~deleted)
    names, merged = keys.to_pylist(), plain.to_pylist()
    found = shard.find_many(names[row] for row in loose)
    gone = frozenset[str]().union(*(layer.keys for layer in shard.layers() if isinstance(layer, DeleteLayer)))
    stand_alone = []
    for row in loose:
        stats = [*map(_stats, found[names[row]])]
        merged[row] = encode_column_stats_record(
            reduce(merge_column_stats, stats), version=stats_version, partition_stats=True
        )
        if names[row] in gone or any(each.is_tight_bound or each.is_deleted for each in stats):
            stand_alone.append(names[row])
    return pa.array(merged, pa.binary()), pa.array(stand_alone, pa.string())
