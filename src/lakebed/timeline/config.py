"""The table configuration file: loaded, encoded, written anew."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.properties import check_table_checksum, decode_properties, encode_properties
from lakebed.model.config import TableConfig
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, delete_file, swap_file

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
CHECKSUM = ".hoodie/.hoodie.properties.crc"
"""Hadoop's checksum file on local disks; deleted first, because it describes the old bytes."""


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


def encode_config(properties: Mapping[str, str], now_ms: int) -> bytes:
    """The bytes of hoodie.properties, with the comments that Java writes first."""
    moment = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    date = moment.strftime("%a %b %d %H:%M:%S UTC %Y")
    return encode_properties(properties, comment=f"Properties saved on {moment:%Y-%m-%dT%H:%M:%S.%fZ}", date=date)


def rewrite_config(storage: Storage, now_ms: int) -> None:
    """Writes the file anew with the same properties: a compare-and-swap on the version before it fails from now on."""
    while True:
        stored = storage.find_with_etag(PROPERTIES)
        config = decode_config(stored[0], PROPERTIES) if stored is not None else load_config(storage)
        data = encode_config(config.properties, now_ms)
        delete_file(storage, CHECKSUM)
        if stored is None and create_file(storage, PROPERTIES, data):
            return
        if stored is not None and swap_file(storage, PROPERTIES, data, stored[1]):
            return
