"""Checks that Spark is new enough, and that its Python workers have the same Python and lakebed as the driver.

Spark starts its workers with `python3` from the PATH unless PYSPARK_PYTHON names another interpreter, and reads that
variable once, when the session begins. On a local master the driver can see and set the interpreter. Workers of a
cluster or behind Spark Connect are on other machines, so a task asks them, once per session.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyarrow as pa

from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_SPARK = (4, 0)
_DEFAULT = "python3"
"""The interpreter that Spark starts by default."""
_SIGNS = ("No module named", "PACKAGE_NOT_INSTALLED", "PYTHON_VERSION_MISMATCH", "Cannot run program")
"""Texts in Spark's errors by which we know that a worker could not run our code at all."""
_ABOUT = "import sys, pyarrow; from lakebed.engine.workers import about_python; sys.stdout.write(about_python())"

_ready: WeakSet[Any] = WeakSet()
"""Sessions whose workers are known to run lakebed."""


def ensure_workers(spark: SparkSession) -> None:
    """Makes sure that the Python workers of a session can run lakebed; InvalidInputError if they cannot.

    On a local master without PYSPARK_PYTHON, they are told to run the interpreter of this process.
    """
    if spark in _ready:
        return
    check_spark(spark.version)
    if _is_local(spark):
        _settle_local(spark.sparkContext)
    else:
        _ask_worker(spark)
    _ready.add(spark)


def check_spark(found: str) -> None:
    """Raises InvalidInputError for a version of Spark that is too old."""
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_SPARK:
        wanted = ".".join(map(str, OLDEST_SPARK))
        raise InvalidInputError(
            f"lakebed needs Spark {wanted} or newer, and this is Spark {found}",
            hint=f"run: pip install 'pyspark>={wanted}'; or use to_arrow() and Arrow rows, which need no Spark",
        )


def about_python() -> str:
    """The versions that workers and driver must share."""
    ours = sys.modules["lakebed"].__version__  # Loaded before any of its modules, and above them: no import.
    return f"Python {sys.version_info[0]}.{sys.version_info[1]}, lakebed {ours}"


def _is_local(spark: SparkSession) -> bool:
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    return not is_remote and str(spark.sparkContext.master).partition("[")[0] == "local"


def _settle_local(context: Any) -> None:
    if context.pythonExec == _DEFAULT and sys.executable:
        context.pythonExec = sys.executable
    if context.pythonExec == sys.executable:
        return
    found = _describe(context.pythonExec)
    if found != about_python():
        raise _wrong_python(f"{context.pythonExec}: {found}")


@cache
def _describe(executable: str) -> str:
    """The versions of an interpreter on this machine, or the last line of its error."""
    try:
        run = subprocess.run([executable, "-c", _ABOUT], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    lines = (run.stdout if run.returncode == 0 else run.stderr).splitlines()
    return lines[-1] if lines else "it says nothing"


def _ask_worker(spark: SparkSession) -> None:
    try:
        answer = spark.range(0, 1, 1, 1).mapInArrow(_answer, "python string").toArrow()
    except Exception as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise
        raise _wrong_python("it cannot run lakebed's code") from error
    [found] = answer["python"].to_pylist()
    if found != about_python():
        raise _wrong_python(found)


def _answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([about_python()] * len(batch))], names=["python"])


def _wrong_python(found: str) -> InvalidInputError:
    return InvalidInputError(
        f"Spark's workers run another Python ({found}) than this process ({about_python()})",
        hint=f"set PYSPARK_PYTHON before the session starts: here to {sys.executable}; for a cluster or a Spark "
        "Connect server to the interpreter there, with the same versions of Python and lakebed",
    )
