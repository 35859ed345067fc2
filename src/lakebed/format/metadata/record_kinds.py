"""Types of metadata records."""

from __future__ import annotations

from enum import IntEnum


class RecordKind(IntEnum):
    """The `type` of a metadata record: which of its payloads is set."""

    ALL_PARTITIONS = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTERS = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7
