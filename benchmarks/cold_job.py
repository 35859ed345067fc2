"""The jobs of `cold`, each run in a process of its own. It imports no more than a user's program would.

    python -m benchmarks.cold_job compile
    python -m benchmarks.cold_job rows LOAD BATCH FOLDER [count]
    python -m benchmarks.cold_job load | upsert ROWS_SQL FOLDER SPARK_OPTIONS

The last line of standard output is a JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = {"key": "uuid", "partition_by": "city", "ordering": "ts"}
_LOOKUPS, _DELETES = 10, 100


class Compilations:
    """How many functions this process compiled, and how many compiling processes it started."""

    def __init__(self) -> None:
        self.functions, self.processes = 0, 0

    def watch(self) -> None:
        """Counts from now on. Loads numba, so nothing is timed in such a process."""
        from numba.core import event

        compilations = self

        class Listener(event.Listener):
            def on_start(self, _event: Any) -> None:
                compilations.functions += 1

            def on_end(self, _event: Any) -> None:
                pass

        event.register("numba:compile", Listener())
        sys.addaudithook(self._hear)

    def _hear(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "subprocess.Popen" and "lakebed.kernels.warm" in map(str, arguments[1]):
            self.processes += 1


def compile_all() -> dict[str, Any]:
    """A warm-up."""
    from lakebed.kernels.warm import warm_up

    done = warm_up()
    assert done is not None
    return {"compiled": done.compiled}


def rows(load: str, batch: str, folder: str, *asked: str) -> dict[str, Any]:
    """The job on two files of rows; with `count`, also what each of its calls compiled."""
    compilations = Compilations()
    if asked:
        compilations.watch()
    by_call, before = {}, 0
    for call in _calls(load, batch, folder):
        by_call[call], before = compilations.functions - before, compilations.functions
    return {"by_call": by_call, "processes": compilations.processes} if asked else {}


def _calls(load: str, batch: str, folder: str) -> Iterator[str]:
    """Makes one call after the other, and names each when it is over."""
    import pyarrow.parquet as pq

    import lakebed

    loaded, later = pq.read_table(load), pq.read_table(batch)
    keys = loaded["uuid"][:_DELETES].to_pylist()
    count = loaded.num_rows + later.num_rows // 2
    table = lakebed.create_table(folder, schema=loaded.schema, table_type="mor", indexes=("record",), **NAMES)
    yield "create"
    table.upsert(loaded)
    yield "first upsert"
    table.upsert(later)
    yield "second upsert"
    _expect(table.to_arrow().num_rows, count)
    yield "read"
    _expect(table.lookup(keys[:_LOOKUPS]).num_rows, _LOOKUPS)
    yield "lookup"
    table.services.compact()
    _expect(sum(len(each.logs) for each in table.files()), 0)
    yield "compaction"
    _expect(table.delete(keys).deleted, len(keys))
    _expect(table.to_arrow().num_rows, count - len(keys))
    yield "delete"


def _expect(found: int, expected: int) -> None:
    """Refuses to take the time of a wrong result."""
    if found != expected:
        raise RuntimeError(f"{found} found, not {expected}")


def load(sql: str, folder: str, options: str) -> dict[str, Any]:
    """Makes a table of the rows that a query gives."""
    import lakebed

    spark = _session(options)
    frame = spark.sql(sql)
    table = lakebed.create_table(
        folder, schema=frame.schema, table_type="mor", indexes=("record",), spark=spark, **NAMES
    )
    table.upsert(frame)
    spark.stop()
    return {}


def upsert(sql: str, folder: str, options: str) -> dict[str, Any]:
    """Upserts the rows that a query gives, as the first thing that the session does."""
    import lakebed

    spark = _session(options)
    table, frame = lakebed.open_table(folder, spark=spark), spark.sql(sql)
    started = time.perf_counter()
    result = table.upsert(frame)
    seconds = time.perf_counter() - started
    spark.stop()
    return {"seconds": seconds, "jobs": result.jobs, "updated": result.updated, "inserted": result.inserted}


def _session(options: str) -> SparkSession:
    import lakebed

    return lakebed.local_session("benchmarks", cores=2, options=json.loads(options))


def _peak_bytes() -> int:
    """The most that this process held in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "compile": compile_all,
    "rows": rows,
    "load": load,
    "upsert": upsert,
}

if __name__ == "__main__":
    answer = JOBS[sys.argv[1]](*sys.argv[2:])
    print(json.dumps({**answer, "peak_bytes": _peak_bytes()}))
