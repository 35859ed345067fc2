"""Names of columns that are not there, and the nearest that are."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def suggest_names(name: str, names: Sequence[str]) -> str:
    """What to say of a name that is none of `names`: which one may be meant, and all of them."""
    by_case = [each for each in names if each.casefold() == name.casefold()]
    near = by_case or get_close_matches(name, names, n=1)
    question = f"did you mean {near[0]!r}? " if near else ""
    return f"{question}the columns are {', '.join(names)}"
