"""Jobs as users start them: a script with a session of its own, run by an interpreter that is not on the PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.engine.session import check_spark, ensure_java_home
from lakebed.errors import InvalidInputError

SOURCE = Path(__file__).parents[2] / "src"
PEER = Path(__file__).parents[2] / ".interop" / "venv" / "lib"

SESSION = """
import sys
import lakebed
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
path = sys.argv[1]
rows = spark.createDataFrame([("a", "oslo", 1), ("b", "lima", 1)], "id string, city string, ts long")
options = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
}
"""
JOB = """
table = lakebed.create_table(path, schema=rows.schema, key="id", ordering="ts", table_type="mor", spark=spark)
print(table.upsert(rows).inserted, table.upsert(rows).updated, table.to_spark(columns=["id"]).count())
lakebed.register(spark)
rows.write.format("lakebed").options(**options).mode("append").save(path)
print(spark.read.format("lakebed").load(path).count())
"""
ATTEMPTS = """
import pyarrow as pa

table = lakebed.create_table(path, schema=rows.schema, key="id", ordering="ts", table_type="mor", spark=spark)
table.upsert(pa.table({"id": ["a"], "city": ["oslo"], "ts": [1]}))
table.upsert(pa.table({"id": ["a"], "city": ["oslo"], "ts": [2]}))
for attempt in (
    lambda: lakebed.register(spark), lambda: table.upsert(rows), lambda: table.to_spark(),
    lambda: table.services.on_spark(), lambda: lakebed.local_session(),
):
    try:
        attempt()
        print("ok")
    except lakebed.InvalidInputError as error:
        print(error)
print(len(table.timeline.commits()))
"""


def run_job(folder: Path, code: str, **environment: str) -> str:
    """What a script prints that starts with nothing but a system's PATH."""
    script = folder / "job.py"
    script.write_text(SESSION + code)
    path = [environment.pop("first", ""), str(SOURCE)]
    known = {
        "HOME": str(folder),
        "JAVA_HOME": str(ensure_java_home()),
        "JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"],
        "LAKEBED_CACHE_DIR": os.environ["LAKEBED_CACHE_DIR"],
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    run = subprocess.run(
        [sys.executable, script, folder / "table"],
        env=known | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.spark
def test_a_plain_job_finds_its_interpreter(tmp_path: Path) -> None:
    """Workers run what runs the job, though `python3` on the PATH is another one, or there is none."""
    assert run_job(tmp_path, JOB).split() == ["2", "2", "2", "2"]


@pytest.mark.spark
def test_an_interpreter_without_lakebed_is_refused_at_once(tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    said = run_job(tmp_path, ATTEMPTS, PYSPARK_PYTHON=str(bare))
    assert said.count("Spark's workers run another Python") == 4
    assert said.count(f"{bare}: ModuleNotFoundError: No module named") == 4
    assert said.count("hint: set PYSPARK_PYTHON before the session starts") == 4
    assert said.endswith("ok\n2\n")


@pytest.mark.spark
def test_another_interpreter_with_lakebed_is_kept(tmp_path: Path) -> None:
    """One that was chosen stays: here a wrapper, which says so in the environment of what it runs."""
    chosen = tmp_path / "chosen-python"
    chosen.write_text(f'#!/bin/sh\nCHOSEN=yes exec "{sys.executable}" "$@"\n')
    chosen.chmod(0o755)
    asks = """
import os
from pyspark.sql.functions import udf

lakebed.register(spark)
print(spark.range(1).select(udf(lambda: os.environ.get("CHOSEN"))()).collect()[0][0])
"""
    assert run_job(tmp_path, asks, PYSPARK_PYTHON=str(chosen)) == "yes\n"


@pytest.mark.parametrize("version", ["3.5.7", "3.4.1", "2.4.8"])
def test_an_older_spark_is_refused(version: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"needs Spark 4.0 or newer, and this is Spark {version}"):
        check_spark(version)
    for new in ("4.0.0", "4.1.0.dev1", "10.0.0"):
        check_spark(new)


@pytest.mark.spark
@pytest.mark.interop
def test_every_way_to_an_older_spark_is_refused(tmp_path: Path) -> None:
    """The PySpark 3.5 that Apache Hudi runs on, before ours in the search path."""
    [packages] = PEER.glob("python*/site-packages")
    older = tmp_path / "older"
    older.mkdir()
    for name in ("pyspark", "py4j"):
        (older / name).symlink_to(packages / name)
    said = run_job(tmp_path, ATTEMPTS, first=str(older))
    assert said.count("lakebed needs Spark 4.0 or newer, and this is Spark 3.5") == 5
    assert said.count("hint: run: pip install 'pyspark>=4.0'") == 5
    assert said.endswith("\n2\n")
