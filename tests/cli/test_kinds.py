"""What the parser of commands allows is what the calls behind them know."""

from __future__ import annotations

from typing import get_args

from lakebed.cli.index import SHARDS_MAX
from lakebed.cli.services import LayoutName
from lakebed.index import kinds
from lakebed.index.words import COMMANDS, TOLD_BY_TABLE
from lakebed.services.clustering.plan import Layout, parse_layout
from lakebed.services.indexing import request


def test_kinds_of_indexes() -> None:
    assert {*COMMANDS, *TOLD_BY_TABLE} == {word for kind in kinds.KINDS for word in kind.words}
    assert request._SHARDS_MAX == SHARDS_MAX


def test_layouts() -> None:
    assert {parse_layout(each.value) for each in LayoutName} == {*get_args(Layout)}
