"""Leaving out slices that do not have a row with a wanted value of an indexed column."""

from __future__ import annotations

from datetime import date

from lakebed.filter.keys import columns_from_path
from lakebed.filter.predicate import wanted_values
from lakebed.format.metadata.secondary_keys import has_certain_text, secondary_value_text
from lakebed.index.prune import KEYS_MAX, Kept, NotUsed, Query, Slices, counted
from lakebed.index.record.prune import keep_keys
from lakebed.index.secondary.probe import PREFIX as SECONDARY
from lakebed.index.secondary.probe import find_record_keys
from lakebed.metadata import Unusable


def prune_by_secondary_index(query: Query, slices: Slices) -> Kept | NotUsed:
    """The slices of the keys that an index has for the wanted values."""
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
        return keep_keys(query.metadata, keys, slices, f"{definition.name} gave {counted(len(keys), 'key')}")
    return NotUsed("the filter has no equality on " + ", ".join(d.source_fields[0] for d in indexes))


def _has_one_text(value: object, version: str) -> bool:
    """Whether an index has one certain text for a value: doubles depend on the writer's Java, dates on the version."""
    return has_certain_text(value) and (version != "V1" or not isinstance(value, date))
