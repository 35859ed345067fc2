"""lakebed behind the line protocol, so that it is measured as its peers are: in process, or on Spark with `--spark`."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lakebed
from benchmarks.batches import KEY, ORDERING, PARTITION
from benchmarks.serving import serve, timed


class LakebedPeer:
    """What can be asked for; each method is a request."""

    def __init__(self, spark: SparkSession | None) -> None:
        self.spark = spark
        self.rows: Any = None
        self.schema = pa.schema([])

    def take(self, rows: str) -> dict[str, Any]:
        """Gets the rows of the next write ready: in memory, or as a DataFrame that is yet to be read."""
        self.schema = pq.read_schema(rows)
        self.rows = pq.read_table(rows) if self.spark is None else self.spark.read.parquet(rows)
        return {}

    def first_load(self, path: str, table_type: str, record_index: bool) -> dict[str, Any]:
        """Makes a table of the rows."""

        def work() -> None:
            table = lakebed.create_table(
                path,
                schema=self.schema,
                key=KEY,
                partition_by=PARTITION,
                ordering=ORDERING,
                table_type=table_type,
                indexes=("record",) if record_index else (),
            )
            table.bulk_insert(self.rows)

        return timed(work)

    def upsert(self, path: str, **_: object) -> dict[str, Any]:
        """Opens a table and upserts the rows."""
        return timed(lambda: lakebed.open_table(path).upsert(self.rows))

    def totals(self, path: str) -> dict[str, Any]:
        """Numbers that tell whether another table has the same rows."""
        found = lakebed.open_table(path).to_arrow(columns=[ORDERING])
        return {"totals": [found.num_rows, pc.sum(found[ORDERING]).as_py()]}


def make_session() -> SparkSession:
    """Two cores and 3 GB, as the sessions of the peers."""
    return lakebed.local_session("benchmarks", cores=2, options={"spark.driver.memory": "3g"})


if __name__ == "__main__":
    serve(lambda: LakebedPeer(make_session() if "--spark" in sys.argv else None))
