"""Writes from DataFrames over Spark Connect: this process has no JVM, and asks a server for all that Spark does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.spark_servers import LOOPBACK, free_port, run_checks, server

pytestmark = [pytest.mark.spark, pytest.mark.interop]

CLIENT = Path(__file__).parents[2] / ".interop" / "connect"
"""The packages that PySpark's client needs beyond ours; `make interop` puts them there."""

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that runs its tasks itself, on two threads, and retries those that fail."""
    with connect_server(tmp_path_factory.mktemp("connect"), sys.executable) as address:
        yield address


@contextmanager
def connect_server(folder: Path, python: str) -> Iterator[str]:
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = ("org.apache.spark.deploy.SparkSubmit", "--master", "local[2,3]", *given, "--class", _SERVER)
    with server(folder / "server.log", *submit, port=port, python=python):
        yield f"sc://{LOOPBACK}:{port}"


@pytest.mark.parametrize("checks", ["workers,cow,mor,errors", "retries"])
def test_writes(remote: str, tmp_path: Path, checks: str) -> None:
    assert CLIENT.is_dir(), "the client's packages are missing: run make interop"
    run_checks(checks, tmp_path, {"spark.remote": remote}, CLIENT)


CLIENT_JOB = """
import sys
import lakebed
from pyspark.sql import SparkSession

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
try:
    lakebed.register(spark)
except lakebed.InvalidInputError as error:
    print(error)
"""


def test_workers_without_lakebed_are_refused_at_once(tmp_path: Path) -> None:
    """The server's interpreter is nowhere to be seen from here: a task tells."""
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    (tmp_path / "job.py").write_text(CLIENT_JOB)
    path = os.pathsep.join([str(CLIENT), str(Path(__file__).parents[2] / "src")])
    with connect_server(tmp_path, str(bare)) as address:
        run = subprocess.run(
            [sys.executable, tmp_path / "job.py", address],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    assert "hint: set PYSPARK_PYTHON before the session starts" in run.stdout, run.stderr
