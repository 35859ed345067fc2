"""Builds the entries of a record index from the rows of a table.

Only the key column is read, and the ordering column if entries carry ordering values. An entry has the file group of
its key and the instant of the group's base file, as when Apache Hudi builds an index on existing rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import map_bounded, map_tasks
from lakebed.errors import InvalidInputError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.record_index import RecordLocation, decode_entry_values
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.index.build import Build, Scan, Scanner, Source, join_sorted
from lakebed.index.foreign import GroupScans
from lakebed.index.layout import ShardLayout, global_layout, partitioned_layout
from lakebed.index.record.definition import ordering_numbers
from lakebed.index.record.entries import KeyChanges, ShardSizing, key_entries, shard_count
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.metadata.entries import Entries, split_entries
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.index import EntryOrdering, IndexDefinition
from lakebed.model.words import COMMIT_TIME, RECORD_KEY
from lakebed.table import TableState
from lakebed.transaction.times import instant_ms, timeline_zone

_HELD_ENTRY_BYTES = 64
"""Approximate memory per gathered entry in bytes, with a key of the usual length."""
_HELD_BYTES_MAX = 512 << 20
"""Maximum size in bytes of entries gathered in one pass."""
_EXAMPLES = 5


def plan_layout(
    state: TableState, rows: Mapping[str, int], *, is_partitioned: bool, shards: int | None, sizing: ShardSizing
) -> ShardLayout:
    """The shards of a new index: as many as requested, or as the rows need."""
    partitions = dict.fromkeys((*state.files, *rows))
    if not is_partitioned:
        return global_layout(RECORD_INDEX, partitions, shards or shard_count(sum(rows.values()), sizing))
    counts = {p: shards or shard_count(rows.get(p, 0), sizing) for p in partitions if p in rows}
    return partitioned_layout(RECORD_INDEX, counts)


def plan_key_shards(build: Build, definition: IndexDefinition) -> tuple[ShardLayout, int]:
    """The shards of a record index, and approximately how many rows it will have."""
    rows, window = count_rows(build.state, build.rows), definition.window
    rows = {name: count for name, count in rows.items() if window is None or window.holds(name)}
    is_partitioned, options = definition.is_partitioned, build.options
    sizing = ShardSizing(*(options.partitioned_sizing if is_partitioned else options.global_sizing))
    shards = build.request.shards
    layout = plan_layout(build.state, rows, is_partitioned=is_partitioned, shards=shards, sizing=sizing)
    return layout, sum(rows.values())


def count_rows(state: TableState, counted: dict[str, int]) -> dict[str, int]:
    """Approximate number of rows of each data partition, from commit metadata, or else from footers.

    What footers say is taken from, and noted in, the rows `counted` by path.
    """
    known = {
        stat.path.rpartition("/")[2]: stat.num_inserts if stat.log_files else stat.num_writes
        for instant in state.timeline.commits()
        for stat in state.documents.commit(instant).stats
    }
    found: dict[str, int] = {}
    counts = map_tasks(state.latest_slices, lambda file_slice: _count_rows(state, file_slice, known, counted))
    for file_slice, rows in zip(state.latest_slices, counts, strict=True):
        found[file_slice.group.partition] = found.get(file_slice.group.partition, 0) + rows
    return found


def key_source(
    state: TableState,
    scan: Scanner,
    layout: ShardLayout,
    rows: int,
    definition: IndexDefinition | None,
    *,
    on_duplicate: str = "fail",
) -> Source:
    """Entries of all record keys of the newest snapshot within the window of the index."""
    ordering = definition.ordering if definition is not None else None
    window = definition.window if definition is not None else None
    scans = tuple(
        s for s in _scans(state, scan, ordering) if window is None or window.holds(s.file_slice.group.partition)
    )
    keys = KeyReader(scans, layout, ordering)
    passes = max(1, -(-rows * _HELD_ENTRY_BYTES // _HELD_BYTES_MAX))
    join = partial(_join, scans=scans, on_duplicate=on_duplicate, has_ordering=ordering is not None)
    return Source(keys.read, len(scans), join, passes)


def _scans(state: TableState, scan: Scanner, ordering: EntryOrdering | None = None) -> Sequence[Scan]:
    """One scan per file slice, of record keys and, if wanted, ordering values."""
    if not state.latest_slices:  # A table without rows may have no schema yet.
        return ()
    return scan(state, [RECORD_KEY, *([ordering.field] if ordering is not None else [])])


def changed_keys(scans: GroupScans, group: FileGroupId, ordering: EntryOrdering | None) -> tuple[pa.Table, ArrowArray]:
    """What another engine's commit did to a file group: the new rows, keys and ordering values; the keys that left."""
    columns = [RECORD_KEY, *([ordering.field] if ordering is not None else [])]
    found = scans.before(group, columns), scans.after(group, columns)
    nothing = pa.table({name: pa.array([], pa.string()) for name in columns})
    before, after = (nothing if rows is None else rows for rows in found)
    was, now = before[RECORD_KEY].combine_chunks(), after[RECORD_KEY].combine_chunks()
    return after.filter(pc.invert(pc.is_in(now, was))), was.filter(pc.invert(pc.is_in(was, now)))


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads keys slice by slice and distributes their entries over shards."""

    scans: Sequence[Scan]
    layout: ShardLayout
    ordering: EntryOrdering | None = None

    def read(self, wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
        """Entries of the shards `wanted`; slices whose data partition has none of them are not read."""
        scans = [s for s in self.scans if not set(self._shards(s)).isdisjoint(wanted)]
        return map_bounded(scans, partial(self._read_slice, wanted))

    def _read_slice(self, wanted: Collection[str], scan: Scan) -> Mapping[str, Entries]:
        rows = scan.read()
        keys, group = rows[RECORD_KEY].combine_chunks(), scan.file_slice.group
        if keys.null_count:
            raise InvalidInputError(
                f"{keys.null_count} rows in {_place(scan.file_slice)} have no record key",
                hint="a record index needs one for every row: delete these rows, or write them again with a key",
            )
        moment = instant_ms(scan.file_slice.base_instant, timeline_zone(scan.config))
        numbers = None if self.ordering is None else ordering_numbers(rows, self.ordering)
        change = KeyChanges(group.partition, group.file_id, keys, ordering=numbers)
        entries = key_entries(change, instant_ms=moment, has_ordering=self.ordering is not None)
        return split_entries(entries, self._shards(scan), wanted=wanted)

    def _shards(self, scan: Scan) -> tuple[str, ...]:
        return self.layout.shards[scan.file_slice.group.partition]


def _count_rows(state: TableState, file_slice: FileSlice, known: Mapping[str, int], counted: dict[str, int]) -> int:
    rows = sum(known.get(log.name, 0) for log in file_slice.logs)
    if file_slice.base is None:
        return rows
    if file_slice.base.name in known:
        return rows + known[file_slice.base.name]
    path = file_slice.path(file_slice.base.name)
    if file_slice.base.extension != ".parquet":
        return rows
    if path not in counted:
        with state.storage.arrow_file(path) as file:
            counted[path] = decode_parquet_footer(file, path=path).rows
    return rows + counted[path]


def _join(parts: Sequence[Entries], *, scans: Sequence[Scan], on_duplicate: str, has_ordering: bool = False) -> Entries:
    """The entries of a shard, each key once; for duplicates, the newest row or an error, as `on_duplicate` says."""
    entries, repeated = join_sorted(parts)
    if not repeated.any():
        return entries
    is_rival = np.append(repeated, False) | np.insert(repeated, 0, False)
    rivals = Entries(
        entries.keys.filter(pa.array(is_rival)), entries.values.filter(pa.array(is_rival)), entries.deletes
    )
    homes = _homes(rivals, scans, stored_schema(has_ordering=has_ordering))
    if on_duplicate != "latest":
        raise _duplicates(rivals.keys, homes)
    chosen = np.flatnonzero(is_rival)[_newest(rivals.keys, homes)]
    kept = np.flatnonzero(~is_rival)
    rows = pa.array(np.sort(np.concatenate([kept, chosen])))
    return Entries(entries.keys.take(rows), entries.values.take(rows), entries.deletes)


def _homes(entries: Entries, scans: Sequence[Scan], schema: str) -> list[Scan]:
    """The scan of the file slice that each entry points to."""
    by_group = {(s.file_slice.group.partition, s.file_slice.group.file_id): s for s in scans}
    decoded = decode_entry_values(entries.values, schema, path="<new entries>")
    return [by_group[_group(decoded.locations[i])] for i in decoded.ids.tolist()]


def _group(location: RecordLocation) -> tuple[str, str]:
    return location.partition, location.file_id


def _newest(keys: ArrowArray, homes: Sequence[Scan]) -> list[int]:
    """For each key, the position of the entry whose file slice has the newest row."""
    times: dict[tuple[FileGroupId, str], str] = {}
    wanted = frozenset(keys.to_pylist())
    for scan in {scan.file_slice.group: scan for scan in homes}.values():
        rows = scan.read((RECORD_KEY, COMMIT_TIME), wanted)
        newest = rows.group_by(RECORD_KEY).aggregate([(COMMIT_TIME, "max")])
        for key, time in zip(newest[RECORD_KEY].to_pylist(), newest[f"{COMMIT_TIME}_max"].to_pylist(), strict=True):
            times[scan.file_slice.group, key] = time
    best: dict[str, tuple[str, int]] = {}
    for row, (key, scan) in enumerate(zip(keys.to_pylist(), homes, strict=True)):
        best[key] = max(best.get(key, ("", -1)), (times[scan.file_slice.group, key], row))
    return [row for _, row in best.values()]


def _duplicates(keys: ArrowArray, homes: Sequence[Scan]) -> InvalidInputError:
    files: dict[str, list[str]] = {}
    for key, scan in zip(keys.to_pylist(), homes, strict=True):
        files.setdefault(key, []).append(_place(scan.file_slice))
    named = "; ".join(f"{key!r} in {' and '.join(files[key])}" for key in list(files)[:_EXAMPLES])
    more = f"; and {len(files) - _EXAMPLES} more in the same shard" if len(files) > _EXAMPLES else ""
    return InvalidInputError(
        f"the index needs unique record keys, and these occur more than once: {named}{more}",
        hint='delete the duplicate rows, or pass on_duplicate="latest" to index the newest row',
    )


def _place(file_slice: FileSlice) -> str:
    names = [file_slice.base.name] if file_slice.base else [log.name for log in file_slice.logs[:1]]
    return file_slice.path(names[0])
