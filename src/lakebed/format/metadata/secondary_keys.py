"""Keys of secondary index records: escaped value, `$`, escaped record key.

A backslash stands before each `\\`, `$` and NUL; a null value is one bare NUL. The value is text: numbers are spelled
as Java does, dates as days and timestamps as microseconds since 1970.

Version V1 of the index (tables of version 8 that Hudi 1.0 wrote) leaves NUL as it is and has no entry for a null value.
"""

from __future__ import annotations

from typing import Any

from lakebed.errors import CorruptTableError

SEPARATOR = "$"
NULL_VALUE = "\0"
"""Stands for null where a value stands; a value of that one character is escaped."""

_ESCAPES = {version: {ord(c): f"\\{c}" for c in special} for version, special in (("V1", "\\$"), ("V2", "\\$\0"))}


def escape_secondary(text: str, *, version: str = "V2") -> str:
    """`text` with a backslash before each character that has a meaning in a key."""
    return text.translate(_ESCAPES[version])


def secondary_prefix(value: str | None, *, version: str = "V2") -> str:
    """What the keys of a value begin with, and those of no other value."""
    return (NULL_VALUE if value is None else escape_secondary(value, version=version)) + SEPARATOR


def secondary_key(value: str | None, record_key: str, *, version: str = "V2") -> str:
    """The key of the entry that says: the record of this key has this value."""
    return secondary_prefix(value, version=version) + escape_secondary(record_key, version=version)


def split_secondary_key(stored: str, *, path: str) -> tuple[str | None, str]:
    """Value and record key of an entry."""
    end = _separator_at(stored, path)
    value, record_key = stored[:end], stored[end + 1 :]
    return None if value == NULL_VALUE else _unescape(value, path), _unescape(record_key, path)


def secondary_hash_part(stored: str, version: str, *, path: str = "<key>") -> str:
    """The part of a stored key that decides on its file group: in V2 all keys of a value share it."""
    return stored if version == "V1" else stored[: _separator_at(stored, path) + 1]


def _separator_at(stored: str, path: str) -> int:
    at = 0
    while at < len(stored) and stored[at] != SEPARATOR:
        at += 2 if stored[at] == "\\" else 1
    if at >= len(stored):
        raise CorruptTableError(f"a secondary index key has no separator: {stored[:200]!r}", path=path)
    return at


def _unescape(text: str, path: str) -> str:
    pieces, at = [], 0
    while (escape := text.find("\\", at)) >= 0:
        if escape + 1 == len(text):
            raise CorruptTableError(f"a secondary index key ends within an escape: {text[:200]!r}", path=path)
        pieces += [text[at:escape], text[escape + 1]]
        at = escape + 2
    return "".join([*pieces, text[at:]])


def has_certain_text(value: Any) -> bool:
    """Whether every writer spells a value as `secondary_value_text` does.

    Some floats and doubles have another text where an older Java wrote it: of those, an index may not be asked alone.
    """
    if value is None or isinstance(value, (str, int)):
        return True
    from lakebed.format.metadata.secondary_columns import has_certain_text as of_any_type

    return of_any_type(value)


def secondary_value_text(value: Any) -> str | None:
    """A Python or Arrow value as the text a secondary index has for it; a type without text raises InvalidInputError.

    A Python int stands for any integer column and a float for a double; pass an Arrow scalar for another type.
    """
    if isinstance(value, str) or value is None:
        return value
    from lakebed.format.metadata.secondary_columns import (
        value_text,  # Arrow, which a look-up by record key can do without.
    )

    return value_text(value)
