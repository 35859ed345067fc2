"""Entries of `partition_stats`: statistics of each column over all current files of a partition. And how they merge.

They are tight: exactly the union of the statistics of the files in the latest slices. A commit that supersedes no file
widens the known statistics by those of its new files. A commit that does, such as an update on copy-on-write or a
compaction, recomputes the union from the statistics of the current files. So does a commit that finds entries of
another engine, or whose files have statistics of a column that the partition lacks: older files may have values of it.

Readers use the newest entry alone if it is marked as tight, and else widen it by older ones. While another engine is
writing, its entry may end up below ours and must count, so ours are not marked as tight then.

A current file that has statistics, but none of some column, was written before the column existed, or is a partial
update whose other values are in the files below it. Its rows count as nulls, as in Apache Hudi. Every partition should
have entries: if one has an entry of a column, Apache Hudi skips partitions that have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import map_bounded
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.arrow import ArrowArray
from lakebed.format.metadata.column_stats import encode_column_stats_record, widen_column_stats
from lakebed.format.metadata.datum import is_own
from lakebed.format.metadata.keys import partition_stats_key
from lakebed.format.metadata.records import decode_metadata_record, merge_column_stats
from lakebed.index.build import Source, pieces_source
from lakebed.index.check import Checked, Tally
from lakebed.index.column_stats.entries import compare_stats, file_stats, stored_stats
from lakebed.index.column_stats.kind import encode_current_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.index.data_files import StoredFile, current_files, stored_files
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries, concat_texts
from lakebed.metadata.merging import PLAIN, Form, Merged, MergedLogs, NewestWins, flags
from lakebed.metadata.shard import DeleteLayer, EntryLayer, Shard, StoredValue
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.observe import Meter
from lakebed.table import TableState

_PAYLOAD = "ColumnStatsMetadata"
_STAND_ALONE = ("isTightBound", "isDeleted")
"""Flags of entries that replace older ones; other entries are widened by older ones."""
_NEWEST = NewestWins(_PAYLOAD, encode_current_stats)


def partition_stats_entries(
    stats: Mapping[str, Iterable[ColumnStats]],
    removed_partitions: Iterable[str] = (),
    *,
    columns: Sequence[str],
    version: str,
    stand_alone: bool = True,
) -> Entries:
    """Entries for statistics of partitions, and deletes for partitions without rows.

    `columns` are the source fields of the column statistics, `version` is the version of that index. Unless entries
    `stand_alone`, readers widen them by older ones.
    """
    records = {
        partition_stats_key(each.column, partition): encode_column_stats_record(
            each if stand_alone else _loose(each), version=version, partition_stats=True
        )
        for partition, of_partition in stats.items()
        for each in of_partition
        if each.column in columns
    }
    deletes = [partition_stats_key(column, partition) for partition in removed_partitions for column in columns]
    return Entries.of(records, deletes)


def partition_stats_source(
    state: TableState, metadata: MetadataTable, definition: IndexDefinition, file_ids: Sequence[str]
) -> Source:
    """Entries for all columns and partitions of a table, from the statistics of current files.

    A file that has none, such as another engine's log file of deletes, is read. Apache Hudi skips partitions without
    an entry if others have one, so either all partitions get one or the build fails.
    """
    current = current_files(state)
    known = CurrentStats(metadata, lambda partition: current[partition])
    columns, version = definition.source_fields, definition.version
    stored = {(each.partition, each.file.name): each for each in stored_files(state)}

    def entries(partition: str) -> Entries:
        stats = [*known.of_files(partition, current[partition], columns)]
        for name in sorted(set(current[partition]) - {each.file_name for each in stats}):
            stats += _known_stats(stored[partition, name], columns)
        return partition_stats_entries({partition: stats_of_files(partition, stats)}, columns=columns, version=version)

    return pieces_source(list(current), entries, file_ids)


def check_partition_stats(checked: Checked, tally: Tally) -> None:
    """Compares entries with current files, as far as entries exclude rows."""
    state, columns = checked.state, checked.metadata.definitions[COLUMN_STATS].source_fields
    current = current_files(state)
    wanted = [s for s in stored_files(state) if s.file.name in current.get(s.partition, ())]
    meter = Meter(PARTITION_STATS, len(wanted), checked.observer)
    by_partition: dict[str, list[ColumnStats]] = {}
    for stored, stats in zip(wanted, map_bounded(wanted, lambda s: file_stats(s, columns)), strict=True):
        meter.step()
        by_partition.setdefault(stored.partition, []).extend(stats)
    found = {
        (partition, each.column): each
        for partition, stats in by_partition.items()
        for each in stats_of_files(partition, stats)
    }
    # Hudi leaves statistics of partitions that have no rows any more; they exclude nothing.
    indexed = {key: each for key, each in stored_stats(checked).items() if key[0] in by_partition}
    compare_stats(indexed, found, tally, is_exact=False)


def stats_of_files(partition: str, stats: Iterable[ColumnStats]) -> tuple[ColumnStats, ...]:
    """The statistics of a partition, given the column statistics of its current files."""
    by_file: dict[str, dict[str, ColumnStats]] = {}
    for each in stats:
        by_file.setdefault(each.file_name, {})[each.column] = each
    return _union(partition, [*by_file.values()])


def widened_stats(
    partition: str, known: Iterable[ColumnStats], added: Iterable[ColumnStats]
) -> tuple[ColumnStats, ...]:
    """The `known` statistics of a partition, widened by the column statistics `added` of new files."""
    before = {each.column: each for each in known if not each.is_deleted}
    by_file: dict[str, dict[str, ColumnStats]] = {}
    for each in added:
        by_file.setdefault(each.file_name, {})[each.column] = each
    return _union(partition, [before, *by_file.values()] if before else [*by_file.values()])


def _union(partition: str, parts: list[dict[str, ColumnStats]]) -> tuple[ColumnStats, ...]:
    """The union of parts of a partition, each with statistics by column; a column missing in a part is null there."""
    widen = partial(widen_column_stats, file_name=partition, is_tight_bound=True)
    found = []
    for column in dict.fromkeys(column for part in parts for column in part):
        first, *others = (part[column] if column in part else _nulls(part, column) for part in parts)
        alone = replace(first, file_name=partition, is_tight_bound=True, is_deleted=False) if not others else first
        found.append(reduce(widen, others, alone))
    return tuple(found)


def _loose(stats: ColumnStats) -> ColumnStats:
    """The statistics, neither tight nor deleted, so that readers widen them by older ones."""
    is_loose = not stats.is_tight_bound and not stats.is_deleted
    return stats if is_loose else replace(stats, is_tight_bound=False, is_deleted=False)


def _nulls(part: Mapping[str, ColumnStats], column: str) -> ColumnStats:
    rows = max((each.value_count or 0 for each in part.values()), default=0)
    return ColumnStats("", column, None, None, value_count=rows, null_count=rows)


def _known_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    found = file_stats(stored, columns)
    if not found:
        raise InvalidInputError(
            f"{stored.path} has no column statistics, so its partition cannot have any",
            hint="partition_stats need Parquet base files: do not create them for this table",
        )
    return found


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
            stats = reduce(merge_column_stats, map(_stats_of, found[key]))
            stats = replace(stats, is_tight_bound=False)
            values[row] = encode_column_stats_record(stats, version=stats_version, partition_stats=True)
    return replace(merged, values=pa.array(values, pa.binary()))


def _stats_of(stored: StoredValue) -> ColumnStats:
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
        stats = [*map(_stats_of, found[names[row]])]
        merged[row] = encode_column_stats_record(
            reduce(merge_column_stats, stats), version=stats_version, partition_stats=True
        )
        if names[row] in gone or any(each.is_tight_bound or each.is_deleted for each in stats):
            stand_alone.append(names[row])
    return pa.array(merged, pa.binary()), pa.array(stand_alone, pa.string())
