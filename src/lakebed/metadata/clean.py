"""Which files of the metadata table no reader needs any more.

A reader may stand at any of the newest commits. Of each shard it needs the slice that was the newest then, so older
ones can go. Files of instants that did not complete are not touched: they are for a rollback to delete.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.view.slices import Completions

COMMITS_RETAINED = 20
"""Hudi keeps the metadata table readable as of that many commits, or 1.2 times those of the data table if more."""


@dataclass(frozen=True, slots=True)
class MetadataClean:
    """Names of the files that may go, by partition. Slices as of `earliest_to_retain` and later stay."""

    earliest_to_retain: InstantTime
    files: Mapping[str, tuple[str, ...]]


@dataclass(slots=True)
class _Slice:
    """Files of one slice, which counts from a completion time on."""

    since: str
    names: list[str] = field(default_factory=list)


def plan_clean(
    files: Mapping[str, Iterable[BaseFile | LogFile]],
    commits: Sequence[InstantTime],
    completion_of: Completions,
    *,
    retained: int = COMMITS_RETAINED,
    needed: Collection[str] = frozenset(),
) -> MetadataClean | None:
    """What can go of `files`, all data files by partition; None if there is nothing.

    `commits` are the completed writes of the metadata table, compactions among them, in the order of their completion.
    A slice with a name among `needed`, such as those of pending compaction plans, stays.
    """
    if len(commits) <= retained:
        return None
    earliest = commits[-retained]
    seen_until = completion_of(earliest) or earliest
    found: dict[str, tuple[str, ...]] = {}
    for partition, of_partition in files.items():
        names = [
            name
            for slices in _slices(of_partition, completion_of)
            for old in _superseded(slices, seen_until)
            if not any(name in needed for name in old.names)
            for name in old.names
        ]
        if names:
            found[partition] = tuple(names)
    return MetadataClean(earliest, found) if found else None


def _superseded(slices: list[_Slice], seen_until: InstantTime) -> list[_Slice]:
    """The slices before the one that a reader needs who sees what had completed until then."""
    return [each for each in slices if each.since <= seen_until][:-1]


def _slices(files: Iterable[BaseFile | LogFile], completion_of: Completions) -> list[list[_Slice]]:
    """All slices of each file group, oldest first."""
    groups: dict[str, tuple[list[BaseFile], list[LogFile]]] = {}
    for file in files:
        if completion_of(file.instant) is not None:
            bases, logs = groups.setdefault(file.file_id, ([], []))
            bases.append(file) if isinstance(file, BaseFile) else logs.append(file)
    return [_slices_of_group(*group, completion_of) for _, group in sorted(groups.items())]


def _slices_of_group(bases: list[BaseFile], logs: list[LogFile], completion_of: Completions) -> list[_Slice]:
    """A log lies on the newest base file requested before the log completed; others form a slice without base file."""
    slices: dict[InstantTime, _Slice] = {}
    for base in sorted(bases, key=lambda base: base.instant):
        slices.setdefault(base.instant, _Slice(completion_of(base.instant) or "")).names.append(base.name)
    first = _Slice("")
    for log in logs:
        completed_at = completion_of(log.instant) or ""
        below = max((instant for instant in slices if instant <= completed_at), default=None)
        (first if below is None else slices[below]).names.append(log.name)
    return [*([first] if first.names else []), *slices.values()]
