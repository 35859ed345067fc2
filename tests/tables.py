"""Tables that many tests begin with: each is written once, and every test gets a copy of its own."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

TRIPS = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
"""Columns of most tables: a key, a partition, an ordering value and something to change."""


def copied(originals: Mapping[str, Path], name: str, path: Path) -> Path:
    """A copy of one of the tables that a fixture of the module has written, before tests change how writes go."""
    return Path(shutil.copytree(originals[name], path))
