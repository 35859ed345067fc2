"""Clustering plans: options, and which file slices are rewritten together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, Literal

from lakebed.errors import InvalidInputError
from lakebed.model.commit import ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakebed.model.files import FileSlice
from lakebed.options import parse_option

SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT = "hoodie.layout.optimize.strategy"
PARTITIONS = "hoodie.clustering.plan.strategy.partition.selected"
STRATEGY = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
"""Apache Hudi's class that executes a plan: it sorts the rows of a group and splits them into files."""
_LAYOUTS = {"linear": "LINEAR", "z-order": "ZORDER", "hilbert": "HILBERT"}
_SMALL_SHARE = 5 / 6
"""Share of the target size from which on a file is not rewritten for its size alone."""
_MIB = 1 << 20
Layout = Literal["linear", "z-order", "hilbert"]
"""How rows are ordered by several columns: by one after the other, or along a space-filling curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringSizing:
    """Which files are clustered, and the size of new ones.

    New files have about `target_file_bytes`, by default as in writes. Files of at least `small_file_bytes` are left
    alone: by default files of nearly the target size, or none if rows are ordered. The rows of a group, of files of at
    most `group_bytes_max` together, are in memory at once (Apache Hudi, which spills, allows 2 GiB). A plan has at most
    `groups_max` groups.
    """

    target_file_bytes: int | None = field(
        default=None, metadata={"hoodie": "hoodie.clustering.plan.strategy.target.file.max.bytes"}
    )
    small_file_bytes: int | None = field(
        default=None, metadata={"hoodie": "hoodie.clustering.plan.strategy.small.file.limit"}
    )
    group_bytes_max: int = field(
        default=512 << 20, metadata={"hoodie": "hoodie.clustering.plan.strategy.max.bytes.per.group"}
    )
    groups_max: int = field(default=30, metadata={"hoodie": "hoodie.clustering.plan.strategy.max.num.groups"})

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{each.name} is {value}", hint="give a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringOptions:
    """Options of a plan: the order of rows, the partitions (None: all), and the sizes of files."""

    order_by: tuple[str, ...] = ()
    layout: Layout = "linear"
    partitions: tuple[str, ...] | None = None
    sizing: ClusteringSizing = field(default_factory=ClusteringSizing)


def parse_clustering_options(options: Mapping[str, str]) -> ClusteringOptions:
    """Clustering options from `hoodie.*` options; other options are ignored."""
    sizes: dict[str, Any] = {}
    for each in fields(ClusteringSizing):
        spelling = each.metadata["hoodie"]
        if spelling in options:
            sizes[each.name] = parse_option(spelling, options[spelling])
    partitions = _parse_list(options[PARTITIONS]) if PARTITIONS in options else None
    return ClusteringOptions(
        order_by=_parse_list(options.get(SORT_COLUMNS, "")),
        layout=parse_option(LAYOUT, options.get(LAYOUT, "linear")),
        partitions=partitions,
        sizing=ClusteringSizing(**sizes),
    )


def parse_layout(text: str) -> Layout:
    """A layout; Apache Hudi's spelling `zorder` is accepted, in any case."""
    try:
        found: Layout = parse_option(LAYOUT, text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"there is no layout {text!r}", hint="use linear, z-order, zorder or hilbert"
        ) from error
    return found


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def plan_clustering(
    slices: Iterable[FileSlice], options: ClusteringOptions, *, target_file_bytes: int
) -> ClusteringPlan | None:
    """A plan for those of `slices` that are worth rewriting; None if none is.

    `target_file_bytes` is the default if `options` have none. Groups with the oldest files come first, so that
    successive plans of a few groups cover the whole table.
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
    """Packs slices of one partition into groups of at most that size, large ones first; a larger slice is alone."""
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
    """Total size of a slice's files, as far as it is known."""
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
    """The metrics of a group, as Apache Hudi writes them; sizes of I/O are whole mebibytes."""
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
    """The plan, with its layout: Apache Hudi leaves that out, but any process must be able to execute the plan."""
    params = {SORT_COLUMNS: ",".join(options.order_by)} if options.order_by else {}
    if options.layout != "linear":
        params[LAYOUT] = _LAYOUTS[options.layout]
    return ClusteringPlan(groups, STRATEGY, params, preserve_meta_columns=True)
