"""The steps of the protocol: those that the code names and those that docs/protocol.md describes are the same."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LABEL = r"(?:begin|commit|index|lease|maintain|restore|rollback|service|stream)\.(?!json)[A-Za-z0-9]+"


def in_code() -> set[str]:
    """The labels that the protocol layer hands to its ports."""
    files = sorted((ROOT / "src/lakebed").rglob("*.py"))
    return {label for file in files for label in re.findall(r"\bat\(\"([^\"]+)\"\)", file.read_text())}


def in_docs() -> set[str]:
    """The labels that stand first in a row of a table of steps."""
    text = (ROOT / "docs/protocol.md").read_text()
    return set(re.findall(rf"^\| `({_LABEL})` \|", text, re.MULTILINE))


def test_every_step_in_the_code_is_described() -> None:
    assert in_code() - in_docs() == set()


def test_every_described_step_is_in_the_code() -> None:
    assert in_docs() - in_code() == set()


def test_labels_are_spelt_alike_everywhere_in_the_docs() -> None:
    text = (ROOT / "docs/protocol.md").read_text()
    assert set(re.findall(rf"`({_LABEL})`", text)) <= in_code()
