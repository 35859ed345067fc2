"""Chooses between plain and compiled code for each call.

Compiled code runs if it is in this host's cache (see `cache`) and either the call is large enough to be worth the half
second of loading it, or an earlier call has loaded it. Results do not depend on the choice. Where bytes on disk do (see
docs/decisions/0021), callers use `uses_compiled`, which depends on the size of the call alone.

`LAKEBED_COMPILE` says what happens if no compiled code is in the cache:

    background   plain code runs, and a child process of low priority compiles for the next process (the default)
    off          plain code runs, nothing is compiled
    plain        plain code always runs, even if compiled code is in the cache
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
"""Number of rows in a call from which loading compiled code pays; plain code takes milliseconds for fewer."""
Implementation = Literal["plain", "compiled"]
_LOG = logging.getLogger(__name__)


class _Process:
    """The state of compiled code in this process."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.is_ready: bool | None = None
        """Whether the cache is complete; None: not looked yet."""
        self.is_loaded = False
        self.forced: Implementation | None = None
        self.modules: dict[tuple[str, Implementation], ModuleType] = {}


_PROCESS = _Process()


def choose(subject: str, size: int) -> ModuleType:
    """The module of a subject that runs a call over `size` rows."""
    if _serves(size):
        found = _PROCESS.modules.get((subject, "compiled")) or _load_compiled(subject)
        if found is not None:
            return found
    return _PROCESS.modules.get((subject, "plain")) or _load(subject, "plain")


def find_compiled(subject: str) -> ModuleType | None:
    """The compiled module of a subject without a plain one; None if no compiled code is in the cache."""
    is_wanted = _PROCESS.forced == "compiled" or (_PROCESS.forced is None and _is_ready())
    return (_PROCESS.modules.get((subject, "compiled")) or _load_compiled(subject)) if is_wanted else None


def uses_compiled(size: int) -> bool:
    """Whether compiled code runs a call over `size` rows, independent of earlier calls."""
    if size < LARGE or _PROCESS.forced is not None:
        return size >= LARGE and _PROCESS.forced == "compiled"
    return _is_ready()


@contextmanager
def forced(implementation: Implementation) -> Iterator[None]:
    """Forces one implementation, whatever the size of a call: for tests and benchmarks."""
    before, _PROCESS.forced = _PROCESS.forced, implementation
    try:
        yield
    finally:
        _PROCESS.forced = before


def is_ready() -> bool:
    """Whether compiled code is in the cache and may be used."""
    return _is_ready()


def forget() -> None:
    """Look for compiled code again at the next call."""
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
        from lakebed.kernels import warm  # Rarely needed; and it imports this module by way of `compiled`.

        warm.start_in_background()
    return False


def _load(subject: str, implementation: Implementation) -> ModuleType:
    module = import_module(f"lakebed.kernels.{implementation}.{subject}")
    return _PROCESS.modules.setdefault((subject, implementation), module)


def _load_compiled(subject: str) -> ModuleType | None:
    """The compiled module with its code loaded; None if the cache is damaged, and then plain code runs."""
    with _PROCESS.lock:
        try:
            module = import_module(f"lakebed.kernels.compiled.{subject}")
            import_module("lakebed.kernels.compiled.jit").load_entries(module)
        except Exception as error:  # Unpickling code, or a missing library, may raise anything.
            if _PROCESS.forced == "compiled":
                raise
            _LOG.warning("compiled code cannot be loaded, plain code runs instead (%r)", error)
            folder = cache.find_ready()
            if folder is not None:
                cache.discard(folder)
            _PROCESS.is_ready = False
            return None
        _PROCESS.is_loaded = True
        return _PROCESS.modules.setdefault((subject, "compiled"), module)
