"""Checks of user text: Python strings can contain unpaired surrogates, which cannot be stored."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.errors import InvalidInputError


def is_unicode(text: str) -> bool:
    """Whether the text can be stored."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_texts(texts: Iterable[str], what: str) -> None:
    """InvalidInputError, which calls it `what`, for the first text that cannot be stored."""
    for text in texts:
        if not is_unicode(text):
            raise InvalidInputError(
                f"{what} {text[:80]!r} contains an unpaired surrogate",
                hint="give text that can be encoded as UTF-8; decode bytes with the encoding they were written in",
            )
