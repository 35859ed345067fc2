"""The table configuration file: loaded, encoded, written anew."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache

from lakebed.errors import CorruptTableError, InvalidInputError, StorageUnavailableError
from lakebed.format.properties import check_table_checksum, decode_properties, encode_properties
from lakebed.model.config import TableConfig
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, delete_file, swap_file

PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
CHECKSUM = ".hoodie/.hoodie.properties.crc"
"""Hadoop's checksum file on local disks; deleted first, because it describes the old bytes."""
_TRIES = 5
"""How often `rewrite_config` tries; only a process that lost the lock can make one try fail."""


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
    """Writes the file again with the same properties, so that a compare-and-swap on the version before it fails.

    A torn file is replaced by its backup.
    """
    for _ in range(_TRIES):
        stored = storage.find_with_etag(PROPERTIES)
        data = encode_config(load_config(storage).properties, now_ms)
        delete_file(storage, CHECKSUM)
        if (
            create_file(storage, PROPERTIES, data)
            if stored is None
            else swap_file(storage, PROPERTIES, data, stored[1])
        ):
            return
    raise StorageUnavailableError(
        f"{storage.url}: {PROPERTIES} changed {_TRIES} times while this process held the table lock",
        hint="another engine changes it without the lock: stop that, then run the call again",
    )
