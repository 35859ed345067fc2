"""Rows that are put on a shelf, split by label, and read again in ranges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakebed.engine import exchange
from lakebed.engine.exchange import Ints, Shelf, lots, runs
from lakebed.storage import open_storage

ROWS = pa.table(
    {
        "id": [f"k{number}" for number in range(300)],
        "city": pa.array(["oslo", "lima", "rome"] * 100).dictionary_encode(),
        "list": [[number, None] if number % 3 else None for number in range(300)],
    }
)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr(exchange, "_BATCH_BYTES", 1_000)
    return Shelf(open_storage(str(tmp_path)), "shelf")


def test_ranges_are_read_as_they_were_put(shelf: Shelf) -> None:
    files = put_parts(shelf)
    found = runs(files)
    assert sorted(found) == list(range(9))
    whole = [f"k{number}" for number in range(300) if number % 10 == 4]
    assert ids(shelf.read(found[4].cut(0, 30))) == whole
    assert ids(shelf.read(found[4].cut(7, 23))) == whole[7:23]
    assert found[4].cut(30, 40) == ()
    (table,) = shelf.read(found[4].cut(10, 20))
    assert table.equals(ROWS.take([number for number in range(100, 200) if number % 10 == 4]))


def test_a_range_is_a_small_part_of_its_file(shelf: Shelf) -> None:
    file = shelf.put(ROWS, ["all"], [0, 300])
    assert len(file.offsets) > 5
    some = file.range(100, 103)
    assert some.bytes < file.bytes / 5
    assert ids(shelf.read([some, file.range(299, 300)])) == ["k100", "k101", "k102", "k299"]


def test_rows_of_a_split_file_come_back_in_their_order(shelf: Shelf) -> None:
    (file, *_) = put_parts(shelf)
    kept = [number for number in range(100) if number % 10 != 9]  # Those that end with 9 have no label.
    assert shelf.read_unsplit(file).equals(ROWS.take(kept))
    assert shelf.put_split(ROWS, lambda _: ()) is None


def test_every_label_is_in_one_lot(shelf: Shelf) -> None:
    files = put_parts(shelf)
    work = lots(files, 4_000)
    labels = [{int(key[-1]) for key in ids(shelf.read(lot))} for lot in work]
    assert 1 < len(work) < 9
    assert sorted(label for each in labels for label in each) == list(range(9))
    assert sum(each.rows for lot in work for each in lot) == 270
    assert len(lots(files, 1)) == 9, "a label is never split, however large"
    assert len(lots(files, 1 << 30)) == 1
    assert lots((), 1) == ()


def put_parts(shelf: Shelf) -> list[exchange.StagedFile]:
    """Three files with a hundred rows each."""
    files = [shelf.put_split(ROWS.slice(first, 100), by_last_digit) for first in (0, 100, 200)]
    return [file for file in files if file is not None]


def by_last_digit(part: pa.Table) -> Iterator[tuple[int, Ints]]:
    digits = np.array([int(key[-1]) for key in part["id"].to_pylist()])
    return ((digit, np.flatnonzero(digits == digit)) for digit in range(9))


def ids(tables: Iterator[pa.Table]) -> list[str]:
    return [key for table in tables for key in table["id"].to_pylist()]
