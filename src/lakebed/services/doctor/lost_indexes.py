"""Findings about indexes that the table had and lost: by a restore, a process that died, or another engine."""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.index.keys import KEY_INDEX
from lakebed.index.kinds import named_partitions
from lakebed.index.lost import has_lost_global_index, lost_indexes
from lakebed.metadata.files import FILES
from lakebed.services.doctor.finding import Finding, Kind, Remedy
from lakebed.table import TableState


def find_lost_indexes(state: TableState) -> Iterator[Finding]:
    """Every index that is lost, and what the table does without it."""
    for name in lost_indexes(state):
        can = name in named_partitions().values()
        repair = "rebuild it from the rows" if can else "create it with Apache Hudi, or drop it for good"
        yield Finding(
            Kind.INDEX,
            name,
            "the table lost it: to a restore, a process that died, or another engine",
            _meaning(state, name),
            Remedy.REBUILD if can else Remedy.BY_HAND,
            repair,
        )


def _meaning(state: TableState, name: str) -> str:
    if name == FILES:
        return "reads and writes list folders, which takes longer"
    if name != KEY_INDEX:
        return "reads that could use it to exclude files"
    if has_lost_global_index(state):
        return "upserts: a key that is stored in another partition would be duplicated"
    return "reads by key; writes look for keys in files, which takes longer"
