from __future__ import annotations

import itertools

from lakebed.model.config import TableConfig
from lakebed.storage import Storage, open_storage
from lakebed.timeline import load_timeline

CONFIG = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9"})
FOLDER = ".hoodie/timeline"
_fresh = itertools.count()


def table(*names: str) -> Storage:
    storage = open_storage(f"memory://active-{next(_fresh)}")
    for name in names:
        storage.create(f"{FOLDER}/{name}", b"")
    return storage


class CompletesMeanwhile:
    """A storage in which instants complete between the first and the second listing."""

    def __init__(self, inner: Storage, *names: str) -> None:
        self._inner, self._names, self._lists = inner, names, 0

    def list_names(self, folder: str) -> tuple[str, ...]:
        listed = self._inner.list_names(folder)
        self._lists += 1
        if self._lists == 1:
            for name in self._names:
                self._inner.create(f"{FOLDER}/{name}", b"")
        return listed


def test_foreign_names_are_left_out() -> None:
    storage = table(
        "20260101000000001_20260101000000002.commit", "readme.txt", "20260101000000003.schemacommit.requested"
    )
    assert [i.requested_at for i in load_timeline(storage, CONFIG)] == ["20260101000000001"]


def test_what_completes_while_listing_is_still_pending() -> None:
    storage = table("20260101000000001_20260101000000002.commit", "20260101000000003.commit.requested")
    racing = CompletesMeanwhile(storage, "20260101000000003_20260101000000009.commit")
    timeline = load_timeline(racing, CONFIG)
    assert [i.requested_at for i in timeline.completed()] == ["20260101000000001"]
    assert [i.requested_at for i in timeline.pending()] == ["20260101000000003"]


def test_an_earlier_completion_that_the_first_listing_missed_counts() -> None:
    storage = table("20260101000000001_20260101000000009.commit")
    racing = CompletesMeanwhile(storage, "20260101000000003_20260101000000005.commit")
    assert [i.requested_at for i in load_timeline(racing, CONFIG)] == ["20260101000000003", "20260101000000001"]
