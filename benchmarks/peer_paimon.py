"""pypaimon behind the line protocol. Runs on an interpreter of its own.

A table with a primary key merges on read: an upsert sorts the rows and adds them as files, without looking for keys.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema

from benchmarks.serving import serve, timed

NAME = "bench.rows"
OPTIONS = {"bucket": "1", "sequence.field": "ts"}


class PaimonPeer:
    """What can be asked for; each method is a request. `path` is a warehouse with one table."""

    def __init__(self) -> None:
        self.rows = pa.table({})

    def take(self, rows: str) -> dict[str, Any]:
        """Gets the rows of the next write ready, in memory."""
        self.rows = pq.read_table(rows)
        return {}

    def first_load(self, path: str, **_: object) -> dict[str, Any]:
        """Makes a table of the rows."""

        def work() -> None:
            catalog = CatalogFactory.create({"warehouse": path})
            catalog.create_database("bench", ignore_if_exists=False)
            schema = Schema.from_pyarrow_schema(
                self.rows.schema, partition_keys=["city"], primary_keys=["city", "uuid"], options=OPTIONS
            )
            catalog.create_table(NAME, schema, ignore_if_exists=False)
            self.write(path)

        return timed(work)

    def upsert(self, path: str, **_: object) -> dict[str, Any]:
        """Opens a table and writes the rows to it."""
        return timed(lambda: self.write(path))

    def write(self, path: str) -> None:
        """One commit with the rows."""
        builder = CatalogFactory.create({"warehouse": path}).get_table(NAME).new_batch_write_builder()
        writing, committing = builder.new_write(), builder.new_commit()
        writing.write_arrow(self.rows)
        committing.commit(writing.prepare_commit())
        writing.close()
        committing.close()

    def totals(self, path: str) -> dict[str, Any]:
        """Numbers that tell whether another table has the same rows."""
        builder = CatalogFactory.create({"warehouse": path}).get_table(NAME).new_read_builder()
        builder = builder.with_projection(["ts"])
        found = builder.new_read().to_arrow(builder.new_scan().plan().splits())
        return {"totals": [found.num_rows, pc.sum(found["ts"]).as_py()]}


if __name__ == "__main__":
    serve(PaimonPeer)
