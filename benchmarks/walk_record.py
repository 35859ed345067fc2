"""Which functions of lakebed are called by which of its modules: a hook for `sys.setprofile`, on all threads.

Needs the standard library alone: Python workers of Spark load it before anything else.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = "lakebed"
FILE_VARIABLE = "BENCHMARKS_WALK"
"""Names the file to which Python workers of Spark append calls."""
_SUBMITTER = "_lakebed_submitter"
"""An attribute of threads: the module for which they run something."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function that was called, or a generator that was resumed; `caller` is None if no module of ours called it."""

    caller: str | None
    module: str
    function: str
    is_generator: bool


class Recorder:
    """Records calls while it is switched on, except those made while a module is being imported."""

    def __init__(self, tell: Callable[[Call], None] | None = None) -> None:
        self.calls: set[Call] = set()
        self.is_on = False
        self._tell = tell

    def install(self) -> None:
        """Hook into this thread and all that start later. A thread's work counts as called by who submitted it."""
        submit, start = ThreadPoolExecutor.submit, threading.Thread.start

        def submit_for(pool: ThreadPoolExecutor, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            return submit(pool, _run_for, _nearest(sys._getframe()), run, *args, **kwargs)

        def start_for(thread: threading.Thread) -> None:
            setattr(thread, _SUBMITTER, _nearest(sys._getframe()))
            start(thread)

        ThreadPoolExecutor.submit = submit_for
        threading.Thread.start = start_for
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def _hear(self, frame: FrameType, event: str, _: object) -> None:
        if not self.is_on or event != "call" or not _is_ours(frame) or frame.f_code.co_name == "<module>":
            return
        caller = _nearest(frame.f_back) or getattr(threading.current_thread(), _SUBMITTER, None)
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        call = Call(caller, frame.f_globals["__name__"], name, bool(code.co_flags & CO_GENERATOR))
        if call not in self.calls and not _is_import(frame):
            self.calls.add(call)
            if self._tell is not None:
                self._tell(call)


def record_in_worker() -> None:
    """Record all calls of this process and of those that it forks into a file."""
    path = os.environ[FILE_VARIABLE]

    def tell(call: Call) -> None:
        with open(path, "a") as file:
            file.write(json.dumps(asdict(call)) + "\n")

    recorder = Recorder(tell)
    recorder.install()
    recorder.is_on = True


def read_calls(path: Path) -> set[Call]:
    """What workers have recorded."""
    return {Call(**json.loads(line)) for line in path.read_text().splitlines()} if path.exists() else set()


def _run_for(submitter: str | None, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    thread = threading.current_thread()
    before = getattr(thread, _SUBMITTER, None)
    setattr(thread, _SUBMITTER, submitter)
    try:
        return run(*args, **kwargs)
    finally:
        setattr(thread, _SUBMITTER, before)


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_globals.get("__name__", "")
    return isinstance(name, str) and (name == PACKAGE or name.startswith(PACKAGE + "."))


def _nearest(frame: FrameType | None) -> str | None:
    """The module of the nearest function of ours, from a frame upwards."""
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    return None if frame is None else frame.f_globals["__name__"]


def _is_import(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_ours(frame):
            return True
        frame = frame.f_back
    return False
