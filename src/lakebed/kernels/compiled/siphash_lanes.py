"""SipHash-2-4 of several messages at once, with vector instructions.

The state of `LANES` messages is five consecutive vectors: four words of each message, then its next input word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 8
VECTORS = 5
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, LANES)
_VECTOR_BYTES = 8 * LANES


def _take_words(_typing: Any, _state: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        a, b, c, d, words = (_load(builder, args[0], number) for number in range(VECTORS))
        a, b, c, d = _rounds(builder, a, b, c, builder.xor(d, words), 2)
        for number, vector in enumerate((builder.xor(a, words), b, c, d)):
            _store(builder, args[0], number, vector)
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _finish(_typing: Any, _state: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        a, b, c, d = (_load(builder, args[0], number) for number in range(4))
        a, b, c, d = _rounds(builder, a, b, builder.xor(c, _all(0xEE)), d, 4)
        _store(builder, args[0], 0, builder.xor(builder.xor(a, b), builder.xor(c, d)))
        a, b, c, d = _rounds(builder, a, builder.xor(b, _all(0xDD)), c, d, 4)
        _store(builder, args[0], 1, builder.xor(builder.xor(a, b), builder.xor(c, d)))
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _rounds(builder: Any, a: Any, b: Any, c: Any, d: Any, count: int) -> tuple[Any, Any, Any, Any]:
    for _ in range(count):
        a, c = builder.add(a, b), builder.add(c, d)
        b, d = builder.xor(_rotate(builder, b, 13), a), builder.xor(_rotate(builder, d, 16), c)
        a = _rotate(builder, a, 32)
        c, a = builder.add(c, b), builder.add(a, d)
        b, d = builder.xor(_rotate(builder, b, 17), c), builder.xor(_rotate(builder, d, 21), a)
        c = _rotate(builder, c, 32)
    return a, b, c, d


def _rotate(builder: Any, vector: Any, by: int) -> Any:
    return builder.or_(builder.shl(vector, _all(by)), builder.lshr(vector, _all(64 - by)))


def _all(word: int) -> Any:
    return ir.Constant(_VECTOR, [word] * LANES)


def _load(builder: Any, state: Any, number: int) -> Any:
    return builder.load(_pointer(builder, state, number), align=8)


def _store(builder: Any, state: Any, number: int, vector: Any) -> None:
    builder.store(vector, _pointer(builder, state, number), align=8)


def _pointer(builder: Any, state: Any, number: int) -> Any:
    return builder.inttoptr(builder.add(state, _WORD(_VECTOR_BYTES * number)), _VECTOR.as_pointer())


take_words: Callable[[int], None] = intrinsic(_take_words)
"""Absorb the input words of the state at an address."""

finish: Callable[[int], None] = intrinsic(_finish)
"""Replace the first two vectors of the state at an address with the lower and the upper halves of the hashes."""
