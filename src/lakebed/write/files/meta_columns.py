"""The five meta columns of rows that are about to be written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.write.rows.columns import joined
from lakebed.write.rows.numbered import numbered_texts


def meta_columns(rows: pa.Table, instant: str, task_number: int, file_name: str) -> list[pa.Array]:
    """Commit time, sequence number, record key, partition path and file name of prepared rows of one partition.

    Sequence numbers count from 0, so one call must serve all rows that a task writes. What is alike in all rows comes
    as a dictionary of one value.
    """
    count = rows.num_rows
    return [
        _constant(instant, count),
        numbered_texts(f"{instant}_{task_number}_", 0, count),
        joined(rows[RECORD_KEY]),
        _constant(_partition(rows), count),
        _constant(file_name, count),
    ]


def _partition(rows: pa.Table) -> str:
    paths = rows[PARTITION_PATH].unique()
    assert len(paths) <= 1, paths
    return str(paths[0].as_py()) if len(paths) else ""


def _constant(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([text], pa.string()))
