"""Findings about data files: stray ones, lost ones, and differences from the list in the metadata table.

The rule for deletion is here, for the examination and, under the lock, for the repair. A file is dead if no reader sees
it now and none ever will:

*   Its instant is neither on the timeline nor in the history. Files are written after their instant is requested, and
    an instant leaves the timeline only by a rollback or by archiving. Instant times are drawn under the lock and grow,
    so no instant of that time can begin. A process that was declared dead and wakes up finds its instant, heartbeat and
    ticket gone, so it cannot complete. It may write more files; the next examination finds them.
*   Or its instant completed without naming it, and the metadata table does not list it: a task that ran twice wrote it.
    Completed instants do not change. Without a metadata table, readers list folders and may see the file, so it stays.
*   Or a completed clean removed it, and the metadata table does not list it.

Instants that are pending, about to be rolled back, or have a heartbeat, live or not, are left to their owner or to a
rollback. Files younger than the heartbeat timeout are never touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lakebed.metadata.table import FILES
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy, some
from lakebed.services.doctor.listing import FoundFile, ListedFiles
from lakebed.services.doctor.look import Moment

NEVER, UNNAMED, CLEANED = "never", "unnamed", "cleaned"
_WHY = {
    NEVER: "of an instant that is neither on the timeline nor in the history: it was rolled back",
    UNNAMED: "that the completed instant does not name: a task ran twice",
    CLEANED: "that a clean removed from the table, but did not delete",
}


@dataclass(frozen=True, slots=True)
class Stray:
    """A file that no instant owns, and why; `is_dead` if it can be deleted."""

    file: FoundFile
    why: str
    is_dead: bool


def find_stray_files(facts: ListedFiles, moment: Moment) -> Iterator[Stray]:
    """Files that no instant owns."""
    for path, file in facts.found.items():
        if file.instant in facts.held or path in facts.leaving or not moment.is_dead(file.modified):
            continue
        if _never_was(facts, file):
            yield Stray(file, NEVER, True)
        elif facts.indexed is not None and path in facts.commits.cleaned and path not in facts.indexed:
            yield Stray(file, CLEANED, True)
        elif file.name not in facts.commits.names.get(file.instant, (file.name,)):
            is_listed = facts.indexed is None or path in facts.indexed
            yield Stray(file, UNNAMED, not is_listed)


def _never_was(facts: ListedFiles, file: FoundFile) -> bool:
    if file.instant in facts.commits.names or file.instant in facts.archived:
        return False
    return file.instant in facts.commits.undone or not facts.is_completed(file.instant)


def describe_strays(facts: ListedFiles, moment: Moment) -> Iterator[Finding]:
    """One finding per instant and reason."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for stray in find_stray_files(facts, moment):
        groups.setdefault((stray.file.instant, stray.why, stray.is_dead), []).append(stray.file.path)
    for (instant, why, is_dead), paths in sorted(groups.items()):
        yield Finding(
            FindingKind.STRAY_FILE,
            instant,
            f"{_count(paths)} {_WHY[why]}",
            "" if is_dead else "readers that list folders may read their rows twice",
            Remedy.DELETE if is_dead else Remedy.BY_HAND,
            "delete them, under the table lock" if is_dead else "compare their rows with the table's, then delete them",
            some(paths),
        )


def find_lost(facts: ListedFiles) -> Iterator[Finding]:
    """Findings about missing files that the table needs."""
    wanted = facts.needed | (facts.indexed.keys() if facts.indexed is not None else set())
    gone = wanted - facts.found.keys() - facts.leaving
    needed, older = gone & facts.needed, gone - facts.needed
    if needed:
        yield _lost(
            needed,
            "of the newest snapshot missing",
            "every read of their file groups",
            "restore them from a copy, or restore the table to a savepoint",
        )
    if older:
        yield _lost(
            older,
            "of older slices missing, though the metadata table lists them",
            "reads as of earlier instants",
            "restore them from a copy, or rebuild the list from the folders: lakebed index create PATH files --rebuild",
        )


def _lost(paths: Collection[str], what: str, blocks: str, repair: str) -> Finding:
    examples = some([*paths])
    problem = f"{_count(paths)} {what}"
    return Finding(FindingKind.LOST_FILE, examples[0], problem, blocks, Remedy.BY_HAND, repair, examples)


def find_listing_differences(facts: ListedFiles) -> Iterator[Finding]:
    """Findings about existing files that the metadata table does not list, or lists with a wrong size."""
    if facts.indexed is None:
        return
    unlisted = [path for path in facts.found if path not in facts.indexed and _is_unlisted(facts, path)]
    resized = [path for path, size in facts.indexed.items() if path in facts.found and facts.found[path].size != size]
    torn = [path for path in resized if facts.commits.sizes.get(path) != facts.found[path].size]
    wrong = sorted({*unlisted, *resized} - {*torn})
    if torn:
        yield _lost(
            torn,
            "truncated or otherwise of another size than written",
            "every read of their file groups",
            "restore them from a copy of the table",
        )
    if wrong:
        is_whole = not torn and not any(find_lost(facts)) and not _would_return(facts, wrong)
        yield Finding(
            FindingKind.METADATA,
            FILES,
            f"{_count(wrong)} that the metadata table does not list, or lists with another size",
            "reads and writes use that list: they do not see these rows",
            Remedy.REBUILD if is_whole else Remedy.BY_HAND,
            "rebuild the list from the folders" if is_whole else "restore lost files and delete stray ones first",
            some(wrong),
        )


def _is_unlisted(facts: ListedFiles, path: str) -> bool:
    """Whether a file should be listed: its instant, on the active timeline, completed with it.

    For archived instants this is unknown: a file that is not listed may have been cleaned long ago.
    """
    file = facts.found[path]
    is_held = file.instant in facts.held or path in facts.leaving or path in facts.commits.cleaned
    return not is_held and file.name in facts.commits.names.get(file.instant, ())


def _would_return(facts: ListedFiles, wrong: list[str]) -> bool:
    """Whether a rebuilt list would bring back removed files: it includes all files of completed instants."""
    rest = facts.found.keys() - facts.indexed.keys() - {*wrong} if facts.indexed is not None else ()
    return any(facts.is_completed(facts.found[path].instant) for path in rest)


def _count(paths: Collection[str]) -> str:
    return "1 file" if len(paths) == 1 else f"{len(paths):,} files"
