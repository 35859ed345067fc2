"""Which files of a table may go: those that no retained snapshot, writer, plan, savepoint or reader needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakebed.model.files import BaseFile, FileGroupId, LogFile
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Word
from lakebed.options import parse_option
from lakebed.transaction.times import shift_time
from lakebed.view.slices import Completions, Version, group_versions, superseded

NEVER = InstantTime("9" * 17)
"""After every completion time."""


class CleanPolicy(Word):
    """What decides how long old file slices stay."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much of the past stays readable: the newest commits, hours, or versions of each file group.

    With `incremental` only the partitions are looked at that were written to since the last clean.
    """

    policy: CleanPolicy = CleanPolicy.KEEP_LATEST_COMMITS
    commits: int = 10
    hours: int = 24
    versions: int = 3
    incremental: bool = True


_COUNTS = {
    "commits": (CleanPolicy.KEEP_LATEST_COMMITS, "hoodie.clean.commits.retained"),
    "hours": (CleanPolicy.KEEP_LATEST_BY_HOURS, "hoodie.clean.hours.retained"),
    "versions": (CleanPolicy.KEEP_LATEST_FILE_VERSIONS, "hoodie.clean.fileversions.retained"),
}
_POLICY, _INCREMENTAL = "hoodie.clean.policy", "hoodie.clean.incremental.enabled"
_OLDER = {
    "hoodie.cleaner.policy": _POLICY,
    "hoodie.cleaner.commits.retained": "hoodie.clean.commits.retained",
    "hoodie.cleaner.hours.retained": "hoodie.clean.hours.retained",
    "hoodie.cleaner.fileversions.retained": "hoodie.clean.fileversions.retained",
    "hoodie.cleaner.incremental.mode": _INCREMENTAL,
}


def parse_retention(options: Mapping[str, str]) -> Retention:
    """The retention that `hoodie.clean.*` options ask for, in today's or older spellings; others are left alone.

    Without a policy, the one whose number is given counts.
    """
    older = {today: key for key, today in _OLDER.items()}
    named = (_POLICY, _INCREMENTAL, *(key for _, key in _COUNTS.values()))
    spelled = {key: key if key in options else older[key] for key in named}
    given = {key: parse_option(text, options[text]) for key, text in spelled.items() if text in options}
    counts = {name: given[key] for name, (_, key) in _COUNTS.items() if key in given}
    policy = _COUNTS[next(iter(counts))][0] if len(counts) == 1 else CleanPolicy.KEEP_LATEST_COMMITS
    policy = CleanPolicy(given.get(_POLICY, policy))
    return replace(Retention(), policy=policy, incremental=given.get(_INCREMENTAL, True), **counts)


def earliest_to_retain(
    retention: Retention, commits: Sequence[Instant], *, now: InstantTime, before: InstantTime = NEVER
) -> Instant | None:
    """The first of the `commits`, which are in completion order, whose snapshot stays readable; None if all do.

    It completed before the time `before`: that of the oldest write that is still under way.
    """
    if retention.policy is CleanPolicy.KEEP_LATEST_BY_HOURS:
        cut = shift_time(now, -retention.hours * 3_600_000)
        wanted = next((i for i in commits if _completion(i) >= cut), commits[-1] if commits else None)
    else:
        wanted = commits[-retention.commits] if len(commits) > retention.commits else None
    if wanted is None or _completion(wanted) < before:
        return wanted
    return next((i for i in reversed(commits) if _completion(i) < before), None)


@dataclass(frozen=True, slots=True)
class CleanScope:
    """What decides over the files of a partition.

    Readers and writers see at least what had completed `before` a time. File groups that were `replaced`, by when, can
    go as a whole. Of the others at least `versions` stay. A slice with a file among the `needed` names stays.
    """

    before: InstantTime
    completion_of: Completions
    replaced: Mapping[FileGroupId, InstantTime] = field(default_factory=dict)
    needed: Collection[str] = frozenset()
    versions: int = 1


def removable_files(partition: str, files: Iterable[BaseFile | LogFile], scope: CleanScope) -> tuple[str, ...]:
    """Names of the files of a partition that may go."""
    names: list[str] = []
    for file_id, versions in group_versions(files, scope.completion_of).items():
        hidden = scope.replaced.get(FileGroupId(partition, file_id), NEVER) < scope.before
        for old in versions if hidden else _old(versions, scope):
            if not any(name in scope.needed for name in old.names):
                names += old.names
    return tuple(names)


def _old(versions: list[Version], scope: CleanScope) -> list[Version]:
    return superseded(versions, scope.before)[: max(len(versions) - scope.versions, 0)]


def _completion(instant: Instant) -> InstantTime:
    return instant.completed_at or NEVER
