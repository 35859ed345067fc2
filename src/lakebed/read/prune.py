"""Prunes file slices that cannot contain a matching row. One function per index, tried in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import text_array
from lakebed.format.metadata.secondary_keys import has_certain_text, secondary_value_text
from lakebed.metadata import MetadataTable, Unusable
from lakebed.metadata.bloom_filters import BLOOM_FILTERS, find_blooms
from lakebed.metadata.column_stats import COLUMN_STATS, PARTITION_STATS, find_column_ranges
from lakebed.metadata.record_index import RECORD_INDEX, find_locations
from lakebed.metadata.secondary_index import PREFIX as SECONDARY
from lakebed.metadata.secondary_index import find_record_keys
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.words import RECORD_KEY
from lakebed.read.explain import PruneStep
from lakebed.read.file_slice import KEYS_FEW as LOOKUP_KEYS_MAX
from lakebed.read.filter.predicate import Predicate, columns_of, wanted_values
from lakebed.read.filter.ranges import Ranges, may_match
from lakebed.read.keys import possible_keys
from lakebed.read.partitions import columns_from_path, typed_partition_values

Slices = tuple[FileSlice, ...]
KEYS_MAX = 10_000
"""Maximum number of keys to look up; with more, a scan is cheaper."""
_PATHS = "partition path"
_CHANGED = "it was dropped or built anew while the table was read"
KEYS_FEW = 200
"""Maximum number of keys to look up one by one."""


@dataclass(frozen=True, slots=True)
class Query:
    """The query, as far as pruning needs it. `is_latest`: the newest snapshot, which indexes describe."""

    config: TableConfig
    schema: pa.Schema
    predicate: Predicate
    metadata: MetadataTable | Unusable
    is_latest: bool


@dataclass(frozen=True, slots=True)
class NotUsed:
    """Why an index was not used for a query."""

    reason: str


@dataclass(frozen=True, slots=True)
class Kept:
    """The slices that an index could not exclude, and why."""

    slices: Slices
    reason: str


Pruner = Callable[[Query, Slices], "Kept | NotUsed"]


def prune_slices(query: Query, slices: Slices) -> tuple[Slices, tuple[PruneStep, ...]]:
    """The slices that may contain a matching row, and what each index contributed.

    If an index was dropped meanwhile and its files are missing, it is not used.
    """
    kept, steps = _prune(query, slices)
    if isinstance(query.metadata, Unusable) or not any(step.used and step.index != _PATHS for step in steps):
        return kept, steps
    dropped = query.metadata.find_dropped()
    if not dropped:
        return kept, steps
    query.metadata.do_without(dropped, _CHANGED)
    return _prune(query, slices)


def _prune(query: Query, slices: Slices) -> tuple[Slices, tuple[PruneStep, ...]]:
    steps = []
    for name, pruner in PRUNERS:
        before = len(slices)
        outcome = _ask(pruner, query, slices) if slices else NotUsed("no file slice is left to exclude")
        if isinstance(outcome, Kept):
            slices = outcome.slices
        steps.append(PruneStep(name, isinstance(outcome, Kept), outcome.reason, before, len(slices)))
    return slices, tuple(steps)


def _ask(pruner: Pruner, query: Query, slices: Slices) -> Kept | NotUsed:
    try:
        return pruner(query, slices)
    except CorruptTableError:
        if isinstance(query.metadata, MetadataTable) and query.metadata.has_changed():
            return NotUsed(_CHANGED)
        raise


def few_keys(query: Query, steps: tuple[PruneStep, ...]) -> frozenset[str] | None:
    """The keys of all rows that can match, if the record index was asked for them and they are few; else None."""
    keys = _wanted_keys(query)
    asked = any(step.index == RECORD_INDEX and step.used for step in steps)
    is_few = asked and not isinstance(keys, NotUsed) and 0 < len(keys) <= LOOKUP_KEYS_MAX
    return frozenset(keys) if is_few and not isinstance(keys, NotUsed) else None


def _by_partition_path(query: Query, slices: Slices) -> Kept | NotUsed:
    if not query.config.partition_fields:
        return NotUsed("the table is not partitioned")
    filtered = columns_of(query.predicate) & set(query.config.partition_fields)
    if not filtered:
        return NotUsed("the filter names no partition column")
    paths = sorted({file_slice.group.partition for file_slice in slices})
    values = typed_partition_values(paths, query.config, query.schema)
    ranges = {name: _exact(array) for name, array in values.items()}
    if not ranges.keys() & filtered:
        return NotUsed(f"paths do not spell the values of {', '.join(sorted(filtered))}")
    return _keep_partitions(query, slices, paths, ranges, f"by values of {', '.join(sorted(filtered))} in paths")


def _by_partition_stats(query: Query, slices: Slices) -> Kept | NotUsed:
    metadata = _serving(query, PARTITION_STATS, latest_only=True)
    if isinstance(metadata, NotUsed):
        return metadata
    if metadata.has(COLUMN_STATS):
        # Another engine's may lack files of a write that overtook its own; those of files exclude as much.
        return NotUsed("column_stats exclude the same, file by file")
    paths = sorted({file_slice.group.partition for file_slice in slices})
    ranges = {}
    for column, kind in _ranged_columns(query):
        table = find_column_ranges(metadata, PARTITION_STATS, column, kind)
        table = table.filter(pc.fill_null(table["is_tight_bound"], False))  # Others are no bound on today's files.
        if table.num_rows:
            ranges[column] = _align(table, paths)
    if not ranges:
        return NotUsed("it has no ranges of the filter's columns")
    return _keep_partitions(query, slices, paths, ranges, f"by ranges of {', '.join(sorted(ranges))} per partition")


def _by_column_stats(query: Query, slices: Slices) -> Kept | NotUsed:
    metadata = _serving(query, COLUMN_STATS)
    if isinstance(metadata, NotUsed):
        return metadata
    names = [path.rpartition("/")[2] for file_slice in slices for path in file_slice.paths]
    ranges = {}
    for column, kind in _ranged_columns(query):
        table = find_column_ranges(metadata, COLUMN_STATS, column, kind)
        if table.num_rows:
            ranges[column] = _align(table, names)
    if not ranges:
        return NotUsed("it has no ranges of the filter's columns")
    matching = may_match(query.predicate, ranges, len(names))
    owner = np.repeat(np.arange(len(slices)), [len(file_slice.paths) for file_slice in slices])
    # A slice goes only if every file of it is excluded: the newest file that a row has values from cannot be, since it
    # has no ranges for columns that it does not carry.
    kept = np.zeros(len(slices), bool)
    kept[owner[matching]] = True
    return Kept(_masked(slices, kept), f"by ranges of {', '.join(sorted(ranges))} per file")


def _by_record_index(query: Query, slices: Slices) -> Kept | NotUsed:
    keys = _wanted_keys(query)
    if isinstance(keys, NotUsed):
        return keys
    metadata = _serving(query, RECORD_INDEX, latest_only=True)
    if isinstance(metadata, NotUsed):
        return metadata
    return _keep_keys(metadata, keys, slices, f"looked up {_counted(len(keys), 'key')}")


def _by_secondary_index(query: Query, slices: Slices) -> Kept | NotUsed:
    if isinstance(query.metadata, Unusable):
        return NotUsed("there is no usable metadata table")
    indexes = [
        d for name, d in query.metadata.definitions.items() if name.startswith(SECONDARY) and query.metadata.has(name)
    ]
    if not indexes:
        return NotUsed("the table has none")
    if not query.is_latest:
        return NotUsed("it describes the newest snapshot only")
    from_path = columns_from_path(query.config, query.schema)
    for definition in indexes:
        if definition.source_fields[0] in from_path:
            continue
        values = wanted_values(query.predicate, definition.source_fields[0])
        if values is None or len(values) > KEYS_MAX:
            continue
        if not all(_has_one_text(value, definition.version) for value in values):
            return NotUsed(f"writers spell the wanted values of {definition.source_fields[0]} differently")
        keys = find_record_keys(query.metadata, definition.name, [secondary_value_text(value) for value in values])
        return _keep_keys(query.metadata, keys, slices, f"{definition.name} gave {_counted(len(keys), 'key')}")
    return NotUsed("the filter has no equality on " + ", ".join(d.source_fields[0] for d in indexes))


def _has_one_text(value: object, version: str) -> bool:
    """Whether an index has one certain text for a value: doubles depend on the writer's Java, dates on the version."""
    return has_certain_text(value) and (version != "V1" or not isinstance(value, date))


def _by_expression_index(query: Query, slices: Slices) -> Kept | NotUsed:
    del slices
    if isinstance(query.metadata, Unusable):
        return NotUsed("there is no usable metadata table")
    if not any(name.startswith("expr_index_") for name in query.metadata.ready):
        return NotUsed("the table has none")
    # Its values come from the writer's engine: time zone and letter case rules need not be those of this reader.
    return NotUsed("lakebed cannot tell under which time zone and locale it was built")


def _by_bloom_filters(query: Query, slices: Slices) -> Kept | NotUsed:
    keys = _wanted_keys(query)
    if isinstance(keys, NotUsed):
        return keys
    metadata = _serving(query, BLOOM_FILTERS)
    if isinstance(metadata, NotUsed):
        return metadata
    plain = [(s.group.partition, s.base.name) for s in slices if s.base is not None and not s.logs]
    blooms = find_blooms(metadata, plain)
    kept = [
        s.base is None or bool(s.logs) or s.base.name not in blooms or any(map(blooms[s.base.name].might_contain, keys))
        for s in slices
    ]
    return Kept(
        _masked(slices, np.array(kept, bool)),
        f"tried {_counted(len(keys), 'key')} on {_counted(len(blooms), 'filter')}",
    )


PRUNERS: tuple[tuple[str, Pruner], ...] = (
    (_PATHS, _by_partition_path),
    ("partition_stats", _by_partition_stats),
    ("record_index", _by_record_index),
    ("secondary_index", _by_secondary_index),
    ("expression_index", _by_expression_index),
    ("column_stats", _by_column_stats),
    ("bloom_filters", _by_bloom_filters),
)


def _ranged_columns(query: Query) -> list[tuple[str, pa.DataType]]:
    """The filter's columns to which statistics apply: not those whose value comes from the path."""
    named = columns_of(query.predicate) - set(columns_from_path(query.config, query.schema))
    fields = (query.schema.field(name) for name in sorted(named))
    return [(field.name, field.type) for field in fields if not pa.types.is_nested(field.type)]


def _serving(query: Query, partition: str, *, latest_only: bool = False) -> MetadataTable | NotUsed:
    if isinstance(query.metadata, Unusable):
        return NotUsed("there is no usable metadata table")
    if partition in query.metadata.stale:
        return NotUsed(query.metadata.stale[partition])
    if not query.metadata.has(partition):
        return NotUsed("the table has none")
    if latest_only and not query.is_latest:
        return NotUsed("it describes the newest snapshot only")
    return query.metadata


def _wanted_keys(query: Query) -> tuple[str, ...] | NotUsed:
    direct = wanted_values(query.predicate, RECORD_KEY)
    if direct is not None:
        keys = tuple(str(value) for value in direct)
    else:
        fields = {name: wanted_values(query.predicate, name) for name in query.config.key_fields}
        if not fields or any(values is None for values in fields.values()):
            return NotUsed("the filter has no equality on the record key")
        uncertain = [name for name in fields if not _has_one_spelling(query.schema.field(name).type)]
        if uncertain:
            return NotUsed(f"writers spell values of {', '.join(uncertain)} differently in record keys")
        keys = possible_keys(query.config, {name: values or () for name, values in fields.items()})
    return keys if len(keys) <= KEYS_MAX else NotUsed(f"the filter names more than {KEYS_MAX} keys")


def _has_one_spelling(kind: pa.DataType) -> bool:
    """Whether all writers, of whatever version and options, spell values of a type alike in record keys."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    return any(check(kind) for check in checks)


def _keep_keys(metadata: MetadataTable, keys: tuple[str, ...], slices: Slices, reason: str) -> Kept:
    groups = _groups_by_probe(metadata, keys) if len(keys) > KEYS_FEW else _groups_by_lookup(metadata, keys)
    definition = metadata.definitions.get(RECORD_INDEX)
    window = definition.window if definition is not None else None
    if window is None:
        return Kept(tuple(s for s in slices if s.group in groups), reason)
    kept = tuple(s for s in slices if s.group in groups or not window.holds(s.group.partition))
    return Kept(kept, f"{reason}, keeping partitions before {window.first!r}, which it does not know")


def _groups_by_lookup(metadata: MetadataTable, keys: tuple[str, ...]) -> set[FileGroupId]:
    places = (place for found in find_locations(metadata, keys).values() for place in found)
    return {FileGroupId(place.partition, place.file_id) for place in places}


def _groups_by_probe(metadata: MetadataTable, keys: tuple[str, ...]) -> set[FileGroupId]:
    # Imported here: a few keys need no compiled code.
    from lakebed.metadata.key_locations import locate_everywhere
    from lakebed.metadata.shard_cache import default_cache

    _, found = locate_everywhere(metadata, text_array(keys), cache=default_cache())
    return {found.places[code] for code in np.unique(found.codes)}


def _keep_partitions(query: Query, slices: Slices, paths: list[str], ranges: dict[str, Ranges], reason: str) -> Kept:
    matching = may_match(query.predicate, ranges, len(paths))
    kept = {path for path, matches in zip(paths, matching, strict=True) if matches}
    return Kept(tuple(s for s in slices if s.group.partition in kept), reason)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _masked(slices: Slices, kept: np.ndarray) -> Slices:
    return tuple(file_slice for file_slice, keep in zip(slices, kept, strict=True) if keep)


def _exact(values: pa.Array) -> Ranges:
    """Ranges that hold one value each; where that is null, nothing is known of them."""
    null_count = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    return Ranges(values, values, null_count, pa.repeat(pa.scalar(1, pa.int64()), len(values)))


def _align(ranges: pa.Table, names: list[str]) -> Ranges:
    """Ranges in the order of `names`; names without a range get nulls, which exclude nothing."""
    places = pc.index_in(pa.array(names, pa.string()), value_set=ranges["file_name"].combine_chunks())
    taken = ranges.take(places).combine_chunks()
    arrays = [taken[column].combine_chunks() for column in ("min", "max", "null_count", "value_count")]
    return Ranges(*arrays)
