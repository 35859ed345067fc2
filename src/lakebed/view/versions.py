"""All versions of a file group, including old ones, from which cleaning selects those to delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.view.slices import Completions


@dataclass(slots=True)
class Version:
    """Names of the files of one file slice, which is visible from a completion time on ('' if always)."""

    since: str
    names: list[str] = field(default_factory=list)


def group_versions(files: Iterable[BaseFile | LogFile], completion_of: Completions) -> dict[str, list[Version]]:
    """The versions of each file group, oldest first, by file id. Files of instants that did not complete are left out:
    they are for a rollback to delete.
    """
    groups: dict[str, tuple[list[BaseFile], list[LogFile]]] = {}
    for file in files:
        if completion_of(file.instant) is not None:
            bases, logs = groups.setdefault(file.file_id, ([], []))
            bases.append(file) if isinstance(file, BaseFile) else logs.append(file)
    return {file_id: _versions(*groups[file_id], completion_of) for file_id in sorted(groups)}


def superseded(versions: list[Version], before: str) -> list[Version]:
    """The versions that no reader needs whose snapshot includes everything completed before a time."""
    return [version for version in versions if version.since < before][:-1]


def _versions(bases: list[BaseFile], logs: list[LogFile], completion_of: Completions) -> list[Version]:
    """A log belongs to the newest base file requested before it completed; others form a slice without base file."""
    versions: dict[InstantTime, Version] = {}
    for base in sorted(bases, key=lambda base: base.instant):
        versions.setdefault(base.instant, Version(completion_of(base.instant) or "")).names.append(base.name)
    first = Version("")
    for log in logs:
        completed_at = completion_of(log.instant) or ""
        below = max((instant for instant in versions if instant <= completed_at), default=None)
        (first if below is None else versions[below]).names.append(log.name)
    return [*([first] if first.names else []), *versions.values()]
