from __future__ import annotations

import base64
import binascii
import random

import numba  # noqa: F401  With it loaded, long texts go to compiled code.
import pytest

from lakebed.format.base64_text import decode_base64


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100, 16383, 16384, 16385, 16386, 50_000, 65_537])
def test_text_is_read_as_the_library_writes_it(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert decode_base64(base64.b64encode(data)) == data


def test_every_byte_has_its_digits() -> None:
    data = bytes(range(256)) * 100
    assert decode_base64(base64.b64encode(data)) == data


@pytest.mark.parametrize("place", [0, 1, 5000, 30_000, -5, -4, -3])
@pytest.mark.parametrize("wrong", [b"=", b"-", b"_", b"\n", b"\xff", b"\x00"])
def test_what_is_no_text_is_refused(place: int, wrong: bytes) -> None:
    text = bytearray(base64.b64encode(bytes(30_000)))
    text[place : place + 1] = wrong
    with pytest.raises(binascii.Error):
        decode_base64(bytes(text))


@pytest.mark.parametrize("length", [-1, -2, -3])
def test_a_text_that_ends_early_is_refused(length: int) -> None:
    with pytest.raises(binascii.Error):
        decode_base64(base64.b64encode(bytes(30_000))[:length])
