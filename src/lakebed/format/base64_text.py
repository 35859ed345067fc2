"""Reading base64 text, also where it is long: by compiled code if that is loaded anyway."""

from __future__ import annotations

import base64
import sys

import numpy as np

_LONG = 1 << 14


def decode_base64(text: bytes) -> bytes:
    """The bytes of a text; ValueError if it is none."""
    if len(text) < _LONG or len(text) % 4 or "numba" not in sys.modules:
        return base64.b64decode(text, validate=True)
    from lakebed.format.base64_kernels import VALUES, decode_fours

    whole = len(text) - 4  # The last four may have padding.
    data = np.empty(whole // 4 * 3, np.uint8)
    if not decode_fours(np.frombuffer(text, np.uint8)[:whole], VALUES, data):
        return base64.b64decode(text, validate=True)
    return data.tobytes() + base64.b64decode(text[whole:], validate=True)
