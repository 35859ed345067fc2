"""Functions as machine code: `kernel` for those that other kernels call, `Entry` for those that Python calls.

An entry has one signature, so that what is compiled ahead is all there ever is: input arrays are read-only and
contiguous, output arrays can be written. Its code is loaded from the folder of the cache, or not at all: only
`Entry.compile_into` compiles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from lakebed.kernels import cache

_Function = TypeVar("_Function", bound=Callable[..., Any])
ENTRIES: list[Entry] = []
"""All entries of the modules that are loaded."""


def _input(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


BYTES, INT8S, BOOLS = _input(types.uint8), _input(types.int8), _input(types.boolean)
INT32S, INT64S, UINT32S, WORDS = (_input(kind) for kind in (types.int32, types.int64, types.uint32, types.uint64))
TABLE_OF_INT32S, TABLE_OF_INT64S, TABLE_OF_BYTES = (_input(k, 2) for k in (types.int32, types.int64, types.uint8))
"""What is only read."""
OUT_BYTES, OUT_BOOLS, OUT_INT32S = types.uint8[::1], types.boolean[::1], types.int32[::1]
OUT_INT64S, OUT_UINT32S, OUT_WORDS = types.int64[::1], types.uint32[::1], types.uint64[::1]
OUT_TABLE_OF_INT32S, OUT_TABLE_OF_INT64S = types.int32[:, ::1], types.int64[:, ::1]
OUT_TABLE_OF_BYTES = types.uint8[:, ::1]
"""What is written."""
INT, WORD, FLAG = types.int64, types.uint64, types.boolean
PAIR = types.UniTuple(types.int64, 2)


class NotReadyError(RuntimeError):
    """Code that should lie in the cache does not."""


def kernel(function: _Function, **options: Any) -> _Function:
    """`function` as machine code, during which other threads may run."""
    return cast(_Function, njit(nogil=True, **options)(function))


class Entry:
    """A kernel that Python calls, with the types of its arguments."""

    def __init__(self, function: Any, *kinds: Any) -> None:
        self._dispatcher = function
        self._python: Callable[..., Any] = self._dispatcher.py_func
        self.kinds = kinds
        self._fits = [_fit(kind) for kind in kinds]
        self.name = f"{self._python.__module__.rpartition('.')[2]}.{self._python.__name__}"
        self._is_loaded = False
        ENTRIES.append(self)

    def __call__(self, *args: Any) -> Any:
        """Call it; arguments of other types than its own are refused, never compiled for."""
        assert self._is_loaded, f"{self.name} was not loaded"
        return self._dispatcher(*[fit(value) for fit, value in zip(self._fits, args, strict=True)])

    def load_from(self, folder: str) -> None:
        """Load its code; NotReadyError if it is not there."""
        if not self._is_loaded:
            self._dispatcher._cache = _Folder(self._python, folder, may_compile=False)
            self._dispatcher.compile(self.kinds)
            self._dispatcher.disable_compile()
            self._is_loaded = True

    def compile_into(self, folder: str) -> bool:
        """Compile it unless it lies in the folder; whether that was needed."""
        kept = _Folder(self._python, folder, may_compile=True)
        self._dispatcher._cache = kept
        self._dispatcher.compile(self.kinds)
        self._is_loaded = True
        return kept.saved > 0


def load_entries(module: ModuleType) -> None:
    """Load the code of all entries that a module has."""
    folder = cache.find_ready()
    for entry in vars(module).values():
        if isinstance(entry, Entry):
            if folder is None:
                raise NotReadyError("no compiled code lies in the cache")
            entry.load_from(folder)


def _fit(kind: Any) -> Callable[[Any], Any]:
    """What brings an argument into the one type that code was compiled for."""
    if isinstance(kind, types.Array):
        return partial(_output if kind.mutable else _input_of, np.dtype(str(kind.dtype).replace("boolean", "bool")))
    return {types.int64: int, types.uint64: np.uint64, types.boolean: bool}.get(kind, tuple)


def _output(dtype: np.dtype[Any], array: Any) -> Any:
    assert array.dtype == dtype, f"results are of type {dtype}, not {array.dtype}"
    assert array.flags.carray, "results would go to a copy"
    return array


def _input_of(dtype: np.dtype[Any], array: Any) -> Any:
    array = np.asarray(array, dtype, order="C")
    if not array.flags.aligned:
        array = array.copy()
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


class _Locator(_CacheLocator):  # type: ignore[misc]
    """A folder that is named by all that code depends on, so that nothing in it is ever stale."""

    def __init__(self, folder: str, file: str) -> None:
        self._folder, self._py_file = folder, file

    def get_cache_path(self) -> str:
        """The folder."""
        return self._folder

    def get_source_stamp(self) -> str:
        """The name of the folder says all."""
        return cache.key()

    def get_disambiguator(self) -> str:
        """Names of functions are enough."""
        return ""


class _Format(CompileResultCacheImpl):  # type: ignore[misc]
    """How code is stored: as numba does."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        code = cast(Any, function).__code__
        self._locator, self._lineno = _Locator(folder, code.co_filename), code.co_firstlineno


class _Folder(FunctionCache):  # type: ignore[misc]
    """The code of one function in a folder. What is not there is compiled only by those who may."""

    def __init__(self, function: Callable[..., Any], folder: str, *, may_compile: bool) -> None:
        self._name, self._py_func, self._cache_path = repr(function), function, folder
        self._impl = _Format(function, folder)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self._cache_file = IndexDataCacheFile(folder, name, cache.key())
        self._may_compile = may_compile
        self.saved = 0
        self.enable()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for these argument types; NotReadyError if it is not there and must not be compiled now."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # Unpickling a damaged file may raise anything.
            if not self._may_compile:
                raise
            self.flush()
            found = None
        if found is None and not self._may_compile:
            raise NotReadyError(f"{self._name} does not lie in {self.cache_path}")
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code."""
        super().save_overload(sig, data)
        self.saved += 1
