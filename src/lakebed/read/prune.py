"""Pruning: excludes file slices that cannot hold a matching row, by partition path, then by each kind of index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTableError
from lakebed.filter.keys import typed_partition_values
from lakebed.filter.predicate import columns_of
from lakebed.filter.ranges import Ranges
from lakebed.index.kinds import lookup_kind, pruning_kinds
from lakebed.index.prune import Kept, NotUsed, Query, Slices, keep_partitions, wanted_keys
from lakebed.metadata import MetadataTable, Unusable
from lakebed.metadata.table import CHANGED
from lakebed.read.file_slice import LOOKUP_KEYS_MAX as LOOKUP_KEYS_MAX

_PATHS = "partition path"

Pruner = Callable[[Query, Slices], "Kept | NotUsed"]


@dataclass(frozen=True, slots=True)
class PruneStep:
    """What one index contributed to a scan: whether it was used, and why."""

    index: str
    used: bool
    reason: str
    slices_before: int
    slices_after: int

    def __str__(self) -> str:
        if not self.used:
            return f"{self.index}: not used, {self.reason}"
        return f"{self.index}: {self.slices_before} -> {self.slices_after} file slices, {self.reason}"


def prune_slices(query: Query, slices: Slices) -> tuple[Slices, tuple[PruneStep, ...]]:
    """The slices that may contain a matching row, and what each index contributed.

    If an index was dropped meanwhile and its files are missing, it is not used.
    """
    kept, steps = _prune(query, slices)
    if isinstance(query.metadata, Unusable) or not any(step.used and step.index != _PATHS for step in steps):
        return kept, steps
    return _prune(query, slices) if query.metadata.leave_out_changed() else (kept, steps)


def _prune(query: Query, slices: Slices) -> tuple[Slices, tuple[PruneStep, ...]]:
    steps = []
    for name, pruner in pruners():
        before = len(slices)
        outcome = _ask(pruner, query, slices) if slices else NotUsed("no file slice is left to exclude")
        if isinstance(outcome, Kept):
            slices = outcome.slices
        steps.append(PruneStep(name, isinstance(outcome, Kept), outcome.reason, before, len(slices)))
    return slices, tuple(steps)


def _ask(pruner: Pruner, query: Query, slices: Slices) -> Kept | NotUsed:
    try:
        return pruner(query, slices)
    except CorruptTableError:
        if isinstance(query.metadata, MetadataTable) and query.metadata.has_changed():
            return NotUsed(CHANGED)
        raise


def few_keys(query: Query, steps: tuple[PruneStep, ...]) -> frozenset[str] | None:
    """The keys of all rows that can match, if the record index was used and they are few; else None."""
    keys = wanted_keys(query)
    asked = any(step.index == lookup_kind().label and step.used for step in steps)
    is_few = asked and not isinstance(keys, NotUsed) and 0 < len(keys) <= LOOKUP_KEYS_MAX
    return frozenset(keys) if is_few and not isinstance(keys, NotUsed) else None


def _by_partition_path(query: Query, slices: Slices) -> Kept | NotUsed:
    if not query.config.partition_fields:
        return NotUsed("the table is not partitioned")
    filtered = columns_of(query.predicate) & set(query.config.partition_fields)
    if not filtered:
        return NotUsed("the filter names no partition column")
    paths = sorted({file_slice.group.partition for file_slice in slices})
    values = typed_partition_values(paths, query.config, query.schema)
    ranges = {name: _exact(array) for name, array in values.items()}
    if not ranges.keys() & filtered:
        return NotUsed(f"paths do not contain the values of {', '.join(sorted(filtered))}")
    return keep_partitions(query, slices, paths, ranges, f"by values of {', '.join(sorted(filtered))} in paths")


def pruners() -> tuple[tuple[str, Pruner], ...]:
    """Pruners by name, cheapest first."""
    return ((_PATHS, _by_partition_path), *((kind.label, kind.prune) for kind in pruning_kinds()))


def _exact(values: pa.Array) -> Ranges:
    """Ranges of one value each; nothing is known where the value is null."""
    null_count = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    return Ranges(values, values, null_count, pa.repeat(pa.scalar(1, pa.int64()), len(values)))
