"""The merge rules a table's configuration asks for."""

from __future__ import annotations

from lakebed.errors import UnsupportedTableError
from lakebed.model.config import TableConfig
from lakebed.model.words import MergeMode
from lakebed.read.merge import Rules

_CURRENT = {
    MergeMode.COMMIT_TIME_ORDERING: Rules.COMMIT_TIME,
    MergeMode.EVENT_TIME_ORDERING: Rules.EVENT_TIME,
}
_VERSION_6 = {
    MergeMode.COMMIT_TIME_ORDERING: Rules.OVERWRITE_V6,
    MergeMode.EVENT_TIME_ORDERING: Rules.EVENT_TIME_V6,
}


def merge_rules(config: TableConfig) -> Rules:
    """The rules for records of one key; custom ones raise UnsupportedTableError. Only slices with logs need them."""
    rules = (_VERSION_6 if config.version == 6 else _CURRENT).get(config.merge_mode)
    custom = config.custom_merging
    if rules is None or custom:
        raise UnsupportedTableError(
            f"table {config.name} merges records by {custom or 'a custom merger'}, which lakebed cannot run",
            hint='compact the table with the engine that wrote it, or read with mode="read_optimized"',
        )
    return rules
