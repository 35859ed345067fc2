"""Changes hoodie.properties under the table lock, atomically and by compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import WriteConflictError
from lakebed.model.config import TableConfig
from lakebed.storage.confirm import create_file, delete_file, swap_file
from lakebed.timeline.config import BACKUP, CHECKSUM, PROPERTIES, encode_config, load_config
from lakebed.transaction.section import Section


def change_config(section: Section, changes: Mapping[str, str]) -> None:
    """Sets properties, for this section and all later ones.

    The file is replaced by compare-and-swap: a process that lost the lock cannot overwrite another's change. Nor can it
    change a table that others have written to since: whoever takes the lock over writes the file anew, so that the
    version read here, under the lease, no longer matches.
    """
    section.announce_config()
    storage = section.ports.storage
    stored = storage.find_with_etag(PROPERTIES)
    section.check_lease()
    if load_config(storage).properties != section.config.properties:
        raise _changed(storage.url)
    properties = {**section.config.properties, **changes}
    data = encode_config(properties, section.ports.clock.now_ms())
    delete_file(storage, CHECKSUM)
    if not (
        create_file(storage, PROPERTIES, data) if stored is None else swap_file(storage, PROPERTIES, data, stored[1])
    ):
        raise _changed(storage.url)
    if section.config.path == BACKUP:  # Left by an engine that died while it replaced the file: now it is replaced.
        delete_file(storage, BACKUP)
    section.config = TableConfig(properties, PROPERTIES)


def _changed(url: str) -> WriteConflictError:
    return WriteConflictError(
        f"{url}: another process changed {PROPERTIES} meanwhile", hint="run the call again: it will use the new config"
    )
