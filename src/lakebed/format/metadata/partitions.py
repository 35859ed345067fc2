"""Partitions of the metadata table, as the format names them: what must be known of one without asking its kind."""

from __future__ import annotations

_BY_NAME = ("secondary_index_", "expr_index_")
"""Name prefixes of indexes whose columns are recorded only in their definitions."""
_ALWAYS_DEFINED = "column_stats"
_OWN_DEFINED = "record_index"


def needs_columns(partition: str) -> bool:
    """Whether an index is of no use without its definition: nothing else says which columns it is on."""
    return partition.startswith(_BY_NAME)


def is_defined(partition: str) -> bool:
    """Whether index.json has an entry for an index."""
    return partition in (_ALWAYS_DEFINED, _OWN_DEFINED) or needs_columns(partition)


def must_be_defined(partition: str, *, is_own: bool) -> bool:
    """Whether a write depends on the definition. A key index that is shared with other engines is global without one.

    `is_own`: only lakebed knows the index.
    """
    return partition == _ALWAYS_DEFINED or (is_own and partition == _OWN_DEFINED)


def only_widens(partition: str) -> bool:
    """Whether log files of an index may be added ahead of a write: its entries only widen others."""
    return partition == "partition_stats"
