"""Bad bytes for decoders: seeded mutations of good bytes, and the one thing a decoder may do with them.

A decoder given hostile bytes returns a value or raises CorruptTableError that names the file; nothing else.
It does so quickly and without allocating memory out of proportion to its input.
"""

from __future__ import annotations

import random
import resource
import struct
import time
from collections.abc import Callable, Iterator

from lakebed.errors import CorruptTableError

SECONDS_MAX = 2.0
GROWTH_KIB_MAX = 256 * 1024
_LENGTHS = (-1, 0, 1, 0x7F, 0x7FFFFFFF, -0x80000000, 0x10000000)


def mutations(good: bytes, *, seed: int, count: int) -> Iterator[bytes]:
    """`count` damaged versions of `good`: flips, cuts, overwritten lengths, moved and repeated pieces."""
    rng = random.Random(seed)
    for _ in range(count):
        yield mutate(good, rng)


def mutate(good: bytes, rng: random.Random) -> bytes:
    """One damaged version of `good`."""
    return rng.choice((_flip, _cut, _length, _repeat, _move, _noise))(good, rng)


def truncations(good: bytes, *, step: int = 1) -> Iterator[bytes]:
    """Every proper prefix of `good`."""
    for end in range(0, len(good), step):
        yield good[:end]


def check_decoder(decode: Callable[[bytes], object], inputs: Iterator[bytes], *, path: str) -> int:
    """Feed each input to `decode`; returns how many were refused. Anything but a value or CorruptTableError fails."""
    refused = 0
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in inputs:
        started = time.monotonic()
        try:
            decode(data)
        except CorruptTableError as error:
            refused += 1
            if path not in str(error):
                raise AssertionError(f"the error does not name the file: {error}") from error
        spent = time.monotonic() - started
        assert spent < SECONDS_MAX, f"{spent:.1f} s for {len(data)} bytes: {data[:80].hex()}"
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert grown_kib < GROWTH_KIB_MAX, f"memory grew by {grown_kib} KiB"
    return refused


def _flip(good: bytes, rng: random.Random) -> bytes:
    data = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _cut(good: bytes, rng: random.Random) -> bytes:
    return good[: rng.randint(0, len(good))]


def _length(good: bytes, rng: random.Random) -> bytes:
    if len(good) < 4:
        return good
    data, at = bytearray(good), rng.randrange(len(good) - 3)
    struct.pack_into(rng.choice((">i", "<i")), data, at, rng.choice(_LENGTHS))
    return bytes(data)


def _repeat(good: bytes, rng: random.Random) -> bytes:
    start, end = sorted((rng.randint(0, len(good)), rng.randint(0, len(good))))
    return good[:end] + good[start:end] + good[end:]


def _move(good: bytes, rng: random.Random) -> bytes:
    start, end = sorted((rng.randint(0, len(good)), rng.randint(0, len(good))))
    rest = good[:start] + good[end:]
    at = rng.randint(0, len(rest))
    return rest[:at] + good[start:end] + rest[at:]


def _noise(good: bytes, rng: random.Random) -> bytes:
    start = rng.randint(0, len(good))
    return good[:start] + rng.randbytes(rng.randint(1, 64)) + good[start:]
