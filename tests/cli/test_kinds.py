"""What the parser of commands allows is what the calls behind them know."""

from __future__ import annotations

from typing import get_args

from lakebed.cli.index import _TOLD_BY_TABLE, KINDS, SHARDS_MAX
from lakebed.cli.services import LayoutName
from lakebed.index import request
from lakebed.services.clustering.options import parse_layout
from lakebed.services.values import Layout


def test_kinds_of_indexes() -> None:
    assert {*KINDS, *_TOLD_BY_TABLE} == {*request.KINDS, *request._NOT_BUILT}
    assert request._SHARDS_MAX == SHARDS_MAX


def test_layouts() -> None:
    assert {parse_layout(each.value) for each in LayoutName} == {*get_args(Layout)}
