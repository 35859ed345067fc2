"""How clusterings are planned, and the `hoodie.*` spellings of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from lakebed.errors import InvalidInputError
from lakebed.options import parse_option

SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT = "hoodie.layout.optimize.strategy"
PARTITIONS = "hoodie.clustering.plan.strategy.partition.selected"
Layout = Literal["linear", "z-order", "hilbert"]
"""How rows are ordered by several columns: by one after the other, or along a curve through all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringSizing:
    """Which files are clustered, and into how large ones.

    New files have about `target_file_bytes`, by default as those of writes. Files of at least `small_file_bytes` are
    left alone; by default those are of nearly the target size, or, where rows are ordered, none. The rows of a group,
    files of `group_bytes_max` together, are in memory at once: Apache Hudi, which spills, has 2 GiB. A plan has
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
    """What a plan is made from: the order of rows, the partitions (None: all), and the sizes of files."""

    order_by: tuple[str, ...] = ()
    layout: Layout = "linear"
    partitions: tuple[str, ...] | None = None
    sizing: ClusteringSizing = field(default_factory=ClusteringSizing)


def parse_clustering_options(options: Mapping[str, str]) -> ClusteringOptions:
    """Clustering options from their `hoodie.*` spellings; other options are left alone."""
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
    """A layout, also as Apache Hudi spells it: `zorder`, in any case."""
    try:
        found: Layout = parse_option(LAYOUT, text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"there is no layout {text!r}", hint="use linear, z-order, zorder or hilbert"
        ) from error
    return found


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
