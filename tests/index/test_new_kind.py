"""A kind of index that only the tests define lives through everything that a table does, without a change in `src/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from index.distinct_counts import PARTITION, DistinctCounts, gather
from lakebed.api import Table, create_table, open_table
from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.index.data_files import StoredFile
from lakebed.index.facts import FileFacts
from lakebed.index.kinds import added_kind
from lakebed.index.wanted import Wanted
from lakebed.model.index import IndexDefinition

CITIES = ("oslo", "lima", "rome")
WHERE = "tip = 3.0"
OPTIONS = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


class Gathered(DistinctCounts):
    """Refuses to read a file of a write again: tasks have gathered what is to be known of it."""

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        raise AssertionError(f"{stored.path} was read again")


@pytest.fixture
def gathered() -> Iterator[None]:
    """The kind is known, and files that were written are not read again."""
    with added_kind(Gathered()):
        yield


def rows(first: int, count: int, ts: int = 1) -> pa.Table:
    """Rows in three cities; nobody tips in lima."""
    numbers = range(first, first + count)
    tips = [None if CITIES[n % 3] == "lima" else float(n % 7) for n in numbers]
    return pa.table(
        {
            "id": [f"k{n:03d}" for n in numbers],
            "city": [CITIES[n % 3] for n in numbers],
            "ts": pa.array([ts] * count, pa.int64()),
            "fare": [n / 2 for n in numbers],
            "tip": pa.array(tips, pa.float64()),
        }
    )


def new_table(path: Path, table_type: str, indexes: tuple[str, ...]) -> Table:
    """A table whose column statistics know nothing of tips."""
    schema = rows(0, 1).schema
    table = create_table(
        path, schema=schema, key="id", partition_by="city", ordering="ts", table_type=table_type, indexes=indexes
    )
    table = open_table(path, options=OPTIONS)
    table.upsert(rows(0, 60))
    table.indexes.create("column_stats", on="fare", rebuild=True)
    return table


def check(table: Table) -> None:
    """The index says what the files say, and a read by it gives the rows that a read without it gives."""
    found = table.indexes.validate(PARTITION)
    assert found.is_sound, found.examples
    assert found.checked >= len(table.files())
    everything = table.to_arrow()
    expected = everything.filter(pc.equal(everything["tip"], 3.0))
    ids = sorted(table.to_arrow(columns=["id"], where=WHERE)["id"].to_pylist())
    assert ids == sorted(expected["id"].to_pylist())


def step(table: Table, where: str = WHERE) -> Any:
    return next(each for each in table.explain(where=where).steps if each.index == PARTITION)


@pytest.mark.usefixtures("gathered")
@pytest.mark.parametrize(
    ("table_type", "indexes"), [("cow", ()), ("cow", ("record",)), ("mor", ()), ("mor", ("record", "bloom"))]
)
def test_a_kind_of_the_tests_is_kept_by_whatever_happens_to_a_table(
    tmp_path: Path, table_type: str, indexes: tuple[str, ...]
) -> None:
    table = new_table(tmp_path / "t", table_type, indexes)
    created = table.indexes.create(PARTITION, on="tip")
    assert (created.kind, created.columns, created.state) == (PARTITION, ("tip",), "ready")
    check(table)
    used = step(table)
    assert used.used
    assert used.slices_after < used.slices_before
    assert "tip" in used.reason
    assert not step(table, "fare = 3.0").used

    table.upsert(rows(50, 30, ts=2))
    check(table)
    table.delete([f"k{n:03d}" for n in range(20, 26)])
    check(table)
    table.upsert(rows(40, 3, ts=3).select(["id", "city", "ts", "fare"]), partial=True)
    check(table)
    kept = table.savepoint()
    before = sorted(table.to_arrow(columns=["id", "ts"]).to_pylist(), key=str)

    undone = table.upsert(rows(0, 12, ts=4)).instant
    table.rollback(undone)
    check(table)
    table.insert(rows(100, 12))
    if table_type == "mor":
        table.upsert(rows(0, 6, ts=5))
        table.services.log_compact()
        check(table)
        assert table.services.compact() is not None
        check(table)
    assert table.services.cluster(order_by="fare") is not None
    check(table)
    assert step(table).slices_after < step(table).slices_before

    table.restore(kept)
    assert sorted(table.to_arrow(columns=["id", "ts"]).to_pylist(), key=str) == before
    check(table)
    table.delete_savepoint(kept)
    for ts in range(6, 9):
        table.upsert(rows(0, 30, ts=ts))
        if table_type == "mor":
            table.services.compact()
    keep_one = open_table(tmp_path / "t", options={**OPTIONS, "hoodie.clean.commits.retained": "1"})
    assert keep_one.services.clean() is not None
    check(keep_one)
    assert not [finding for finding in keep_one.doctor() if PARTITION in str(finding)]

    table.indexes.drop(PARTITION)
    assert PARTITION not in {info.name for info in table.indexes.list()}
    assert not [*(tmp_path / "t" / ".hoodie" / "metadata" / PARTITION).glob("*")]
    assert not step(table).used
    table.upsert(rows(0, 3, ts=20))


@pytest.mark.usefixtures("gathered")
def test_many_rows_of_a_merge_on_read_table_are_counted_as_they_are_encoded(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "mor", ("record",))
    table.indexes.create(PARTITION, on=("tip", "fare"))
    table.upsert(rows(0, 30_000, ts=2))
    check(table)


@pytest.mark.usefixtures("gathered")
def test_a_rebuilt_index_keeps_its_columns(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "cow", ())
    table.indexes.create(PARTITION, on="tip")
    assert table.indexes.create(PARTITION, rebuild=True).columns == ("tip",)
    check(table)


class Disturbed(DistinctCounts):
    """While a task gathers, something else happens, once."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._events, self.completed = [happens], 0

    def wants(self, partition: str, definitions: Mapping[str, IndexDefinition]) -> Wanted | None:
        wanted = super().wants(partition, definitions)
        return replace(wanted, gather=self._gather) if wanted is not None else None

    def _gather(self, tables: Sequence[pa.Table]) -> bytes:
        while self._events:
            self._events.pop()()
        return gather(tables)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        self.completed += 1
        return super().complete(facts, stored, definitions)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_write_is_in_an_index_that_got_other_columns_meanwhile(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path / "t", table_type, ())
    other = open_table(tmp_path / "t")
    with added_kind(DistinctCounts()):
        table.indexes.create(PARTITION, on="fare")
    kind = Disturbed(lambda: other.indexes.create(PARTITION, on="tip", kind=PARTITION, rebuild=True))
    with added_kind(kind):
        table.upsert(rows(0, 2, ts=2))
        assert kind.completed
        check(table)


def test_a_process_that_does_not_know_the_kind_refuses_to_write_past_it(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "cow", ())
    with added_kind(DistinctCounts()):
        table.indexes.create(PARTITION, on="tip")
    with pytest.raises(UnsupportedTableError, match=PARTITION):
        table.upsert(rows(0, 3, ts=2))
    assert table.to_arrow(where=WHERE).num_rows


def test_an_unknown_kind_cannot_be_created(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "cow", ())
    with pytest.raises(InvalidInputError, match="there is no index kind"):
        table.indexes.create("typical_values")
