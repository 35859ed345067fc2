"""Changes hoodie.properties under the table lock, atomically and by compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from lakebed.errors import WriteConflictError
from lakebed.format.properties import encode_properties
from lakebed.model.config import TableConfig
from lakebed.storage.confirm import create_file, delete_file, swap_file
from lakebed.timeline.config import BACKUP, PROPERTIES, load_config
from lakebed.transaction.section import Section

_CHECKSUM = ".hoodie/.hoodie.properties.crc"
"""Hadoop's checksum file on local disks; deleted first, because it describes the old bytes."""


def change_config(section: Section, changes: Mapping[str, str]) -> None:
    """Sets properties, for this section and all later ones.

    The file is replaced by compare-and-swap: a process that lost the lock cannot overwrite another's change.
    """
    section.check_lease()
    storage = section.ports.storage
    stored = storage.find_with_etag(PROPERTIES)
    if load_config(storage).properties != section.config.properties:
        raise _changed(storage.url)
    properties = {**section.config.properties, **changes}
    data = encode_config(properties, section.ports.clock.now_ms())
    delete_file(storage, _CHECKSUM)
    if not (
        create_file(storage, PROPERTIES, data) if stored is None else swap_file(storage, PROPERTIES, data, stored[1])
    ):
        raise _changed(storage.url)
    if section.config.path == BACKUP:  # Left by an engine that died while it replaced the file: now it is replaced.
        delete_file(storage, BACKUP)
    section.config = TableConfig(properties, PROPERTIES)


def encode_config(properties: Mapping[str, str], now_ms: int) -> bytes:
    """The bytes of hoodie.properties, with the comments that Java writes first."""
    moment = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    date = moment.strftime("%a %b %d %H:%M:%S UTC %Y")
    return encode_properties(properties, comment=f"Properties saved on {moment:%Y-%m-%dT%H:%M:%S.%fZ}", date=date)


def _changed(url: str) -> WriteConflictError:
    return WriteConflictError(
        f"{url}: another process changed {PROPERTIES} meanwhile", hint="run the call again: it will use the new config"
    )
