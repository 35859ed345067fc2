"""Loads index definitions from index.json. An index without a definition is not used: guessing would lose rows."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import CorruptTableError
from lakebed.format.index_definitions import (
    check_index_versions,
    decode_index_definitions,
    is_defined,
    must_be_defined,
    needs_columns,
)
from lakebed.model.config import TableConfig
from lakebed.model.index import IndexDefinition, settled_definitions
from lakebed.storage import Storage

_DEFINED_SINCE = 9
"""First table version whose index.json defines all indexes; before, an index of keys is global and not in it."""


def load_definitions(storage: Storage, config: TableConfig) -> dict[str, IndexDefinition]:
    """Index definitions by metadata-table partition. Raises CorruptTableError if they are lost or cannot be read."""
    found = load_stored(storage, config)
    for name in _expected(config):
        if name not in found:
            raise _broken(storage, config, f"it does not define {name}, which the table has")
    return found


def load_stored(storage: Storage, config: TableConfig) -> dict[str, IndexDefinition]:
    """Like `load_definitions`, but some definitions may be missing; for operations on a single index."""
    path = config.index_definitions_path
    data = storage.find(path)
    try:
        found = decode_index_definitions(data or b"", path=path)
    except CorruptTableError as error:
        raise _broken(storage, config, error.what.removeprefix(f"{path}: ")) from error
    if not found and any(map(is_defined, _named(config))):
        raise _broken(storage, config, "it is not there" if data is None else "it defines no index")
    check_index_versions(found, path=path)
    return settled_definitions(found, config.shared_partitions)


def _named(config: TableConfig) -> tuple[str, ...]:
    """The indexes that a definitions file must define; none if the table has no such file."""
    has_place = "hoodie.table.index.defs.path" in config.properties
    return config.metadata_partitions if has_place and config.version >= _DEFINED_SINCE else ()


def _expected(config: TableConfig) -> tuple[str, ...]:
    """Indexes whose definitions a write depends on."""
    own = {*config.own_partitions}
    return tuple(name for name in _named(config) if must_be_defined(name, is_own=name in own))


def undefined_indexes(config: TableConfig, definitions: Mapping[str, IndexDefinition]) -> tuple[str, ...]:
    """Indexes that are not used, because their definitions are lost and with them their columns."""
    return tuple(n for n in _named(config) if needs_columns(n) and n not in definitions)


def _broken(storage: Storage, config: TableConfig, what: str) -> CorruptTableError:
    return CorruptTableError(
        what,
        path=config.index_definitions_path,
        hint=f"lakebed doctor {storage.url} --repair restores the index definitions; reads with the option "
        "hoodie.metadata.enable=false work without indexes",
    )
