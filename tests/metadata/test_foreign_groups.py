"""File groups of one index in the folder of another: Apache Hudi 1.2 puts them there when it cleans."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed.index.obliged import list_groups
from lakebed.storage import open_storage


def test_groups_of_an_expression_index_among_column_statistics_do_not_count(tmp_path: Path):
    rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
    table = lakebed.create_table(tmp_path / "t", schema=rows.schema, key="id")
    table.upsert(rows)
    folder = tmp_path / "t/.hoodie/metadata/column_stats"
    before = list_groups(open_storage(tmp_path / "t"), ["column_stats"])
    for log in list(folder.glob(".col-stats-*.log.1_*")):
        shutil.copy(log, log.with_name(log.name.replace("col-stats", "expr-index-by-day")))
    assert list_groups(open_storage(tmp_path / "t"), ["column_stats"]) == before
    table = lakebed.open_table(tmp_path / "t")
    table.upsert([{"id": "c", "n": 3}])
    assert table.to_arrow(["id"], where="n = 3")["id"].to_pylist() == ["c"]
    assert table.indexes.validate("column_stats").is_sound
