"""The files that a process has listed or added last are not listed again, and are never taken for what they are not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.metadata import MetadataTable, files
from lakebed.metadata.files import Listing, find_listing, note_listing
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import cache
from lakebed.storage.cache import FileCache
from lakebed.table import open_handle

MERGED = {"hoodie.metadata.log.compaction.enable": "true", "hoodie.metadata.log.compaction.blocks.threshold": "2"}
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


def made(path: Path, kind: str = "mor") -> lakebed.Table:
    return lakebed.create_table(
        path, schema=SCHEMA, key="id", partition_by="city", ordering="ts", table_type=kind, indexes=("record",)
    )


def rows(ts: int, *numbers: int) -> list[dict[str, Any]]:
    return [{"id": f"k{n}", "city": "abc"[n % 3], "ts": ts} for n in numbers]


def listed(path: Path, known: FileCache | None = None) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """The files that the metadata table lists: as a new process finds them, or as this one does."""
    metadata = open_handle(path).state().metadata
    assert isinstance(metadata, MetadataTable)
    metadata.cache = metadata.cache if known is None else known
    return files.list_metadata_files(metadata)


def in_order(found: dict[str, tuple[BaseFile | LogFile, ...]]) -> list[tuple[str, list[BaseFile | LogFile]]]:
    return [(name, sorted(of_name, key=lambda file: file.name)) for name, of_name in found.items()]


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each time that all entries were read."""
    found: list[int] = []
    live_files = files.live_files
    monkeypatch.setattr(files, "live_files", lambda shard: found.append(1) or live_files(shard))
    return found


def test_what_this_process_added_is_not_listed_again(tmp_path: Path, listings: list[int]) -> None:
    made(tmp_path / "t").upsert(rows(1, 1, 2, 3))
    listings.clear()
    for ts in range(2, 6):
        lakebed.open_table(tmp_path / "t").upsert(rows(ts, ts, ts + 1))
    assert not listings
    assert listed(tmp_path / "t") == listed(tmp_path / "t", FileCache())


def test_what_another_process_added_since_is_added(tmp_path: Path, listings: list[int]) -> None:
    made(tmp_path / "t").upsert(rows(1, 1, 2, 3))
    before = listed(tmp_path / "t")
    mine = cache._TABLES.copy()
    cache._TABLES.clear()
    lakebed.open_table(tmp_path / "t").upsert(rows(9, 100, 101))
    cache._TABLES.clear()
    cache._TABLES.update(mine)
    listings.clear()
    found = listed(tmp_path / "t")
    assert not listings
    assert found == listed(tmp_path / "t", FileCache()) != before


def test_a_write_that_does_not_come_to_be_adds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(1, 1, 2, 3))
    before = listed(tmp_path / "t")

    def fail(*_: object) -> None:
        raise RuntimeError

    noted = files.note_added
    monkeypatch.setattr("lakebed.commit.entries.note_added", lambda *args: (noted(*args), fail()))
    with pytest.raises(RuntimeError):
        table.upsert(rows(2, 1, 5))
    monkeypatch.undo()
    assert listed(tmp_path / "t") == before
    table.upsert(rows(3, 1, 5))
    assert in_order(listed(tmp_path / "t")) == in_order(listed(tmp_path / "t", FileCache()))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "upsert", "compact", "overwrite", "drop", "clean", "rollback"]),
        st.sets(st.integers(0, 15), min_size=1, max_size=5),
        st.booleans(),
    ),
    min_size=3,
    max_size=9,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(steps=STEPS, kind=st.sampled_from(["cow", "mor"]), merges_logs=st.booleans())
def test_histories(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[int], bool]], kind: str, merges_logs: bool
) -> None:
    """Whatever is done, by a process that remembers or by one that does not: files are those that entries name."""
    path = tmp_path_factory.mktemp("history") / "t"
    made(path, kind)
    options = {"hoodie.clean.commits.retained": "1"} | (MERGED if merges_logs else {})
    for ts, (verb, numbers, forgets) in enumerate(steps):
        if forgets:
            cache._TABLES.clear()
        table = lakebed.open_table(path, options=options)
        if verb == "upsert" or not len(table.timeline.commits()):
            table.upsert(rows(ts, *sorted(numbers)))
        else:
            with suppress(lakebed.LakebedError):  # The metadata table may be compacted past what is rolled back.
                _run(table, verb, rows(ts, *sorted(numbers)))
        assert in_order(listed(path)) == in_order(listed(path, FileCache())), verb


def _run(table: lakebed.Table, verb: str, given_rows: Sequence[dict[str, Any]]) -> None:
    match verb:
        case "compact":
            table.services.compact()
        case "overwrite":
            table.overwrite(given_rows)
        case "drop":
            table.delete_partitions("a")
        case "clean":
            table.services.clean()
        case _:
            table.rollback(table.timeline.commits()[-1].requested_at)


def test_a_listing_counts_for_its_own_files_and_newer_ones() -> None:
    kept = FileCache(1000)
    one, two = InstantTime("20260101000000001"), InstantTime("20260101000000002")
    known = Listing((("f1", one), ("f2", None)), {})
    assert find_listing(kept, (("f1", one),)) is None
    note_listing(kept, known)
    assert find_listing(kept, (("f1", one), ("f2", two))) is known
    assert find_listing(kept, (("f1", one), ("f2", two), ("f3", two))) is known
    assert find_listing(kept, (("f1", one),)) is None, "its own file does not count"
    assert find_listing(kept, (("f1", two), ("f2", two))) is None, "another file of that name"
    assert find_listing(kept, (("f2", two),)) is None, "it was compacted"
    assert find_listing(kept, (("f1", one), ("f0", two), ("f2", two))) is None, "an older one came in between"
    note_listing(kept, Listing((), {"": (LogFile("f", "f", one, 1, ""),) * 10}))
    assert find_listing(kept, (("f1", one),)) is None, "too many to be kept"
