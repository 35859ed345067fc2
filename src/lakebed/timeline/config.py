"""Loads the table configuration file."""

from __future__ import annotations

from functools import lru_cache

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.properties import check_table_checksum, decode_properties
from lakebed.model.config import TableConfig
from lakebed.storage import Storage

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"


def load_config(storage: Storage) -> TableConfig:
    """The table's configuration; from its backup while another engine is replacing the file."""
    for path in (PROPERTIES, BACKUP, PROPERTIES):  # Again: the writer may have been done between both.
        data = storage.find(path)
        if data is not None:
            try:
                return decode_config(data, path)
            except CorruptTableError:
                if path == BACKUP or storage.find(BACKUP) is None:
                    raise
    raise InvalidInputError(
        f"{storage.url} is not a Hudi table: there is no {PROPERTIES}",
        hint="give the folder that holds `.hoodie`; check the path for typing errors",
    )


def has_config(storage: Storage) -> bool:
    """Whether there is a table."""
    return storage.find(PROPERTIES) is not None or storage.find(BACKUP) is not None


@lru_cache(maxsize=64)
def decode_config(data: bytes, path: str) -> TableConfig:
    """Decodes a configuration file. Cached, because every section reads the file and it hardly ever changes."""
    properties = decode_properties(data, path=path)
    check_table_checksum(properties, path=path)
    return TableConfig(properties, path)
