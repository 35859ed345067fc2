from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.storage import open_storage
from lakebed.write.handover import drop_rows, hand_over, new_folder, sweep_rows, take_over

ROWS = pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32())})
DAY_MS = 86_400_000


@dataclass
class StoppedClock:
    ms: int

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def test_rows_come_in_the_order_of_the_files(tmp_path: Path) -> None:
    storage, folder = open_storage(tmp_path), new_folder()
    columns = pa.schema({"k": pa.string(), "n": pa.int64()})
    paths = [hand_over(storage, folder, columns, ROWS.slice(first, 1).to_batches()) for first in (1, 0)]
    assert hand_over(storage, folder, columns, []) is None
    read = take_over(storage, paths, columns).read_all()
    assert read.schema == columns
    assert read.to_pydict() == {"k": ["b", "a"], "n": [2, 1]}


def test_a_value_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    storage, folder = open_storage(tmp_path), new_folder()
    with pytest.raises(InvalidInputError, match="'k'"):
        hand_over(storage, folder, pa.schema({"k": pa.int64()}), ROWS.to_batches())
    assert storage.list("", recursive=True) == ()


def test_rows_that_were_swept_away_end_the_write(tmp_path: Path) -> None:
    storage, folder = open_storage(tmp_path), new_folder()
    path = hand_over(storage, folder, ROWS.schema, ROWS.to_batches())
    drop_rows(storage, folder)
    with pytest.raises(WriteConflictError, match="are gone"):
        take_over(storage, [path], ROWS.schema).read_all()
    assert not (tmp_path / folder).exists()


def test_a_sweep_takes_what_jobs_left_that_were_silent_for_a_day(tmp_path: Path) -> None:
    storage, dead, alive = open_storage(tmp_path), new_folder(), new_folder()
    now_ms = 100 * DAY_MS
    ages = {dead: (3 * DAY_MS, DAY_MS + 1000), alive: (3 * DAY_MS, DAY_MS - 1000)}
    for folder, of_files in ages.items():
        for age in of_files:
            path = hand_over(storage, folder, ROWS.schema, ROWS.to_batches())
            os.utime(tmp_path / path, ((now_ms - age) / 1000,) * 2)
    markers = tmp_path / ".hoodie/.temp/20261116093000000/MARKERS.type"
    markers.parent.mkdir()
    markers.write_text("DIRECT")
    os.utime(markers, (0, 0))
    sweep_rows(storage, StoppedClock(now_ms))
    assert not (tmp_path / dead).exists()
    assert len(storage.list(alive)) == 2
    assert markers.exists()
