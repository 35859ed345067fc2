"""The index of record keys: lookups and writes find the rows of a key through it, without naming its kind.

Functions for many keys at once are in `key_batches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakebed.index.record.definition import find_ordering, ordering_numbers
from lakebed.index.record.entries import ShardSizing
from lakebed.index.record.probe import RECORD_INDEX as KEY_INDEX
from lakebed.index.record.probe import KeyShards, find_locations, is_partitioned
from lakebed.index.record.probe import record_index_files as key_index_files
from lakebed.metadata import MetadataTable
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId
from lakebed.model.index import IndexDefinition, IndexWindow
from lakebed.options import IndexOptions
from lakebed.table import TableState

__all__ = [
    "KEY_INDEX",
    "KeyShards",
    "ShardSizing",
    "find_key_index",
    "find_locations",
    "find_ordering",
    "is_global",
    "is_partitioned",
    "is_shared",
    "key_index_files",
    "key_window",
    "keys_are_indexed",
    "ordering_numbers",
    "outside_window",
    "sizing_of",
]


def find_key_index(state: TableState) -> MetadataTable | None:
    """The metadata table, if keys can be located through it."""
    metadata = state.metadata
    return metadata if isinstance(metadata, MetadataTable) and metadata.has(KEY_INDEX) else None


def keys_are_indexed(partitions: Iterable[str]) -> bool:
    """Whether the index of keys is among these partitions of the metadata table."""
    return KEY_INDEX in partitions


def is_shared(config: TableConfig) -> bool:
    """Whether the table has an index of keys that other engines use too."""
    return KEY_INDEX in config.shared_partitions


def is_global(definitions: Mapping[str, IndexDefinition]) -> bool:
    """Whether keys are unique in the whole table rather than per partition; true if there is no index."""
    definition = definitions.get(KEY_INDEX)
    return definition is None or not definition.is_partitioned


def key_window(definitions: Mapping[str, IndexDefinition]) -> IndexWindow | None:
    """The window of partitions whose keys are indexed; None if all are."""
    definition = definitions.get(KEY_INDEX)
    return definition.window if definition is not None else None


def outside_window(state: TableState) -> list[FileGroupId]:
    """File groups of data partitions outside the window of the index."""
    window = key_window(state.definitions)
    if window is None:
        return []
    return [s.group for s in state.latest_slices if not window.holds(s.group.partition)]


def sizing_of(definitions: Mapping[str, IndexDefinition], options: IndexOptions) -> ShardSizing:
    """How many shards the index gets, and how large they may grow."""
    return ShardSizing(*(options.global_sizing if is_global(definitions) else options.partitioned_sizing))
