"""The table's configuration while another process replaces it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import InvalidInputError, StorageUnavailableError
from lakebed.format.properties import encode_properties
from lakebed.storage import Outcome, Storage, open_storage
from lakebed.storage.confirm import swap_file
from lakebed.timeline.config import BACKUP, PROPERTIES, load_config, rewrite_config


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


def etag_of(storage: Storage) -> str:
    found = storage.find_with_etag(PROPERTIES)
    assert found is not None
    return found[1]


def test_a_rewritten_config_says_the_same_and_refuses_who_read_it_before(storage: Storage) -> None:
    storage.create(PROPERTIES, properties("table"))
    before = load_config(storage).properties
    etag = etag_of(storage)
    rewrite_config(storage, now_ms=1_720_000_000_000)
    assert load_config(storage).properties == before
    assert not swap_file(storage, PROPERTIES, properties("late"), etag)
    assert load_config(storage).name == "table"


@pytest.mark.parametrize("torn", [None, b"hoodie.table.checksum=1\nhoodie.table.name=torn\n"])
def test_a_config_that_was_left_torn_or_away_is_rewritten_from_its_backup(storage: Storage, torn: bytes | None) -> None:
    storage.create(BACKUP, properties("table"))
    if torn is not None:
        storage.create(PROPERTIES, torn)
    rewrite_config(storage, now_ms=1_720_000_000_000)
    storage.delete(BACKUP)
    assert load_config(storage).name == "table"


def test_a_config_that_never_stays_as_it_was_read_is_not_rewritten_for_ever(storage: Storage) -> None:
    class Restless:
        """A storage on which somebody else always is faster."""

        url = storage.url

        def __getattr__(self, name: str) -> object:
            return getattr(storage, name)

        def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
            return Outcome.REFUSED

    storage.create(PROPERTIES, properties("table"))
    with pytest.raises(StorageUnavailableError, match="changed 5 times"):
        rewrite_config(Restless(), now_ms=1_720_000_000_000)  # type: ignore[arg-type]
