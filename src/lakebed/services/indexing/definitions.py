"""Derives index definitions for a table whose index.json is lost or broken.

Each kind knows what its definition can be derived from. The columns of secondary and expression indexes, and the window
of an index of keys, are recorded nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.format.index_definitions import needs_columns, salvage_index_definitions
from lakebed.index.keys import KEY_INDEX
from lakebed.index.kinds import kind_of
from lakebed.metadata import MetadataTable
from lakebed.model.index import IndexDefinition
from lakebed.table import TableState


@dataclass(frozen=True, slots=True)
class Derived:
    """Definitions of indexes, and indexes whose columns are `unknown`.

    An index `without_window` has lost it: its definition covers no partition, which is useless but harmless.
    """

    definitions: Mapping[str, IndexDefinition]
    unknown: tuple[str, ...] = ()
    without_window: tuple[str, ...] = ()


def defined_state(state: TableState) -> tuple[TableState, Derived, CorruptTableError | None]:
    """The table with its definitions, stored or derived, and what is wrong with the stored ones, if anything."""
    try:
        metadata = state.metadata
        if isinstance(metadata, MetadataTable) and metadata.has(KEY_INDEX):
            metadata.check_defined(KEY_INDEX)
        return state, Derived(state.definitions), None
    except CorruptTableError as error:
        if error.path != state.config.index_definitions_path:
            raise
        derived = derive_definitions(state)
        return state.with_definitions(derived.definitions), derived, error


def derive_definitions(state: TableState) -> Derived:
    """Definitions of the indexes in the table config: as stored if readable, else derived."""
    config = state.config
    known = salvage_index_definitions(state.storage.find(config.index_definitions_path) or b"")
    found = {name: each for name, each in known.items() if name in config.metadata_partitions}
    missing = [name for name in config.metadata_partitions if name not in found]
    derived = {name: kind_of(name).derive(state) for name in missing}
    found |= {name: each for name, each in derived.items() if each is not None}
    without_window = tuple(name for name, each in derived.items() if each is not None and each.window is not None)
    unknown = tuple(name for name in missing if needs_columns(name))
    return Derived(found, unknown, without_window)
