"""Writes from DataFrames over Spark Connect: this process has no JVM, and asks a server for all that Spark does."""

from __future__ import annotations

from collections.abc import Iterator
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
    folder, port = tmp_path_factory.mktemp("connect"), free_port()
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
    with server(folder / "server.log", *submit, port=port):
        yield f"sc://{LOOPBACK}:{port}"


@pytest.mark.parametrize("checks", ["workers,cow,mor,errors", "retries"])
def test_writes(remote: str, tmp_path: Path, checks: str) -> None:
    assert CLIENT.is_dir(), "the client's packages are missing: run make interop"
    run_checks(checks, tmp_path, {"spark.remote": remote}, CLIENT)
