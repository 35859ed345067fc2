"""Which implementation serves a call.

Compiled code serves if it lies ready in this host's cache (see `cache`) and either the call is large, so that loading
it is worth half a second, or it has been loaded for a larger call before. Results do not depend on it. Where bytes on
disk do (see docs/decisions/0021), callers ask `serves_large`, which goes by the size of the call alone.

`LAKEBED_COMPILE` says what happens where no compiled code lies ready:

    background   plain code serves, and a child process of low priority compiles for the next process (the default)
    off          plain code serves, nothing is compiled
    plain        plain code serves always, even where compiled code lies ready
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Literal

from lakebed.kernels import cache

VARIABLE = "LAKEBED_COMPILE"
LARGE = 2048
"""Rows of a call from which on compiled code is worth loading; plain code takes milliseconds for fewer."""
Implementation = Literal["plain", "compiled"]
_LOG = logging.getLogger(__name__)


class _Process:
    """What this process knows of compiled code."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.is_ready: bool | None = None
        """None: nobody has looked yet."""
        self.is_loaded = False
        self.forced: Implementation | None = None
        self.modules: dict[tuple[str, Implementation], ModuleType] = {}


_PROCESS = _Process()


def choose(subject: str, size: int) -> ModuleType:
    """The module that serves a call over so many rows."""
    if _serves(size):
        found = _PROCESS.modules.get((subject, "compiled")) or _load_compiled(subject)
        if found is not None:
            return found
    return _PROCESS.modules.get((subject, "plain")) or _load(subject, "plain")


def find_compiled(subject: str) -> ModuleType | None:
    """The compiled module of a subject that has no plain one, if compiled code lies ready."""
    is_wanted = _PROCESS.forced == "compiled" or (_PROCESS.forced is None and _is_ready())
    return (_PROCESS.modules.get((subject, "compiled")) or _load_compiled(subject)) if is_wanted else None


def serves_large(size: int) -> bool:
    """Whether compiled code serves a call over so many rows, whatever was called before."""
    if size < LARGE or _PROCESS.forced is not None:
        return size >= LARGE and _PROCESS.forced == "compiled"
    return _is_ready()


@contextmanager
def forced(implementation: Implementation) -> Iterator[None]:
    """Only one implementation serves, whatever the size of a call: for tests and benchmarks."""
    before, _PROCESS.forced = _PROCESS.forced, implementation
    try:
        yield
    finally:
        _PROCESS.forced = before


def is_ready() -> bool:
    """Whether compiled code lies ready for this process."""
    return _is_ready()


def forget() -> None:
    """Look for compiled code again: for tests."""
    _PROCESS.is_ready, _PROCESS.is_loaded = None, False


def _serves(size: int) -> bool:
    if _PROCESS.forced is not None:
        return _PROCESS.forced == "compiled"
    return (size >= LARGE or _PROCESS.is_loaded) and _is_ready()


def _is_ready() -> bool:
    if _PROCESS.is_ready is None:
        with _PROCESS.lock:
            if _PROCESS.is_ready is None:
                _PROCESS.is_ready = _look()
    return _PROCESS.is_ready


def _look() -> bool:
    wish = os.environ.get(VARIABLE, "background")
    if wish == "plain":
        return False
    if cache.find_ready() is not None:
        return True
    if wish == "background":
        from lakebed.kernels import background

        background.start()
    return False


def _load(subject: str, implementation: Implementation) -> ModuleType:
    module = import_module(f"lakebed.kernels.{implementation}.{subject}")
    return _PROCESS.modules.setdefault((subject, implementation), module)


def _load_compiled(subject: str) -> ModuleType | None:
    """The compiled module with its code loaded; None if the cache has been damaged, which plain code makes up for."""
    with _PROCESS.lock:
        try:
            module = import_module(f"lakebed.kernels.compiled.{subject}")
            import_module("lakebed.kernels.compiled.jit").load_entries(module)
        except Exception as error:  # Code that is unpickled, or a library that is gone, may raise anything.
            if _PROCESS.forced == "compiled":
                raise
            _LOG.warning("compiled code cannot be loaded, plain code serves instead (%r)", error)
            folder = cache.find_ready()
            if folder is not None:
                cache.discard(folder)
            _PROCESS.is_ready = False
            return None
        _PROCESS.is_loaded = True
        return _PROCESS.modules.setdefault((subject, "compiled"), module)
