from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakebed.clock import SystemClock
from lakebed.errors import LakebedError, LockUnavailableError
from lakebed.transaction.locks.local import LOCK_FILE, LocalLock
from lakebed.transaction.locks.waiting import Patience
from transaction.locks.fakes import FakeClock

HOLDER = """
import sys
from lakebed.clock import SystemClock
from lakebed.transaction.locks.local import LocalLock
from lakebed.transaction.locks.waiting import Patience
lock = LocalLock(sys.argv[1], SystemClock(), Patience(30))
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""
ADDER = """
import sys
from pathlib import Path
from lakebed.clock import SystemClock
from lakebed.transaction.locks.local import LocalLock
from lakebed.transaction.locks.waiting import Patience
lock, counter = LocalLock(sys.argv[1], SystemClock(), Patience(60)), Path(sys.argv[1], "counter")
for _ in range(200):
    lock.acquire()
    counter.write_text(str(int(counter.read_text()) + 1))
    lock.release()
"""


def lock(root: Path, wait_s: float = 0) -> LocalLock:
    return LocalLock(str(root), SystemClock(), Patience(wait_s))


@contextmanager
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_it_excludes_within_the_process_and_cannot_be_lost(tmp_path: Path) -> None:
    first, second = lock(tmp_path), lock(tmp_path)
    assert first.remaining() == 0
    first.acquire()
    assert first.remaining() == math.inf
    assert not first.can_be_lost
    for other in (first, second):
        with pytest.raises(LockUnavailableError):
            other.acquire()
    assert first.remaining() == math.inf
    first.release()
    first.release()
    assert first.remaining() == 0
    second.acquire()
    second.release()


def test_only_one_empty_file_is_left_behind(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire()
    held.release()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / LOCK_FILE]
    assert (tmp_path / LOCK_FILE).read_bytes() == b""


def test_it_waits_in_short_pauses(tmp_path: Path) -> None:
    clock = FakeClock()
    held, waiting = lock(tmp_path), LocalLock(str(tmp_path), clock, Patience(60))
    held.acquire()
    clock.on_sleep = lambda: held.release() if len(clock.slept) == 9 else None
    waiting.acquire()
    assert max(clock.slept) <= 0.02
    waiting.release()


def test_another_process_is_excluded_until_it_releases(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(LockUnavailableError):
            lock(tmp_path).acquire()
        print("go", file=process.stdin, flush=True)
        assert process.stdout
        assert process.stdout.readline() == "released\n"
        mine = lock(tmp_path)
        mine.acquire()
        mine.release()


def test_a_process_that_is_killed_frees_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        mine = lock(tmp_path)
        mine.acquire()
        mine.release()


def test_a_process_that_is_stopped_keeps_the_lock(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(LockUnavailableError):
            lock(tmp_path).acquire()


def test_a_program_started_while_the_lock_is_held_does_not_keep_it(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire()
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        held._lock._forget()  # type: ignore[union-attr]  # What the death of this process does to its handles.
        mine = lock(tmp_path)
        mine.acquire()
        mine.release()
        child.kill()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Forking beside threads: the child does nothing here.
def test_a_forked_child_neither_holds_the_lock_nor_keeps_it(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire()
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"0" if held.remaining() == 0 else b"1")
        held.release()
        os.read(go[0], 1)
        os._exit(0)
    try:
        assert os.read(ready[0], 1) == b"0"
        with pytest.raises(LockUnavailableError):
            lock(tmp_path).acquire()
        held._lock._forget()  # type: ignore[union-attr]  # What the death of this process does to its handles.
        mine = lock(tmp_path)
        mine.acquire()
        mine.release()
    finally:
        os.write(go[1], b"x")
        os.waitpid(child, 0)
        for handle in (*ready, *go):
            os.close(handle)


def test_a_lock_on_a_file_that_was_removed_does_not_count(tmp_path: Path) -> None:
    held = lock(tmp_path)
    held.acquire()
    (tmp_path / LOCK_FILE).unlink()
    other = lock(tmp_path)
    other.acquire()
    with pytest.raises(LockUnavailableError):
        lock(tmp_path).acquire()
    held.release()
    with pytest.raises(LockUnavailableError):
        lock(tmp_path).acquire()
    other.release()


def test_a_file_that_is_removed_before_it_is_locked_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop_table_first(handle: int, operation: int) -> None:
        monkeypatch.undo()
        (tmp_path / LOCK_FILE).unlink()
        fcntl.flock(handle, operation)

    held = lock(tmp_path)
    monkeypatch.setattr("fcntl.flock", drop_table_first)
    with pytest.raises(LockUnavailableError):
        held.acquire()
    held.acquire()
    held.release()


def test_processes_and_threads_lose_no_step(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    errors: list[BaseException] = []

    def add() -> None:
        try:
            exec(compile(ADDER, "adder", "exec"), {})
        except BaseException as error:
            errors.append(error)

    processes = [subprocess.Popen([sys.executable, "-c", ADDER, str(tmp_path)]) for _ in range(2)]
    argv, sys.argv = sys.argv, ["adder", str(tmp_path)]
    try:
        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.argv = argv
    assert [process.wait() for process in processes] == [0, 0]
    assert errors == []
    assert (tmp_path / "counter").read_text() == "800"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").write_text("no folder")
    with pytest.raises(LakebedError, match=r"lakebed\.lock"):
        lock(tmp_path).acquire()
