"""Unchecked loads, stores and copies for compiled loops, at addresses and in arrays.

None of these checks a bound: the calling loop must have proved that the range is valid. Word access is five times as
fast as a loop over bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lakebed.kernels.buffers import Bytes

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
    """Prefetches the cache line at an address; any address is safe."""

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


_WORD = ir.IntType(64)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def _copy_bytes(_typing: Any, target: Any, _target_at: Any, source: Any, _source_at: Any, _count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target_pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        source_pointer = _pointer(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, target_pointer, source_pointer, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


def _load_word(_typing: Any, array: Any, _at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        return builder.load(builder.bitcast(pointer, _WORD.as_pointer()), align=1)

    return types.uint64(array, types.int64), generate


def _store_word(_typing: Any, array: Any, _at: Any, _word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        builder.store(args[2], builder.bitcast(pointer, _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


def _swap_bytes(_typing: Any, _word: Any) -> Any:
    return types.uint64(types.uint64), lambda _context, builder, _signature, args: builder.bswap(args[0])


def _fold_product(_typing: Any, _word: Any, _factor: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), _WORD)
        return builder.xor(builder.trunc(product, _WORD), high)

    return types.uint64(types.uint64, types.uint64), generate


def _trailing_zeros(_typing: Any, _word: Any) -> Any:
    zero_is_64 = ir.Constant(ir.IntType(1), 0)
    return types.uint64(types.uint64), lambda _context, builder, _signature, args: builder.cttz(args[0], zero_is_64)


def _leading_zeros(_typing: Any, _word: Any) -> Any:
    zero_is_64 = ir.Constant(ir.IntType(1), 0)
    return types.uint64(types.uint64), lambda _context, builder, _signature, args: builder.ctlz(args[0], zero_is_64)


def _prefetch(_typing: Any, array: Any, _at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        declared = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(declared, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


copy_bytes: Callable[[Bytes, int, Bytes, int, int], None] = intrinsic(_copy_bytes)
"""`copy_bytes(target, target_at, source, source_at, count)`; the two ranges do not overlap."""

prefetch: Callable[[npt.NDArray[Any], int], None] = intrinsic(_prefetch)
"""Prefetch the cache line of an array element; any index is safe."""

load_word: Callable[[Bytes, int], np.uint64] = intrinsic(_load_word)
"""Eight bytes of an array from a position, as a little-endian word."""

store_word: Callable[[Bytes, int, np.uint64], None] = intrinsic(_store_word)
"""Write a word into an array at a position, little-endian."""

swap_bytes: Callable[[np.uint64], np.uint64] = intrinsic(_swap_bytes)
"""The word with its bytes reversed."""

fold_product: Callable[[np.uint64, np.uint64], np.uint64] = intrinsic(_fold_product)
"""The low half of the 128-bit product xor its high half, so that every bit of the result depends on all input bits."""

trailing_zeros: Callable[[np.uint64], np.uint64] = intrinsic(_trailing_zeros)
"""Number of trailing zero bits; 64 for zero."""

leading_zeros: Callable[[np.uint64], np.uint64] = intrinsic(_leading_zeros)
"""Number of leading zero bits; 64 for zero."""
