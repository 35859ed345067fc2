"""Runs child processes over ranges of inputs; one that dies is started again behind the input that it died of."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.implementations import using

from .child import SECONDS_MAX

_ROOT = Path(__file__).parents[2]
_CHUNK = 25_000
_FAILURES_MAX = 20
"""With more, the run ends: they have something in common."""
_IDLE_SECONDS_MAX = 60.0
"""How long a child may use no processor time."""


@dataclass(slots=True)
class Report:
    """What a run has seen."""

    inputs: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)


def run(codec: str, seed: int, first: int, count: int, jobs: int, tell: Callable[[str], None]) -> Report:
    """Decode so many inputs, beginning with number `first`."""
    with using("compiled"):  # Compiled before the children start.
        pass
    report = Report()
    starts = range(first, first + count, _CHUNK)

    def run_one(start: int) -> None:
        if len(report.failures) < _FAILURES_MAX:
            _run_chunk(report, codec, seed, start, min(start + _CHUNK, first + count), tell)

    with ThreadPoolExecutor(jobs) as threads:
        list(threads.map(run_one, starts))
    return report


def _run_chunk(report: Report, codec: str, seed: int, first: int, last: int, tell: Callable[[str], None]) -> None:
    while first < last and len(report.failures) < _FAILURES_MAX:
        with tempfile.NamedTemporaryFile() as progress:
            progress.write(struct.pack("<q", first))
            progress.flush()
            status = _run_child(report, codec, seed, first, last, progress.name, tell)
            (reached,) = struct.unpack("<q", Path(progress.name).read_bytes())
        following = last if status is None else reached + 1
        report.inputs += following - first
        if status is not None:
            _fail(report, codec, seed, reached, status, tell)
        first = following
    tell(f"{codec}: {report.inputs} inputs, {len(report.failures)} failures")


def _run_child(
    report: Report, codec: str, seed: int, first: int, last: int, progress: str, tell: Callable[[str], None]
) -> str | None:
    """Run one child to its end; what it died of, None if it did not."""
    command = [sys.executable, "-m", "tests.fuzz.child", codec, str(seed), str(first), str(last), progress]
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
        watch = _Watch(child)
        is_done = False
        for line in child.stdout or ():
            said = json.loads(line)
            if "failure" in said:
                _fail(report, codec, seed, said["number"], said["failure"], tell)
            else:
                report.refused, is_done = report.refused + said["refused"], True
        code = child.wait()
        watch.stop()
        if code == 0 and is_done:
            return None
        errors.seek(0)
        said = errors.read().decode(errors="replace")
        assert code < 0, f"the child itself is wrong, not what it tests: {said}"
        return f"{_cause(code)} {said[-1500:]}"


def _cause(code: int) -> str:
    if code == -signal.SIGPROF:
        return f"no end within {SECONDS_MAX} s of processor time"
    return f"the process ended with {signal.Signals(-code).name}"


def _fail(report: Report, codec: str, seed: int, number: int, why: str, tell: Callable[[str], None]) -> None:
    report.failures.append(why)
    tell(f"FAILURE of input {number}: {why.strip()}")
    tell(f"  python -m tests.fuzz --codec {codec} --seed {seed} --first {number} --inputs 1")


class _Watch:
    """Ends a child that waits for something that does not come: one that has used no processor time for long.

    One that does use it, on a machine with other work, has a limit of its own.
    """

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child, self._done = child, threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._done.set()

    def _run(self) -> None:
        seen: int | None = None
        while not self._done.wait(_IDLE_SECONDS_MAX):
            now = _cpu_ticks(self._child.pid)
            if now is not None and now == seen:
                self._child.kill()
            seen = now


def _cpu_ticks(process: int) -> int | None:
    """User and system time of a process; None if it has ended, or without /proc."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])
