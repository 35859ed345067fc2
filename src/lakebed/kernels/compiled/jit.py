"""Compiled functions: `kernel` for those that other kernels call, `Entry` for those that Python calls.

An entry has one signature, so everything can be compiled ahead: input arrays are read-only and contiguous, output
arrays are writable. Its code is loaded from the cache folder or not at all: only `Entry.compile_into` compiles.
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
"""All entries of the imported modules."""


def _input(kind: Any, dimensions: int = 1) -> Any:
    return types.Array(kind, dimensions, "C", readonly=True)


BYTES, INT8S, BOOLS = _input(types.uint8), _input(types.int8), _input(types.boolean)
INT32S, INT64S, UINT32S, WORDS = (_input(kind) for kind in (types.int32, types.int64, types.uint32, types.uint64))
TABLE_OF_INT32S, TABLE_OF_INT64S, TABLE_OF_BYTES = (_input(k, 2) for k in (types.int32, types.int64, types.uint8))
"""Types of input arrays, which are read-only."""
OUT_BYTES, OUT_BOOLS, OUT_INT32S = types.uint8[::1], types.boolean[::1], types.int32[::1]
OUT_INT64S, OUT_UINT32S, OUT_WORDS = types.int64[::1], types.uint32[::1], types.uint64[::1]
OUT_TABLE_OF_INT32S, OUT_TABLE_OF_INT64S = types.int32[:, ::1], types.int64[:, ::1]
OUT_TABLE_OF_BYTES = types.uint8[:, ::1]
"""Types of output arrays."""
INT, WORD, FLAG = types.int64, types.uint64, types.boolean
PAIR = types.UniTuple(types.int64, 2)


class NotReadyError(RuntimeError):
    """Compiled code is missing in the cache."""


def kernel(function: _Function, **options: Any) -> _Function:
    """`function` as compiled code that releases the GIL."""
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
        """Call it. Arguments are converted to its signature; it is never compiled for other types."""
        assert self._is_loaded, f"{self.name} was not loaded"
        return self._dispatcher(*[fit(value) for fit, value in zip(self._fits, args, strict=True)])

    def load_from(self, folder: str) -> None:
        """Load its code; NotReadyError if it is missing."""
        if not self._is_loaded:
            self._dispatcher._cache = _Folder(self._python, folder, may_compile=False)
            self._dispatcher.compile(self.kinds)
            self._dispatcher.disable_compile()
            self._is_loaded = True

    def compile_into(self, folder: str) -> bool:
        """Compile it unless the folder has its code; returns whether it was compiled."""
        kept = _Folder(self._python, folder, may_compile=True)
        self._dispatcher._cache = kept
        self._dispatcher.compile(self.kinds)
        self._is_loaded = True
        return kept.saved > 0


def load_entries(module: ModuleType) -> None:
    """Load the code of all entries in a module's namespace."""
    folder = cache.find_ready()
    for entry in vars(module).values():
        if isinstance(entry, Entry):
            if folder is None:
                raise NotReadyError("there is no compiled code in the cache")
            entry.load_from(folder)


def _fit(kind: Any) -> Callable[[Any], Any]:
    """A function that converts an argument to the type the code was compiled for."""
    if isinstance(kind, types.Array):
        return partial(_output if kind.mutable else _input_of, np.dtype(str(kind.dtype).replace("boolean", "bool")))
    return {types.int64: int, types.uint64: np.uint64, types.boolean: bool}.get(kind, tuple)


def _output(dtype: np.dtype[Any], array: Any) -> Any:
    assert array.dtype == dtype, f"results are of type {dtype}, not {array.dtype}"
    assert array.flags.carray, "results would be written to a copy"
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
    """Tells numba which folder to use. It is named by everything the code depends on, so nothing in it is stale."""

    def __init__(self, folder: str, file: str) -> None:
        self._folder, self._py_file = folder, file

    def get_cache_path(self) -> str:
        """The folder."""
        return self._folder

    def get_source_stamp(self) -> str:
        """The key of the folder."""
        return cache.key()

    def get_disambiguator(self) -> str:
        """Empty: the names of functions are unique."""
        return ""


class _Format(CompileResultCacheImpl):  # type: ignore[misc]
    """Stores code in numba's own format."""

    def __init__(self, function: Callable[..., Any], folder: str) -> None:
        code = cast(Any, function).__code__
        self._locator, self._lineno = _Locator(folder, code.co_filename), code.co_firstlineno


class _Folder(FunctionCache):  # type: ignore[misc]
    """The code of one function in a folder. Missing code is compiled only if `may_compile`."""

    def __init__(self, function: Callable[..., Any], folder: str, *, may_compile: bool) -> None:
        self._name, self._py_func, self._cache_path = repr(function), function, folder
        self._impl = _Format(function, folder)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self._cache_file = IndexDataCacheFile(folder, name, cache.key())
        self._may_compile = may_compile
        self.saved = 0
        self.enable()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for these argument types; NotReadyError if it is missing and must not be compiled."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # Unpickling a damaged file may raise anything.
            if not self._may_compile:
                raise
            self.flush()
            found = None
        if found is None and not self._may_compile:
            raise NotReadyError(f"there is no code for {self._name} in {self.cache_path}")
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the code."""
        super().save_overload(sig, data)
        self.saved += 1
