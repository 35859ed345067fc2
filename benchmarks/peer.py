"""Apache Hudi and hudi-rs in a process of their own, as `make interop` installs them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakebed.engine.session import find_java_home

HERE = Path(__file__).parent
HOME = HERE.parent / ".interop"
LOG = HERE.parent / ".bench" / "peer.log"
_SECONDS_TO_END = 60


class PeerMissingError(Exception):
    """The peer is not installed, and what was asked for cannot be had without it."""


class Peer:
    """A running peer. It answers one request at a time and is idle in between."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The peer's answer; RuntimeError if it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer ended while it was to {do}, see {LOG}")
        said: dict[str, Any] = json.loads(answer)
        if "error" in said:
            raise RuntimeError(f"the peer failed to {do}, see {LOG}: {said['error']}")
        return said


@contextmanager
def running_peer() -> Iterator[Peer | None]:
    """The peer, or None, with a word about why, where it is not installed. It ends with the block."""
    command = _command()
    if command is None:
        print("skipped: all that needs Apache Hudi or hudi-rs. `make interop` prepares them (Java 17 and Maven needed)")
        yield None
        return
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_environment(),
            cwd=LOG.parent,
        )
        try:
            yield Peer(process)
        finally:
            _end(process)


def _command() -> list[str] | None:
    jars, python = sorted(HOME.glob("hudi-spark*.jar")), HOME / "venv" / "bin" / "python"
    if not jars or not python.exists() or find_java_home() is None:
        return None
    return [str(python), "-m", "benchmarks.peer_hudi", str(jars[-1]), str(LOG.parent)]


def _environment() -> dict[str, str]:
    settings = {
        "PYTHONPATH": str(HERE.parent),
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }
    return {**os.environ, **settings}


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.close()
        process.wait(_SECONDS_TO_END)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
