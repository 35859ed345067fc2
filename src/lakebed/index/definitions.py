"""The metadata table of a table whose definitions of indexes are lost or broken."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import CorruptTableError
from lakebed.metadata import MetadataTable, find_metadata_table
from lakebed.model.index import IndexDefinition
from lakebed.table import TableState


def metadata_of(state: TableState, definitions: Mapping[str, IndexDefinition]) -> MetadataTable:
    """The metadata table, with these definitions in the place of those that are stored."""
    found = find_metadata_table(state.storage, state.config, state.timeline, definitions)
    if not isinstance(found, MetadataTable):
        raise CorruptTableError(found.reason, path=state.config.index_definitions_path)
    return found
