"""Damage to bytes and numbers, drawn from a seeded generator."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from tests.hostile import mutate

_EXTREMES = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    1 << 20,
    1 << 24,
    1 << 25,
    1 << 26,
    *((1 << 31) + n for n in (-1, 0, 1)),
)
_WIDE = (1 << 32, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_Item = TypeVar("_Item")


def strange(rng: random.Random, number: int = 0) -> int:
    """Another number: near the given one, at a limit of some width, or negative."""
    kind = rng.randrange(4)
    if kind == 0:
        return number + rng.choice((-2, -1, 1, 2))
    if kind == 1:
        return rng.choice(_EXTREMES)
    return rng.choice(_WIDE) if kind == 2 else -rng.choice((*_EXTREMES, 1 << 62, 1 << 63))


def wrapped(number: int, bits: int) -> int:
    """The signed number that the lowest bits of any number are."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes, damaged once or twice, or a number of some width written over them."""
    for _ in range(rng.choice((1, 1, 2))):
        data = mutate(data, rng) if rng.random() < 0.6 else _overwritten(data, rng)
    return data


def maybe(share: float, rng: random.Random, change: Callable[[_Item], _Item], item: _Item) -> _Item:
    """The item, changed with some probability."""
    return change(item) if rng.random() < share else item


def rearranged(items: list[_Item], rng: random.Random) -> list[_Item]:
    """The list with an item dropped, repeated or moved."""
    items = list(items)
    if not items:
        return items
    at = rng.randrange(len(items))
    kind = rng.randrange(3)
    item = items[at] if kind == 1 else items.pop(at)
    if kind:
        items.insert(rng.randrange(len(items) + 1), item)
    return items


def _overwritten(data: bytes, rng: random.Random) -> bytes:
    width = rng.choice((1, 2, 4, 8))
    if len(data) < width:
        return data
    at, number = rng.randrange(len(data) - width + 1), strange(rng)
    order = rng.choice(("big", "little"))
    if rng.random() < 0.5:
        number = int.from_bytes(data[at : at + width], order) + rng.choice((-1, 1))
    return data[:at] + (number & (1 << 8 * width) - 1).to_bytes(width, order) + data[at + width :]
