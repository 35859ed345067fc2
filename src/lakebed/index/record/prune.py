"""File pruning by the record index: keeps slices that have a wanted key."""

from __future__ import annotations

import numpy as np

from lakebed.format.arrow import text_array
from lakebed.index.prune import Kept, NotUsed, Query, Slices, counted, serving, wanted_keys
from lakebed.index.record.key_locations import locate_everywhere
from lakebed.index.record.probe import RECORD_INDEX, find_locations
from lakebed.index.record.shard_cache import default_cache
from lakebed.metadata import MetadataTable
from lakebed.model.files import FileGroupId

SINGLE_LOOKUPS_MAX = 200
"""Maximum number of keys to look up one by one, without key tables."""


def prune_by_record_index(query: Query, slices: Slices) -> Kept | NotUsed:
    """Keeps the slices that have a wanted key."""
    keys = wanted_keys(query)
    if isinstance(keys, NotUsed):
        return keys
    metadata = serving(query, RECORD_INDEX, latest_only=True)
    if isinstance(metadata, NotUsed):
        return metadata
    return keep_keys(metadata, keys, slices, f"looked up {counted(len(keys), 'key')}")


def keep_keys(metadata: MetadataTable, keys: tuple[str, ...], slices: Slices, reason: str) -> Kept:
    """Keeps the slices that have one of these keys, and those outside the window of the index."""
    groups = _groups_by_probe(metadata, keys) if len(keys) > SINGLE_LOOKUPS_MAX else _groups_by_lookup(metadata, keys)
    definition = metadata.definitions.get(RECORD_INDEX)
    window = definition.window if definition is not None else None
    if window is None:
        return Kept(tuple(s for s in slices if s.group in groups), reason)
    kept = tuple(s for s in slices if s.group in groups or not window.holds(s.group.partition))
    return Kept(kept, f"{reason}, keeping partitions before {window.first!r}, which are not indexed")


def _groups_by_lookup(metadata: MetadataTable, keys: tuple[str, ...]) -> set[FileGroupId]:
    places = (place for found in find_locations(metadata, keys).values() for place in found)
    return {FileGroupId(place.partition, place.file_id) for place in places}


def _groups_by_probe(metadata: MetadataTable, keys: tuple[str, ...]) -> set[FileGroupId]:
    _, found = locate_everywhere(metadata, text_array(keys), cache=default_cache())
    return {found.places[code] for code in np.unique(found.codes)}
