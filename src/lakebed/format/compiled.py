"""Functions as machine code, made on the first call and kept on disk for other processes, if there is room."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Any, TypeVar, cast

from numba import njit
from numba.core.caching import FunctionCache

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LOG = logging.getLogger(__name__)
_WARNED = Event()
"""Set once this process was told."""


def compiled(function: _Function, **options: Any) -> _Function:
    """`function` as machine code, during which other threads may run.

    What is kept on disk is thrown away when the function's own file changes, but not when a function that it calls
    does. Where nothing can be kept, because neither the package nor the user's cache can be written, each process
    compiles for itself.
    """
    dispatcher = njit(nogil=True, **options)(function)
    if hasattr(dispatcher, "enable_caching"):  # With NUMBA_DISABLE_JIT it is the function itself.
        try:
            dispatcher._cache = _KeptCode(function)
        except RuntimeError as error:
            _warn_once(str(error))
    return cast(_Function, dispatcher)


class _KeptCode(FunctionCache):  # type: ignore[misc]
    """Machine code on disk that helps but is not needed: what cannot be loaded or stored is compiled."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for these argument types, if it is here and whole."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # Unpickling a damaged file may raise anything.
            _warn_once(f"{self.cache_path}: {error!r}")
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code, if there is room."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_once(f"{self.cache_path}: {error}")


def _warn_once(why: str) -> None:
    if not _WARNED.is_set():
        _WARNED.set()
        _LOG.warning(
            "compiled code cannot be kept on disk, so each process compiles it for itself, which takes up to a minute; "
            "set NUMBA_CACHE_DIR to a writable folder of your own (%s)",
            why,
        )
