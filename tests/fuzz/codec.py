"""What is fuzzed: a codec makes inputs and decodes them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakebed.kernels.choice import Implementation

PATH = "part/of/a/table"
"""Where inputs claim to lie; errors must name it."""


@dataclass(frozen=True, slots=True)
class Codec:
    """`make` draws an input, `decode` gives its values or raises; both implementations must give the same values."""

    make: Callable[[random.Random], Any]
    decode: Callable[[Any], list[Any]]
    implementations: tuple[Implementation, ...] = ("plain", "compiled")
