"""Formats values for people: sizes, durations, times, counts."""

from __future__ import annotations

NOTHING = "-"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: int) -> str:
    """Bytes with a binary unit: `853 B`, `1.0 MiB`."""
    amount, unit = float(count), 0
    while round(amount, 1) >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def duration(seconds: float | None) -> str:
    """A duration: `0.4 ms`, `12 ms`, `6.4 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds is None:
        return NOTHING
    if seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if round(seconds, 3) < 1:
        return f"{seconds * 1000:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def count(number: int, noun: str) -> str:
    """A counted noun: `1 row`, `12,000 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def readable(iso: str | None) -> str:
    """An ISO 8601 time without fractions, with a space between date and time."""
    return NOTHING if iso is None else iso[:19].replace("T", " ")


def listed(words: tuple[str, ...]) -> str:
    """Words separated by commas."""
    return ", ".join(words) or NOTHING


def printable(text: str) -> str:
    """`text` on one line, with line breaks and control characters as backslash escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
