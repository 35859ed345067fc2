"""What the migration page says of options is what becomes of them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from lakebed.errors import InvalidInputError
from lakebed.index.names import switched_word
from lakebed.options import INDEX_SWITCHES, parse_read_options, parse_write_options
from lakebed.source.options import TABLE_PROPERTIES, known_save_options, parse_save_options

PAGE = Path(__file__).parents[2] / "docs" / "from-hudi.md"


def parse(options: dict[str, str]) -> None:
    """All that a save does with options, or a read with its own."""
    others = parse_save_options(options).others
    parse_read_options(others)
    parse_write_options(others)


def test_the_page_lists_what_is_known() -> None:
    listed = dict(re.findall(r"^\| `([^`]*)` \| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    assert listed == known_save_options()
    assert list(listed) == sorted(listed)


@pytest.mark.parametrize(("option", "outcome"), sorted(known_save_options().items()))
def test_every_option_does_what_the_page_says(option: str, outcome: str) -> None:
    """No known option warns. Those without a free choice raise for a value that nobody could mean."""
    if outcome == "no effect":
        parse({option: "whatever"})
    elif outcome != "supported":
        for value in outcome.removeprefix("only ").split(" or ") if outcome != "refused" else ():
            parse({option: value})
        with pytest.raises(InvalidInputError, match="is not supported"):
            parse({option: "whatever"})
    else:
        with suppress(InvalidInputError):  # Not every option takes a number, but none of them is unknown.
            parse({option: "1"})


def test_two_options_for_one_thing_must_agree() -> None:
    key, other = TABLE_PROPERTIES["key"].spellings
    assert parse_save_options({key: "a, b", other: "a,b"}).properties == {"key": ("a", "b")}
    with pytest.raises(InvalidInputError, match="is b, but another option says a"):
        parse_save_options({key: "a", other: "b"})
    first, second = (option for option in INDEX_SWITCHES if switched_word(option) == "record")
    with pytest.raises(InvalidInputError, match="is False, but another option says True"):
        parse_save_options({first: "true", second: "false"})
