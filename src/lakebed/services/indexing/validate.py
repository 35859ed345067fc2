"""Comparing an index with what it is an index of: both ways, completely, one shard after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.engine.threads import map_bounded
from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.metadata.keys import bloom_key, data_partition_of_group
from lakebed.format.metadata.record_index import decode_entry_values
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.format.metadata.schema import stored_schema
from lakebed.index.bloom.probe import BLOOM_FILTERS
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.index.kinds import merge_shard
from lakebed.index.partition_stats.entries import stats_of_files
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import gather_shards
from lakebed.metadata.entries import Entries, concat_entries
from lakebed.metadata.files import read_metadata_files
from lakebed.metadata.merging import Form, Merged
from lakebed.model.metadata import BloomRecord, ColumnStats, StatValue
from lakebed.observe import SILENT, Meter, Observer
from lakebed.services.indexing.definitions import defined_state
from lakebed.services.indexing.files import (
    base_files,
    current_files,
    file_stats,
    listed_files,
    read_footer,
    stored_files,
)
from lakebed.services.indexing.keys import Layout, count_rows, key_source
from lakebed.services.indexing.request import FILES, KINDS
from lakebed.table import TableHandle, TableState

_TRIES = 5
MISSING, EXTRA, DIFFERENT, REPEATED = "missing", "extra", "different", "repeated"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key about which index and data disagree: `indexed` is what the index says of it, `stored` what is so."""

    what: str
    key: str
    indexed: str | None
    stored: str | None


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """How an index and the data compare.

    `missing` keys are not in the index, `extra` ones not in the data, `different` ones are elsewhere or other than the
    index says, `repeated` ones occur more than once in the data of a record index. `problem` says what is wrong with
    the definitions of indexes, if something is: then the index was compared by what its entries tell of it.
    """

    name: str
    checked: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    repeated: int = 0
    examples: tuple[Difference, ...] = field(default=(), repr=False)
    problem: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether nothing differs, and nothing else is wrong."""
        return not (self.missing or self.extra or self.different or self.repeated or self.problem)


class _Tally:
    """Differences as they are found."""

    def __init__(self, name: str, examples: int) -> None:
        self._name, self._examples_max, self.checked = name, examples, 0
        self._counts = dict.fromkeys((MISSING, EXTRA, DIFFERENT, REPEATED), 0)
        self._examples: list[Difference] = []

    def add(self, what: str, count: int, examples: Iterable[tuple[str, str | None, str | None]]) -> None:
        room = self._examples_max - self._counts[what]
        self._counts[what] += count
        for _, example in zip(range(room), examples, strict=False):
            self._examples.append(Difference(what, *example))

    def compare(self, indexed: Mapping[str, str], stored: Mapping[str, str]) -> None:
        """What differs between two descriptions of the same things, by name."""
        self.checked += len(stored.keys() | indexed.keys())
        missing, extra = sorted(stored.keys() - indexed.keys()), sorted(indexed.keys() - stored.keys())
        other = sorted(key for key in stored.keys() & indexed.keys() if stored[key] != indexed[key])
        self.add(MISSING, len(missing), ((key, None, stored[key]) for key in missing))
        self.add(EXTRA, len(extra), ((key, indexed[key], None) for key in extra))
        self.add(DIFFERENT, len(other), ((key, indexed[key], stored[key]) for key in other))

    def result(self, problem: str | None = None) -> IndexCheck:
        counts = self._counts
        return IndexCheck(
            self._name,
            self.checked,
            counts[MISSING],
            counts[EXTRA],
            counts[DIFFERENT],
            counts[REPEATED],
            tuple(self._examples),
            problem,
        )


def validate_index(handle: TableHandle, name: str, *, examples: int = 20, observer: Observer = SILENT) -> IndexCheck:
    """How an index compares with the data of one snapshot; nothing is locked or written."""
    partition = KINDS.get(name, name)
    check = CHECKS.get(partition)
    state, metadata, problem = _look(handle, partition)
    if check is None:
        raise InvalidInputError(f"{partition} cannot be validated", hint=f"use one of {', '.join(CHECKS)}")
    tally = _Tally(partition, examples)
    check(state, metadata, tally, observer)
    return tally.result(problem)


def _look(handle: TableHandle, partition: str) -> tuple[TableState, MetadataTable, str | None]:
    """Table and index as they stood at one moment, and what is wrong with the stored definitions, if something is.

    None completed a write between both looks.
    """
    for _ in range(_TRIES):
        handle.forget()
        seen = handle.state()
        state, derived, broken = defined_state(seen)
        if broken is not None and partition in (*derived.unknown, *derived.without_window):
            raise broken
        metadata = state.metadata
        if not isinstance(metadata, MetadataTable) or not metadata.has(partition):
            raise InvalidInputError(
                f"table {state.config.name} has no index {partition!r} that is ready",
                hint=f"it has {', '.join(state.config.metadata_partitions) or 'none'}",
            )
        metadata.slices(partition)
        assert state.latest_slices is not None
        if handle.state() is seen:
            return state, metadata, None if broken is None else f"{broken.what}; {broken.hint}"
    raise WriteConflictError(
        f"table {handle.config.name} was written to during every attempt",
        hint="run the call again when there are fewer writes",
    )


def _check_record_index(state: TableState, metadata: MetadataTable, tally: _Tally, observer: Observer) -> None:
    """Shard by shard: an entry in a shard that its key does not lead to is missing in one and extra in the other."""
    layout = _stored_layout(state, metadata)
    rows = sum(count_rows(state).values())
    definition = metadata.definitions.get(RECORD_INDEX)
    ordering = definition.ordering if definition is not None else None
    source = key_source(state, layout, rows, definition)
    slices = {s.group.file_id: s for s in metadata.slices(RECORD_INDEX)}
    meter = Meter(RECORD_INDEX, source.pieces * source.passes + len(slices), observer)
    unseen = set(slices)
    for file_id, parts in gather_shards(source.read, layout.file_ids, passes=min(source.passes, len(slices) or 1)):
        unseen.discard(file_id)
        stored = _places(concat_entries(parts), has_ordering=ordering is not None)
        _compare_places(_index_places(metadata, file_id, slices), stored, tally)
        meter.step()
    for file_id in sorted(unseen & slices.keys()):
        _compare_places(_index_places(metadata, file_id, slices), _places(Entries.of({})), tally)
        meter.step()


def _stored_layout(state: TableState, metadata: MetadataTable) -> Layout:
    """The shards as they are. Rows of a data partition without shards have one that is not there."""
    file_ids = tuple(s.group.file_id for s in metadata.slices(RECORD_INDEX))
    partitions = dict.fromkeys(s.group.partition for s in state.latest_slices)
    if all(data_partition_of_group(file_id) is None for file_id in file_ids) and file_ids:
        return Layout(dict.fromkeys(partitions, file_ids), file_ids)
    shards = {p: tuple(f for f in file_ids if data_partition_of_group(f) == p) or (f"?{p}",) for p in partitions}
    lacking = [ids[0] for ids in shards.values() if ids[0].startswith("?")]
    return Layout(shards, (*file_ids, *lacking))


def _index_places(metadata: MetadataTable, file_id: str, slices: Mapping[str, object]) -> pa.Table:
    if file_id not in slices:
        return _places(Entries.of({}))
    merged = _merged(metadata, RECORD_INDEX, file_id)
    entries = Entries(merged.keys, merged.values, Entries.of({}).deletes)
    return _places(entries, has_ordering=merged.has_ordering)


def _places(entries: Entries, *, has_ordering: bool = False) -> pa.Table:
    """Keys, the places that entries name, both together, and the ordering values if there are any."""
    values = entries.values
    if pa.types.is_dictionary(values.type):  # It may hold values that are not used.
        values = values.dictionary.take(values.indices).dictionary_encode()
    decoded = decode_entry_values(values, stored_schema(has_ordering=has_ordering), path=RECORD_INDEX)
    names = [f"{at.partition}/{at.file_id}" if at.partition else at.file_id for at in decoded.locations]
    places = pa.array(names, pa.string()).take(pa.array(decoded.ids))
    keys = entries.keys.cast(pa.string())
    ordering = pa.nulls(len(keys), pa.int64()) if decoded.ordering is None else decoded.ordering
    both = pc.binary_join_element_wise(keys, places, "\0")
    return pa.table({"key": keys, "place": places, "both": both, "ordering": ordering})


def _compare_places(indexed: pa.Table, stored: pa.Table, tally: _Tally) -> None:
    tally.checked += stored.num_rows
    missing = stored.filter(pc.invert(pc.is_in(stored["key"], value_set=_one(indexed["key"]))))
    extra = indexed.filter(pc.invert(pc.is_in(indexed["key"], value_set=_one(stored["key"]))))
    is_shared = pc.is_in(indexed["key"], value_set=_one(stored["key"]))
    other = indexed.filter(pc.and_not(is_shared, pc.is_in(indexed["both"], value_set=_one(stored["both"]))))
    tally.add(MISSING, missing.num_rows, ((key, None, place) for key, place in _rows(missing)))
    tally.add(EXTRA, extra.num_rows, ((key, place, None) for key, place in _rows(extra)))
    tally.add(DIFFERENT, other.num_rows, ((k, place, _place_of(stored, k)) for k, place in _rows(other)))
    _compare_ordering(indexed, stored, tally)
    counts = pc.value_counts(stored["key"])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    tally.add(REPEATED, len(repeated), ((key, None, _place_of(stored, key)) for key in repeated))


def _compare_ordering(indexed: pa.Table, stored: pa.Table, tally: _Tally) -> None:
    """A value in the index may be below that of the row, never above it: the row's updates would be taken for late."""
    known = indexed.filter(indexed["ordering"].is_valid())
    if not known.num_rows:
        return
    rows = pc.index_in(known["both"], value_set=_one(stored["both"]))
    known, theirs = known.filter(rows.is_valid()), stored["ordering"].take(rows.drop_null())
    above = pc.fill_null(pc.greater(known["ordering"], theirs), True)
    pairs = pa.table({"key": known["key"], "ours": known["ordering"], "theirs": theirs}).filter(above)
    tally.add(DIFFERENT, pairs.num_rows, (_ordering_example(*row.values()) for row in pairs.to_pylist()))


def _ordering_example(key: str, ours: int, theirs: int | None) -> tuple[str, str, str]:
    return key, f"ordering value {ours}", f"ordering value {theirs}"


def _rows(table: pa.Table) -> Iterator[tuple[str, str]]:
    for batch in table.select(["key", "place"]).to_batches(max_chunksize=100):
        yield from zip(batch["key"].to_pylist(), batch["place"].to_pylist(), strict=True)


def _place_of(stored: pa.Table, key: str) -> str:
    return " and ".join(stored.filter(pc.equal(stored["key"], key))["place"].to_pylist())


def _one(column: pa.ChunkedArray) -> ArrowArray:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _check_files(state: TableState, metadata: MetadataTable, tally: _Tally, observer: Observer) -> None:
    """The list of files and the folders, as far as files are of completed instants."""
    del observer
    completion_of = state.latest.completion_of
    indexed = {
        partition: {file.name: file.size or 0 for file in files if completion_of(file.instant) is not None}
        for partition, files in read_metadata_files(metadata).items()
    }
    tally.compare(_sizes(indexed), _sizes(listed_files(state)))


def _sizes(files: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    return {
        f"{partition}/{name}" if partition else name: f"{size} bytes"
        for partition, names in files.items()
        for name, size in names.items()
    }


def _check_column_stats(state: TableState, metadata: MetadataTable, tally: _Tally, observer: Observer) -> None:
    """Entries and files: an entry may be wider than its file, never narrower."""
    columns = metadata.definitions[COLUMN_STATS].source_fields
    files = stored_files(state)
    meter = Meter(COLUMN_STATS, len(files), observer)
    found: dict[tuple[str, str], ColumnStats] = {}
    for stats in map_bounded(files, lambda stored: file_stats(stored, columns)):
        meter.step()
        found |= {(each.file_name, each.column): each for each in stats}
    _compare_stats(_stored_stats(metadata, COLUMN_STATS), found, tally)


def _check_partition_stats(state: TableState, metadata: MetadataTable, tally: _Tally, observer: Observer) -> None:
    columns = metadata.definitions[COLUMN_STATS].source_fields
    current = current_files(state)
    wanted = [s for s in stored_files(state) if s.file.name in current.get(s.partition, ())]
    meter = Meter(PARTITION_STATS, len(wanted), observer)
    by_partition: dict[str, list[ColumnStats]] = {}
    for stored, stats in zip(wanted, map_bounded(wanted, lambda s: file_stats(s, columns)), strict=True):
        meter.step()
        by_partition.setdefault(stored.partition, []).extend(stats)
    found = {
        (partition, each.column): each
        for partition, stats in by_partition.items()
        for each in stats_of_files(partition, stats)
    }
    # Of a partition that has no rows any more Hudi leaves statistics behind: there is nothing they could exclude.
    indexed = {key: each for key, each in _stored_stats(metadata, PARTITION_STATS).items() if key[0] in by_partition}
    _compare_stats(indexed, found, tally, is_exact=False)


def _stored_stats(metadata: MetadataTable, partition: str) -> dict[tuple[str, str], ColumnStats]:
    payloads = (payload for payload in _payloads(metadata, partition) if isinstance(payload, ColumnStats))
    return {(each.file_name, each.column): each for each in payloads if not each.is_deleted}


def _compare_stats(
    indexed: Mapping[tuple[str, str], ColumnStats],
    found: Mapping[tuple[str, str], ColumnStats],
    tally: _Tally,
    *,
    is_exact: bool = True,
) -> None:
    """Statistics that may be too narrow are different; those of files must count exactly, others not."""
    shared = indexed.keys() & found.keys()
    counts = _counts if is_exact else _may_hold
    narrow = {k for k in shared if not counts(indexed[k], found[k]) or not _covers(indexed[k], found[k])}
    tally.compare(
        {_label(key): _bounds(stats) if key in narrow else "" for key, stats in indexed.items()},
        {_label(key): _bounds(stats) if key in narrow else "" for key, stats in found.items()},
    )


def _label(key: tuple[str, str]) -> str:
    return f"{key[1]} of {key[0] or 'the table'}"


def _bounds(stats: ColumnStats) -> str:
    return f"{stats.min_value!r} to {stats.max_value!r}, {stats.null_count} of {stats.value_count} null"


def _covers(indexed: ColumnStats, found: ColumnStats) -> bool:
    """Whether no reader leaves rows out that are there."""
    return _is_below(indexed.min_value, found.min_value) and _is_below(found.max_value, indexed.max_value)


def _counts(indexed: ColumnStats, found: ColumnStats) -> bool:
    return (indexed.value_count, indexed.null_count) == (found.value_count, found.null_count)


def _may_hold(indexed: ColumnStats, found: ColumnStats) -> bool:
    """Whether nulls are told of if there are some, and values likewise."""
    has_nulls, has_values = bool(found.null_count), found.value_count != found.null_count
    return (not has_nulls or bool(indexed.null_count)) and (not has_values or indexed.value_count != indexed.null_count)


def _is_below(low: StatValue | None, high: StatValue | None) -> bool:
    """Whether a bound is not above another; unknown ones, and those that readers do not trust, pass."""
    if low is None or high is None or isinstance(low, bytes) or low != low or high != high:
        return True
    try:
        return bool(low <= high)  # type: ignore[operator]
    except TypeError:
        return False


def _check_bloom_filters(state: TableState, metadata: MetadataTable, tally: _Tally, observer: Observer) -> None:
    """Entries and the filters in footers. Keys of entries are hashes: what is extra is told by its key."""
    files = base_files(state)
    meter = Meter(BLOOM_FILTERS, len(files), observer)
    names, stored = {}, {}
    for each, footer in zip(files, map_bounded(files, read_footer), strict=True):
        meter.step()
        if footer.bloom_text is not None:
            key = bloom_key(each.partition, each.file.name)
            names[key], stored[each.path] = each.path, str(hash(footer.bloom_text))
    indexed = {
        names.get(key, key): str(hash(payload.bloom))
        for key, payload in _keyed_payloads(metadata, BLOOM_FILTERS)
        if isinstance(payload, BloomRecord) and not payload.is_deleted
    }
    tally.compare(indexed, stored)


def _payloads(metadata: MetadataTable, partition: str) -> Iterator[object]:
    return (payload for _, payload in _keyed_payloads(metadata, partition))


def _keyed_payloads(metadata: MetadataTable, partition: str) -> Iterator[tuple[str, object]]:
    for file_slice in metadata.slices(partition):
        merged = _merged(metadata, partition, file_slice.group.file_id)
        for key, value in zip(merged.keys.to_pylist(), merged.values.to_pylist(), strict=True):
            yield key, decode_metadata_record(value, stored_schema(), path=partition).payload


def _merged(metadata: MetadataTable, partition: str, file_id: str) -> Merged:
    file_slice = next(s for s in metadata.slices(partition) if s.group.file_id == file_id)
    definition = metadata.definitions.get(COLUMN_STATS)
    return merge_shard(
        metadata.shard(partition, file_id),
        partition,
        has_base=file_slice.base is not None,
        form=Form(definition.version if definition else "V2"),
    )


_Check = Callable[[TableState, MetadataTable, _Tally, Observer], None]
CHECKS: dict[str, _Check] = {
    RECORD_INDEX: _check_record_index,
    FILES: _check_files,
    COLUMN_STATS: _check_column_stats,
    PARTITION_STATS: _check_partition_stats,
    BLOOM_FILTERS: _check_bloom_filters,
}
