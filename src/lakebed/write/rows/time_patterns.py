"""Date and time patterns of the timestamp-based key generator: `yyyy/MM/dd`, `yyyy-MM-dd'T'HH:mm:ssZ`.

A pattern is parsed into tokens once; columns of times are then formatted or parsed token by token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedTableError

_PIECES = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>[^A-Za-z']+)")
_READ = {"y": 9, "M": 2, "d": 2, "H": 2, "m": 2, "s": 2, "S": 9, "Z": 0}
"""Letters of input patterns, with the maximum number of digits."""
_SPELLED = frozenset("yMdDHhkKmsS")
_ZONE = r"Z|[+-]\d{2}:?\d{2}"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a pattern: a repeated `letter`, or literal text."""

    text: str
    letter: str = ""

    @property
    def width(self) -> int:
        """How often the letter is repeated: the minimum number of digits."""
        return len(self.text)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern and its tokens."""

    text: str
    tokens: tuple[Token, ...]

    @property
    def letters(self) -> frozenset[str]:
        """The letters that occur."""
        return frozenset(token.letter for token in self.tokens)

    @property
    def unit_ms(self) -> int:
        """The resolution of the pattern, in milliseconds."""
        for letters, unit in (("S", 1), ("s", 1000), ("m", 60_000), ("HhkK", 3_600_000)):
            if not self.letters.isdisjoint(letters):
                return unit
        return 86_400_000


def parse_output_pattern(text: str, *, path: str) -> TimePattern:
    """Parses a pattern for formatting; raises UnsupportedTableError if it is not supported."""
    pattern = _parse(text, path)
    for token in pattern.tokens:
        is_known = not token.letter or (token.letter in _SPELLED and (token.letter != "M" or token.width <= 2))
        if not is_known:
            raise _unsupported(text, token.text, path)
    return pattern


def parse_input_pattern(text: str, *, path: str) -> TimePattern:
    """Parses a pattern for parsing; raises UnsupportedTableError if it is not supported."""
    pattern = _parse(text, path)
    for token in pattern.tokens:
        is_known = not token.letter or (token.letter in _READ and (token.letter not in "yM" or _is_plain(token)))
        if not is_known:
            raise _unsupported(text, token.text, path)
    letters = [token.letter for token in pattern.tokens if token.letter]
    if "y" not in letters or len(letters) > len({*letters}):
        raise _unsupported(text, text, path)
    return pattern


def spell_times(times: pa.Array, pattern: TimePattern) -> pa.Array:
    """Formats local times in milliseconds."""
    return pc.binary_join_element_wise(*(_spelled(times, token) for token in pattern.tokens), "")


def spell_time(moment: datetime, pattern: TimePattern) -> str:
    """Formats one time by an input pattern."""
    numbers = {"y": moment.year, "M": moment.month, "d": moment.day}
    numbers |= {"H": moment.hour, "m": moment.minute, "s": moment.second}
    texts = {"S": f"{moment.microsecond:06d}000", "Z": moment.strftime("%z")}

    def spell(token: Token) -> str:
        if token.letter in numbers:
            return str(numbers[token.letter]).zfill(token.width)
        if token.letter == "S":
            return texts["S"][: token.width]
        return texts.get(token.letter, token.text)

    return "".join(map(spell, pattern.tokens))


def read_times(texts: pa.Array, pattern: TimePattern) -> tuple[pa.Array, pa.Array]:
    """Parses texts into local times in milliseconds, and their offsets from UTC in minutes (null if not given).

    Null for a text that does not match the pattern, or is a day or time that does not exist.
    """
    parts = pc.extract_regex(texts, _regex(pattern.tokens))
    found = {letter: pc.struct_field(parts, letter) for letter in pattern.letters - {""}}
    date = [_padded(found, "y", 4, "0000"), _padded(found, "M", 2, "01"), _padded(found, "d", 2, "01")]
    time = [_padded(found, letter, 2, "00") for letter in "Hms"]
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(found["S"], 3, "0"), 0, 3) if "S" in found else "000"
    moment = pc.binary_join_element_wise(
        pc.binary_join_element_wise(*date, "-"), " ", pc.binary_join_element_wise(*time, ":"), ".", fraction, ""
    )
    return _to_times(moment), _offsets(found.get("Z"), len(texts))


def _parse(text: str, path: str) -> TimePattern:
    tokens, place = [], 0
    while place < len(text):
        piece = _PIECES.match(text, place)
        if piece is None:
            raise _unsupported(text, text[place:], path)
        if piece["letters"]:
            tokens.append(Token(piece["letters"], piece["letters"][0]))
        else:
            tokens.append(Token(piece["other"] or (piece["quoted"] or "").replace("''", "'") or "'"))
        place = piece.end()
    return TimePattern(text, tuple(tokens))


def _is_plain(token: Token) -> bool:
    return token.width == 4 if token.letter == "y" else token.width <= 2


def _spelled(times: pa.Array, token: Token) -> object:
    if not token.letter:
        return token.text
    if token.letter == "S":
        millis = pc.utf8_lpad(pc.cast(pc.millisecond(times), pa.string()), 3, "0")
        return pc.utf8_slice_codeunits(pc.utf8_rpad(millis, max(token.width, 3), "0"), 0, token.width)
    number = _number(times, token)
    return pc.utf8_lpad(pc.cast(number, pa.string()), token.width, "0")


def _number(times: pa.Array, token: Token) -> pa.Array:
    letter = token.letter
    if letter == "y":
        year = pc.year(times)
        return pc.subtract(year, pc.multiply(pc.divide(year, 100), 100)) if token.width == 2 else year
    if letter in "hkK":
        hour = pc.hour(times)
        wrap = 24 if letter == "k" else 12
        rest = pc.subtract(hour, pc.multiply(pc.divide(hour, wrap), wrap))
        return rest if letter == "K" else pc.if_else(pc.equal(rest, 0), wrap, rest)
    parts = {"M": pc.month, "d": pc.day, "D": pc.day_of_year, "H": pc.hour, "m": pc.minute, "s": pc.second}
    return parts[letter](times)


def _regex(tokens: Sequence[Token]) -> str:
    """A number matches up to its maximum of digits, but exactly its width if another number follows."""
    pieces = []
    for token, after in zip(tokens, (*tokens[1:], Token("")), strict=True):
        if not token.letter:
            pieces.append(re.escape(token.text))
            continue
        most = token.width if token.letter == "S" else _READ[token.letter]
        is_followed = bool(after.letter) and after.letter != "Z"
        digits = _ZONE if token.letter == "Z" else rf"\d{{{token.width}}}" if is_followed else rf"\d{{1,{most}}}"
        pieces.append(f"(?P<{token.letter}>{digits})")
    return f"^{''.join(pieces)}$"


def _padded(found: dict[str, pa.Array], letter: str, width: int, default: str) -> object:
    return pc.utf8_lpad(found[letter], width, "0") if letter in found else default


def _to_times(texts: pa.Array) -> pa.Array:
    """Texts `yyyy-MM-dd HH:mm:ss.SSS` as times; null where there is no such time."""
    try:
        return pc.cast(texts, pa.timestamp("ms"))
    except pa.ArrowInvalid:
        # Some text is invalid, and the caller wants to know which; distinct texts are few, so a loop is fine.
        return pa.array([_to_time(text) for text in texts.to_pylist()], pa.timestamp("ms"))


def _to_time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f")
    except ValueError:
        return None


def _offsets(zones: pa.Array | None, count: int) -> pa.Array:
    if zones is None:
        return pa.nulls(count, pa.int64())
    digits = pc.replace_substring(pc.if_else(pc.equal(zones, "Z"), "+0000", zones), ":", "")
    hours = pc.cast(pc.utf8_slice_codeunits(digits, 1, 3), pa.int64())
    minutes = pc.add(pc.multiply(hours, 60), pc.cast(pc.utf8_slice_codeunits(digits, 3, 5), pa.int64()))
    return pc.if_else(pc.starts_with(digits, "-"), pc.negate(minutes), minutes)


def _unsupported(pattern: str, piece: str, path: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{path}: {piece!r} in the time pattern {pattern!r} is not supported",
        hint="lakebed knows numbers of years, months, days, hours, minutes and seconds, e.g. yyyy-MM-dd-HH",
    )
