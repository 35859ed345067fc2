"""Plans cleans of the metadata table: files that no reader needs any more.

A reader may use any of the newest commits. Of each shard it needs the slice that was the newest then; older slices can
be deleted. Files of instants that did not complete are left to rollbacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.view.slices import Completions, group_versions, superseded

COMMITS_RETAINED = 20
"""Number of commits to keep readable, as in Hudi (or 1.2 times those of the data table, if that is more)."""


@dataclass(frozen=True, slots=True)
class MetadataClean:
    """Names of files to delete, by partition. Slices as of `earliest_to_retain` and later stay."""

    earliest_to_retain: InstantTime
    files: Mapping[str, tuple[str, ...]]


def plan_clean(
    files: Mapping[str, Iterable[BaseFile | LogFile]],
    commits: Sequence[InstantTime],
    completion_of: Completions,
    *,
    retained: int = COMMITS_RETAINED,
    needed: Collection[str] = frozenset(),
) -> MetadataClean | None:
    """Which of `files`, all files by partition, can be deleted; None if none can.

    `commits` are the completed writes of the metadata table, compactions included, in completion order. A slice with a
    file in `needed`, such as those of pending compaction plans, stays.
    """
    if len(commits) <= retained:
        return None
    earliest = commits[-retained]
    after = f"{completion_of(earliest) or earliest}~"  # A reader there sees the commit itself.
    found: dict[str, tuple[str, ...]] = {}
    for partition, of_partition in files.items():
        names = [
            name
            for versions in group_versions(of_partition, completion_of).values()
            for old in superseded(versions, after)
            if not any(name in needed for name in old.names)
            for name in old.names
        ]
        if names:
            found[partition] = tuple(names)
    return MetadataClean(earliest, found) if found else None
