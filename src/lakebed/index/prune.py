"""File pruning: values and helpers that all kinds of index share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.keys import columns_from_path, possible_keys
from lakebed.filter.predicate import Predicate, columns_of, wanted_values
from lakebed.filter.ranges import Ranges, may_match
from lakebed.metadata import MetadataTable, Unusable
from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.model.words import RECORD_KEY

Slices = tuple[FileSlice, ...]
WANTED_KEYS_MAX = 10_000
"""Maximum number of keys to look up; with more, a scan is cheaper."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, as far as pruning needs it. `is_latest`: it reads the newest snapshot, which indexes describe."""

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
    """The slices that an index could not exclude, and how it decided."""

    slices: Slices
    reason: str


def ranged_columns(query: Query) -> list[tuple[str, pa.DataType]]:
    """The filter's columns that have statistics: not nested, and not read from the path."""
    named = columns_of(query.predicate) - set(columns_from_path(query.config, query.schema))
    fields = (query.schema.field(name) for name in sorted(named))
    return [(field.name, field.type) for field in fields if not pa.types.is_nested(field.type)]


def serving(query: Query, partition: str, *, latest_only: bool = False) -> MetadataTable | NotUsed:
    """The metadata table, if an index can serve the query; with `latest_only`, only for the newest snapshot."""
    if isinstance(query.metadata, Unusable):
        return NotUsed("there is no usable metadata table")
    if partition in query.metadata.stale:
        return NotUsed(query.metadata.stale[partition])
    if not query.metadata.has(partition):
        return NotUsed("the table has none")
    if latest_only and not query.is_latest:
        return NotUsed("it describes the newest snapshot only")
    return query.metadata


def wanted_keys(query: Query) -> tuple[str, ...] | NotUsed:
    """The record keys that rows must have to match."""
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
    return keys if len(keys) <= WANTED_KEYS_MAX else NotUsed(f"the filter names more than {WANTED_KEYS_MAX} keys")


def _has_one_spelling(kind: pa.DataType) -> bool:
    """Whether all writers, of any version and options, spell values of a type alike in record keys."""
    checks = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    return any(check(kind) for check in checks)


def keep_partitions(query: Query, slices: Slices, paths: list[str], ranges: dict[str, Ranges], reason: str) -> Kept:
    """The slices of partitions whose ranges may match; `ranges` are in the order of `paths`."""
    matching = may_match(query.predicate, ranges, len(paths))
    kept = {path for path, matches in zip(paths, matching, strict=True) if matches}
    return Kept(tuple(s for s in slices if s.group.partition in kept), reason)


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def masked(slices: Slices, kept: np.ndarray) -> Slices:
    """The slices that are kept."""
    return tuple(file_slice for file_slice, keep in zip(slices, kept, strict=True) if keep)


def align(ranges: pa.Table, names: list[str]) -> Ranges:
    """Ranges in the order of `names`; names without a range get nulls, which exclude nothing."""
    places = pc.index_in(pa.array(names, pa.string()), value_set=ranges["file_name"].combine_chunks())
    taken = ranges.take(places).combine_chunks()
    arrays = [taken[column].combine_chunks() for column in ("min", "max", "null_count", "value_count")]
    return Ranges(*arrays)
