"""Processes beside that of the tests: servers of the Spark that PySpark brings, on loopback alone, and clients."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from engine import spark_writes
from lakebed.engine.session import ensure_java_home

LOOPBACK = "127.0.0.1"
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_START_S, _END_S = 180, 20


@contextmanager
def server(log: Path, *command: str, port: int | None = None, python: str = sys.executable) -> Iterator[None]:
    """Runs `spark-class` with these arguments until the block ends; with a `port`, waits until something answers there.

    It heads a process group of its own, so that what it starts ends with it.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [_SPARK_CLASS, *command],
            env=_environment() | {"PYSPARK_PYTHON": python},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if port is not None:
            _await(port, process, log)
        yield
    finally:
        _end(process)


def free_port() -> int:
    """A port of loopback where nothing listens now."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        return listener.getsockname()[1]


def run_checks(checks: str, folder: Path, options: Mapping[str, str], *search: Path) -> None:
    """Runs checks of `spark_writes` in a process of their own, which finds packages in the folders `search` too."""
    path = os.pathsep.join([*map(str, search), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, spark_writes.__file__, checks, str(folder), json.dumps(options)],
        env=_environment() | ({"PYTHONPATH": path} if search else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def _environment() -> dict[str, str]:
    return os.environ | {
        "JAVA_HOME": str(ensure_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false -Dspark.ui.enabled=false",
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_NO_DAEMONIZE": "1",
    }


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(f"nothing answers on port {port}:\n{log.read_text()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the group to end, and makes it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
