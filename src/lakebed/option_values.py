"""Parsers for the values of options, which are always given as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.errors import InvalidInputError

INT_MAX = (1 << 31) - 1
"""Maximum of counts in Apache Hudi."""
LONG_MAX = (1 << 63) - 1
"""Maximum of sizes in bytes in Apache Hudi."""


@dataclass(frozen=True, slots=True)
class Values:
    """The allowed values of an option: `wanted` describes them; `parse` raises KeyError or ValueError for others."""

    wanted: str
    parse: Callable[[str], Any]


def words(known: Mapping[str, Any], *, named: tuple[str, ...] = ()) -> Values:
    """One of some words, in any case, mapped to its value. Error messages list those `named`, by default all."""
    *others, last = named or tuple(known)
    return Values(f"{', '.join(others)} or {last}" if others else last, lambda text: known[text.strip().lower()])


def numbers(least: int = 1, most: int = INT_MAX) -> Values:
    """A whole number in decimal digits."""

    def parse(text: str) -> int:
        # Python's int() accepts more than Java does, and more than users mean: 1_000, and digits of any script.
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(digits) <= most):
            raise ValueError(text)
        return int(digits)

    return Values(f"a whole number from {least} to {most}", parse)


def factors(least: float, most: float) -> Values:
    """A number that may have a fraction."""

    def parse(text: str) -> float:
        number = float(text) if text.isascii() and "_" not in text else math.nan
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return Values(f"a number from {least:g} to {most:g}", parse)


FLAG = words({"true": True, "false": False})


def parse_value(key: str, given: object, values: Values) -> Any:
    """The parsed value of an option; InvalidInputError names the allowed values if it is none of them."""
    try:
        return values.parse(str(given))
    except (KeyError, ValueError) as error:
        raise InvalidInputError(f"the option {key}={given} is not supported", hint=f"use {values.wanted}") from error
