"""The table's configuration while another process replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import InvalidInputError
from lakebed.format.properties import encode_properties
from lakebed.storage import Storage, open_storage
from lakebed.timeline.config import BACKUP, PROPERTIES, load_config


def properties(name: str) -> bytes:
    given = {"hoodie.table.name": name, "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9"}
    return encode_properties(given, comment="test", date="today")


class Replaced:
    """A storage whose config comes back from its backup right after it was found missing."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.url = storage.url

    def find(self, path: str) -> bytes | None:
        found = self.storage.find(path)
        if path == PROPERTIES and found is None:
            self.storage.create(PROPERTIES, properties("new"))
            self.storage.delete(BACKUP)
        return found


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def test_the_backup_counts_while_the_config_is_away(storage: Storage) -> None:
    storage.create(BACKUP, properties("old"))
    assert load_config(storage).name == "old"


def test_a_config_that_came_back_meanwhile_is_found(storage: Storage) -> None:
    storage.create(BACKUP, properties("old"))
    assert load_config(Replaced(storage)).name == "new"  # type: ignore[arg-type]


def test_a_torn_config_gives_way_to_its_backup(storage: Storage) -> None:
    storage.create(PROPERTIES, b"hoodie.table.na")
    storage.create(BACKUP, properties("old"))
    assert load_config(storage).name == "old"


def test_a_changed_config_is_seen(storage: Storage) -> None:
    storage.create(PROPERTIES, properties("one"))
    assert load_config(storage).name == "one"
    storage.replace(PROPERTIES, properties("two"))
    assert load_config(storage).name == "two"


def test_no_config_is_no_table(storage: Storage) -> None:
    with pytest.raises(InvalidInputError, match="not a Hudi table"):
        load_config(storage)
