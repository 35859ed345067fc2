"""Planning a clustering: which file slices become which groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from lakebed.model.commit import ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakebed.model.files import FileSlice
from lakebed.services.clustering.options import LAYOUT, SORT_COLUMNS, ClusteringOptions

STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""The class by which Apache Hudi executes a plan: it sorts the rows of a group and cuts them into files."""
_LAYOUTS = {"linear": "LINEAR", "z-order": "ZORDER", "hilbert": "HILBERT"}
_SMALL_SHARE = 5 / 6
"""A file of at least this share of the target size is not worth rewriting for its size alone."""
_MIB = 1 << 20


def plan_clustering(
    slices: Iterable[FileSlice], options: ClusteringOptions, *, target_file_bytes: int
) -> ClusteringPlan | None:
    """The plan that rewrites those of `slices` that gain by it; None if none does.

    `target_file_bytes` counts where `options` do not say it. The groups with the oldest files come first, so that plans
    of a few groups each get to all of the table in turn.
    """
    target = options.sizing.target_file_bytes or target_file_bytes
    limit = options.sizing.small_file_bytes or (None if options.order_by else target * _SMALL_SHARE)
    chosen = [each for each in slices if limit is None or slice_bytes(each) < limit]
    if options.partitions is not None:
        chosen = [each for each in chosen if each.group.partition in options.partitions]
    packed = [
        group
        for _, part in groupby(sorted(chosen, key=_partition), key=_partition)
        for group in pack_slices(part, options.sizing.group_bytes_max)
        if options.order_by or _output_count(group, target) < len(group)
    ]
    packed.sort(key=lambda group: min(each.base_instant for each in group))
    groups = tuple(_group(group, target) for group in packed[: options.sizing.groups_max])
    return _plan(groups, options) if groups else None


def pack_slices(slices: Iterable[FileSlice], bytes_max: int) -> Iterator[tuple[FileSlice, ...]]:
    """Slices of one partition in groups of at most that size together, large ones first; a larger one by itself."""
    group: list[FileSlice] = []
    total = 0
    for each in sorted(slices, key=lambda each: (-slice_bytes(each), each.group)):
        size = slice_bytes(each)
        if group and total + size > bytes_max:
            yield tuple(group)
            group, total = [], 0
        group.append(each)
        total += size
    if group:
        yield tuple(group)


def slice_bytes(file_slice: FileSlice) -> int:
    """The size of a slice's files together, as far as it is known."""
    return (file_slice.base.size or 0 if file_slice.base else 0) + sum(log.size or 0 for log in file_slice.logs)


def _partition(file_slice: FileSlice) -> str:
    return file_slice.group.partition


def _output_count(group: Sequence[FileSlice], target: int) -> int:
    return max(1, -(-sum(map(slice_bytes, group)) // target))


def _group(group: Sequence[FileSlice], target: int) -> ClusteringGroup:
    slices = tuple(
        ClusteringSlice(
            each.group.partition,
            each.group.file_id,
            each.base.name if each.base else None,
            tuple(log.name for log in each.logs),
        )
        for each in group
    )
    return ClusteringGroup(slices, _output_count(group, target), _metrics(group))


def _metrics(group: Sequence[FileSlice]) -> dict[str, float]:
    """What Apache Hudi tells of a group; sizes of I/O are whole mebibytes."""
    logs = [log for each in group for log in each.logs]
    read = sum(map(slice_bytes, group)) // _MIB
    written = sum(each.base.size or 0 for each in group if each.base) // _MIB
    return {
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(sum(log.size or 0 for log in logs)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(written),
        "TOTAL_IO_MB": float(read + written),
    }


def _plan(groups: tuple[ClusteringGroup, ...], options: ClusteringOptions) -> ClusteringPlan:
    """Apache Hudi keeps the layout to itself; a plan that any process may execute must say it."""
    params = {SORT_COLUMNS: ",".join(options.order_by)} if options.order_by else {}
    if options.layout != "linear":
        params[LAYOUT] = _LAYOUTS[options.layout]
    return ClusteringPlan(groups, STRATEGY, params, preserve_meta_columns=True)
