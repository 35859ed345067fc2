from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.storage import open_storage
from lakebed.table.transactions import open_ports
from lakebed.transaction.heartbeats import Timing
from lakebed.write.handover import (
    drop_rows,
    hand_over,
    kept_alive,
    list_staged,
    new_folder,
    sweep_rows,
    take_over,
)

ROWS = pa.table({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32())})


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


def test_a_sweep_takes_what_jobs_left_that_gave_no_sign_of_life(tmp_path: Path) -> None:
    """As long as heartbeats may miss, by the clock of the store, and not a day."""
    storage, dead, alive, beating = open_storage(tmp_path), new_folder(), new_folder(), new_folder()
    timing = Timing(heartbeat_seconds=60, heartbeat_misses=2)
    for folder, ages in {dead: (900, 200), alive: (900, 150), beating: (900,)}.items():
        for age in ages:
            path = hand_over(storage, folder, ROWS.schema, ROWS.to_batches())
            assert path is not None
            grow_old(tmp_path / path, age)
    (tmp_path / beating / "task.beat").touch()
    markers = tmp_path / ".hoodie/.temp/20261116093000000/MARKERS.type"
    markers.parent.mkdir()
    markers.write_text("DIRECT")
    os.utime(markers, (0, 0))
    sweep_rows(open_ports(storage, {}), timing)
    assert not (tmp_path / dead).exists()
    assert len(storage.list(alive)) == 2
    assert len(storage.list(beating)) == 2
    assert markers.exists()
    assert {staged.folder: staged.files for staged in list_staged(storage).values()} == {alive: 2, beating: 1}


def test_a_task_that_takes_long_keeps_its_job_alive(tmp_path: Path) -> None:
    storage, folder = open_storage(tmp_path), new_folder()
    ports, timing = open_ports(storage, {}), Timing(heartbeat_seconds=0.05, heartbeat_misses=2)
    path = hand_over(storage, folder, ROWS.schema, ROWS.to_batches())
    assert path is not None
    grow_old(tmp_path / path, 900)
    with kept_alive(ports, timing, folder):
        while not list((tmp_path / folder).glob("*.beat")):
            threading.Event().wait(0.01)
        sweep_rows(ports, Timing())
        assert (tmp_path / path).exists()
    assert [file.name for file in (tmp_path / folder).iterdir()] == [Path(path).name]
    sweep_rows(ports, Timing())
    assert not (tmp_path / folder).exists()


def grow_old(path: Path, seconds: float) -> None:
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))
