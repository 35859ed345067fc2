"""Outside of `index/` and `format/`, no module names a kind of index: it asks all kinds, or asks by capability."""

from __future__ import annotations

import re
from pathlib import Path

import lakebed
from lakebed.index.kinds import KINDS
from lakebed.options import INDEX_SWITCHES

SOURCE = Path(lakebed.__file__).parent
NAMED = re.compile(
    "RECORD_INDEX|COLUMN_STATS|PARTITION_STATS|BLOOM_FILTERS|SECONDARY|record_index|column_stats|partition_stats|"
    r"bloom_filters|secondary_index|expr_index|index\.(record|bloom|column_stats|secondary|partition_stats|files|"
    r"expression)\b"
)
STILL = {"options.py"}
"""It stands below all kinds, and spells the keys of index switches and the values of hoodie.index.type."""


def test_no_other_module_names_a_kind() -> None:
    modules = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py")}
    others = {name: path for name, path in modules.items() if not name.startswith(("index/", "format/"))}
    found = {name for name, path in others.items() if NAMED.search(path.read_text())}
    assert found == STILL


def test_what_is_looked_for_finds_every_kind() -> None:
    names = {kind.partition for kind in KINDS} - {"files"}
    assert all(NAMED.search(name) for name in names)
    folders = {path.name for path in (SOURCE / "index").iterdir() if (path / "kind.py").is_file()}
    assert all(NAMED.search(f"from lakebed.index.{folder} import kind") for folder in folders)


def test_every_switch_of_an_index_is_of_one_kind() -> None:
    switches = [key for kind in KINDS for key in kind.switches]
    assert sorted(switches) == sorted(INDEX_SWITCHES)
