"""Unchecked 8-byte loads, stores and copies, which kernels are built from.

Byte loops are five times slower than these, and none of these checks a bound: the kernel that calls one has
proved that the range lies inside the array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from lakebed.kernels.buffers import Bytes

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
"""Start to bring an element of an array into the cache; harmless wherever it points."""

load_word: Callable[[Bytes, int], np.uint64] = intrinsic(_load_word)
"""Eight bytes of an array from a position, first byte lowest."""

store_word: Callable[[Bytes, int, np.uint64], None] = intrinsic(_store_word)
"""Write eight bytes into an array at a position, lowest byte first."""

swap_bytes: Callable[[np.uint64], np.uint64] = intrinsic(_swap_bytes)
"""The word with its bytes in the other order."""

fold_product: Callable[[np.uint64, np.uint64], np.uint64] = intrinsic(_fold_product)
"""The low half of the 128-bit product, xor its high half: every bit of the result depends on all those of a word."""

trailing_zeros: Callable[[np.uint64], np.uint64] = intrinsic(_trailing_zeros)
"""How many low bits are zero; 64 for zero."""

leading_zeros: Callable[[np.uint64], np.uint64] = intrinsic(_leading_zeros)
"""How many high bits are zero; 64 for zero."""
