"""Writes from DataFrames on a standalone cluster: rows cross machines in files, tasks and errors as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.spark_servers import LOOPBACK, free_port, run_checks, server

pytestmark = [pytest.mark.spark, pytest.mark.interop]

_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers, of one core each."""
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    address = f"spark://{LOOPBACK}:{port}"
    with ExitStack() as running:
        where = ("--host", LOOPBACK, "--webui-port", "0")
        running.enter_context(server(folder / "master.log", _MASTER, *where, "--port", str(port), port=port))
        for name in ("one", "two"):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / name))
            running.enter_context(server(folder / f"{name}.log", _WORKER, *where, *size, address))
        yield address


@pytest.mark.parametrize("checks", ["workers,cow,mor,errors", "retries"])
def test_writes(cluster: str, tmp_path: Path, checks: str) -> None:
    options = {
        "spark.master": cluster,
        "spark.executor.memory": "600m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
        "spark.sql.shuffle.partitions": "2",
    }
    run_checks(checks, tmp_path, options)
