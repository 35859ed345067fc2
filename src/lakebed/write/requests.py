"""What a write is asked to do, as values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.write.operations import DELETE_PARTITION, Operation
from lakebed.write.plan import TagRule
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.staging import RowSource


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Write rows whose data columns are `columns`; `rule` says how their keys are found."""

    source: RowSource
    columns: pa.Schema
    operation: Operation
    rule: TagRule
    arrangement: Arrangement


@dataclass(frozen=True, slots=True)
class DeletePartitions:
    """Hide every file group of partitions, given as their paths."""

    partitions: frozenset[str]
    operation: Operation = DELETE_PARTITION


WriteRequest = WriteRows | DeletePartitions
