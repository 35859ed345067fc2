"""Upserts and deletes of a key, one after the other, on every kind of table: Apache Hudi leaves the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from delete_sequences import DESIGNS, OUTCOMES, Design, batches, seen

SMALL_FILES = {"default": {}, "none": {"hoodie.parquet.small.file.limit": "1"}}


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_each_kind_of_table_has_the_rows_of_apache_hudi(tmp_path: Path, design: Design) -> None:
    sequences = tuple(OUTCOMES)
    play(tmp_path / "t", design, sequences, SMALL_FILES["none"])
    found = seen(lakebed.open_table(tmp_path / "t").to_arrow())
    assert {key: found.get(key) for key in sequences} == {key: design.outcome(key) for key in sequences}


@pytest.mark.parametrize("small_files", SMALL_FILES)
@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_rows_are_counted_as_inserted_and_deleted_if_they_come_and_go(
    tmp_path: Path, design: Design, small_files: str
) -> None:
    play(tmp_path / "t", design, tuple(OUTCOMES), SMALL_FILES[small_files])
    table = lakebed.open_table(tmp_path / "t")
    if design.indexes:
        found = table.indexes.validate("record_index")
        assert found.is_sound, found.examples
    before = seen(table.to_arrow())
    if design.table_type == "mor":
        table.services.compact()
        assert seen(table.to_arrow()) == before == seen(table.to_arrow(mode="read_optimized"))


def play(path: Path, design: Design, sequences: tuple[str, ...], options: dict[str, str]) -> None:
    """Carries the sequences out, and compares the counts of each result with what can be seen."""
    lakebed.create_table(path, **design.create_arguments)
    table = lakebed.open_table(path, options=options)
    before: set[str] = set()
    for step in range(3):
        upserted, deleted = batches(sequences, step)
        for write, rows in ((table.upsert, upserted), (table.delete, deleted.select(["id"]))):
            result = write(rows)
            after = {*seen(table.to_arrow())}
            assert (result.inserted, result.deleted) == (len(after - before), len(before - after))
            before = after
