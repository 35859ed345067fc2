"""delta-rs (`deltalake`) behind the line protocol. Runs on an interpreter of its own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from benchmarks.serving import serve, timed


class DeltalakePeer:
    """What can be asked for; each method is a request."""

    def __init__(self) -> None:
        self.rows: pa.Table | None = None

    def take(self, rows: str) -> dict[str, Any]:
        """Gets the rows of the next write ready, in memory."""
        self.rows = pq.read_table(rows)
        return {}

    def first_load(self, path: str, **_: object) -> dict[str, Any]:
        """Makes a table of the rows."""
        return timed(lambda: write_deltalake(path, self.rows, partition_by=["city"]))

    def upsert(self, path: str, **_: object) -> dict[str, Any]:
        """Opens a table and merges the rows; a key is looked for in its own partition, as lakebed does."""

        def work() -> None:
            merge = DeltaTable(path).merge(
                self.rows, "t.city = s.city AND t.uuid = s.uuid", source_alias="s", target_alias="t"
            )
            merge.when_matched_update_all(predicate="s.ts >= t.ts").when_not_matched_insert_all().execute()

        return timed(work)

    def totals(self, path: str) -> dict[str, Any]:
        """Numbers that tell whether another table has the same rows."""
        found = pa.table(DeltaTable(path).to_pyarrow_table(columns=["ts"]))
        return {"totals": [found.num_rows, pc.sum(found["ts"]).as_py()]}


if __name__ == "__main__":
    serve(DeltalakePeer)
