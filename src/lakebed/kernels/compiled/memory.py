"""Loads, stores and copies at addresses, for compiled loops. None checks anything: the loops do.

Compiled code is kept on disk and made anew when the file of the loop changes, so a loop's constants stand in its file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE, _INT, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def _instruction(typing: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], intrinsic(typing))


@_instruction
def load_byte(_typing: Any, _address: Any) -> Any:
    """The unsigned byte at an address."""
    return types.uint8(types.int64), _load(_BYTE)


@_instruction
def load_int(_typing: Any, _address: Any) -> Any:
    """The signed 32-bit number at an address."""
    return types.int32(types.int64), _load(_INT)


@_instruction
def load_long(_typing: Any, _address: Any) -> Any:
    """The signed 64-bit number at an address."""
    return types.int64(types.int64), _load(_LONG)


@_instruction
def store(_typing: Any, _address: Any, value: Any) -> Any:
    """Stores a number, as wide as its type, at an address."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], args[1].type.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, value), generate


@_instruction
def copy(_typing: Any, _target: Any, _source: Any, _length: Any) -> Any:
    """Copies bytes from the second address to the first."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        target, source = (builder.inttoptr(address, _BYTE.as_pointer()) for address in args[:2])
        raw_memcpy: Callable[..., Any] = cgutils.raw_memcpy
        raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@_instruction
def prefetch_at(_typing: Any, _address: Any) -> Any:
    """Starts to bring what lies at an address into the cache; harmless wherever that is."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _BYTE.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, _INT, _INT, _INT])
        insert: Callable[..., Any] = cgutils.get_or_insert_function
        builder.call(insert(builder.module, kind, "llvm.prefetch.p0"), [pointer, _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _load(kind: ir.IntType) -> Callable[..., Any]:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)

    return generate
