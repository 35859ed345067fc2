"""Which instants of the metadata table count for a reader that looked at the table a while ago."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.metadata.table import metadata_completions
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage, open_storage
from lakebed.timeline import Timeline

CONFIG = TableConfig(
    {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9"}, "hoodie.properties"
)


def at(number: int) -> InstantTime:
    return InstantTime(f"20300101000000{number:03}")


def done(requested: int, completed: int, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(at(requested), action, State.COMPLETED, at(completed))


def pending(requested: int) -> Instant:
    return Instant(at(requested), Action.COMMIT, State.REQUESTED)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """A table on which the writes at 10 and 20 have completed, and 30 is under way."""
    storage = open_storage(tmp_path)
    for name in (f"{at(10)}_{at(13)}.commit", f"{at(20)}_{at(23)}.commit", f"{at(30)}.commit.requested"):
        storage.create(f".hoodie/timeline/{name}", b"")
    return storage


SEEN = Timeline.of([done(10, 13, Action.COMMIT)])


def counted(storage: Storage, data: Timeline, *instants: Instant) -> set[int]:
    completion_of = metadata_completions(storage, CONFIG, data, Timeline.of(instants))
    return {int(i.requested_at[-3:]) for i in instants if completion_of(i.requested_at) is not None}


def test_a_write_that_completed_later_does_not_count(storage: Storage) -> None:
    assert counted(storage, SEEN, done(10, 12), done(20, 22)) == {10}


def test_nor_does_one_that_was_pending(storage: Storage) -> None:
    both = Timeline.of([done(10, 13, Action.COMMIT), pending(20)])
    assert counted(storage, both, done(10, 12), done(20, 22)) == {10}


def test_nor_does_a_compaction_that_took_it_in(storage: Storage) -> None:
    compaction = done(24, 26, Action.COMMIT)
    assert counted(storage, SEEN, done(10, 12), done(20, 22), compaction) == {10}


def test_nor_do_they_because_of_a_savepoint_on_the_write_that_was_made_since(storage: Storage) -> None:
    data = Timeline.of([done(10, 13, Action.COMMIT), pending(20), done(20, 30, Action.SAVEPOINT)])
    assert counted(storage, data, done(10, 12), done(20, 22), done(24, 26, Action.COMMIT)) == {10}


def test_a_compaction_of_what_was_there_counts_though_it_completed_later(storage: Storage) -> None:
    assert counted(storage, SEEN, done(10, 12), done(14, 16, Action.COMMIT)) == {10, 14}
    assert counted(storage, SEEN, done(10, 12), done(19, 26, Action.COMMIT), done(20, 22)) == {10, 19}


def test_the_build_of_an_index_counts_whenever_it_completed(storage: Storage) -> None:
    assert counted(storage, SEEN, done(10, 12), done(17, 18)) == {10, 17}


def test_a_reader_who_saw_everything_counts_everything(storage: Storage) -> None:
    data = Timeline.of([done(10, 13, Action.COMMIT), done(20, 23, Action.COMMIT), pending(30)])
    compaction = done(24, 26, Action.COMMIT)
    assert counted(storage, data, done(10, 12), done(20, 22), compaction) == {10, 20, 24}
