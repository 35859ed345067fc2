"""A standalone Spark cluster on loopback: a master and workers of one core, each with an environment of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from lakebed.engine.session import find_java_home

LOOPBACK = "127.0.0.1"
SETTINGS = {
    "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -Dspark.ui.enabled=false",
    "SPARK_LOCAL_IP": LOOPBACK,
    "SPARK_NO_DAEMONIZE": "1",
}
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_START_SECONDS, _END_SECONDS = 180, 20


@contextmanager
def running_cluster(folder: Path, workers: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The address of a master with one worker per environment; executors inherit that of their worker."""
    port = _free_port()
    address, where = f"spark://{LOOPBACK}:{port}", ("--host", LOOPBACK, "--webui-port", "0")
    with ExitStack() as running:
        log = folder / "master.log"
        master = running.enter_context(_server(log, workers[0], _MASTER, *where, "--port", str(port)))
        _await(port, master, log)
        for number, environment in enumerate(workers):
            size = ("--cores", "1", "--memory", "2g", "--work-dir", str(folder / f"work-{number}"))
            log = folder / f"worker-{number}.log"
            running.enter_context(_server(log, environment, _WORKER, *where, *size, address))
        yield address


@contextmanager
def _server(log: Path, environment: Mapping[str, str], *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `spark-class` until the block ends, in a process group of its own, so that what it starts ends with it."""
    settings = {**SETTINGS, "JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(_SPARK_CLASS), *command],
            env={**environment, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    raise RuntimeError(f"nothing answers on port {port}:\n{log.read_text()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the group to end, and makes it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
