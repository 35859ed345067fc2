"""Archiving: moves old instants from the active timeline into the history.

It moves a prefix of the writes, in the order of requests and of completions alike. Readers treat a write that was
requested before the start of the active timeline as archived, and a clean assumes that it sees all later writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.timeline.metadata import decode_index_plan, decode_rollback
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.options import parse_option
from lakebed.services.clean.plan import NEVER, CleanPolicy, Retention, earliest_to_retain
from lakebed.services.clean.run import held_since, state_in
from lakebed.services.values import ServiceContext
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.transaction.archive import MERGED_FILES, archive
from lakebed.transaction.leases import leased_points
from lakebed.transaction.markers import drop_markers_of
from lakebed.transaction.section import METADATA, Section
from lakebed.transaction.times import format_time, timeline_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Once the active timeline has more than `max_commits` completed writes, it is cut back to `min_commits`.

    `merged_files` files of one level of the history are merged into one file of the next.
    """

    min_commits: int = 20
    max_commits: int = 30
    merged_files: int = MERGED_FILES

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise InvalidInputError(
                f"the timeline cannot keep between {self.min_commits} and {self.max_commits} commits",
                hint="hoodie.keep.max.commits must be greater than hoodie.keep.min.commits, which is at least 1",
            )


def parse_archive_limits(options: Mapping[str, str]) -> ArchiveLimits:
    """Archive limits from `hoodie.keep.*` options; other options are ignored."""
    spellings = {"hoodie.keep.min.commits": "min_commits", "hoodie.keep.max.commits": "max_commits"}
    return ArchiveLimits(**{name: parse_option(key, options[key]) for key, name in spellings.items() if key in options})


def archive_timeline(
    context: ServiceContext, limits: ArchiveLimits | None = None, retention: Retention | None = None
) -> int:
    """Archives instants that the limits allow and nobody needs on the active timeline; returns their number.

    Commits that the `retention` of cleaning keeps readable stay on the active timeline.
    """
    limits = limits or ArchiveLimits()
    with context.transactions.section() as section:
        section.check_no_restore()
        state = state_in(context, section)
        commits = _archivable(section, state, limits, retention or Retention())
        if not commits:
            return 0
        others = _others(section, state, commits[-1].requested_at)
        _delete_unnamed(section, state, commits)
        archive(section, [*commits, *others], merged_files=limits.merged_files)
        return len(commits) + len(others)


def _archivable(
    section: Section, state: TableState, limits: ArchiveLimits, retention: Retention
) -> tuple[Instant, ...]:
    commits = state.timeline.commits()
    if len(commits) <= limits.max_commits:
        return ()
    by_request = sorted(commits, key=lambda i: i.requested_at)
    order = {instant: number for number, instant in enumerate(commits)}
    may_go = _rule(section, state, retention)
    count, last = 0, -1
    for number, instant in enumerate(by_request[: len(commits) - limits.min_commits]):
        if not may_go(instant):
            break
        last = max(last, order[instant])
        if last == number:  # The first number + 1 writes by completion are the first by request too.
            count = number + 1
    return tuple(by_request[:count])


def _rule(section: Section, state: TableState, retention: Retention) -> Callable[[Instant], bool]:
    """A predicate: may a completed write leave the active timeline?"""
    until = min(_limits(section, state, retention), default=NEVER)
    savepoints = [i.requested_at for i in section.timeline if i.action is Action.SAVEPOINT]
    first_savepoint = min(savepoints, default=NEVER)
    present = frozenset(FileGroupId(name, file.file_id) for name, files in state.files.items() for file in files)

    def may_go(instant: Instant) -> bool:
        if (instant.completed_at or NEVER) >= until or instant.requested_at >= first_savepoint:
            return False
        return instant.action is not Action.REPLACE_COMMIT or not _replaced(state, instant) & present

    return may_go


def _limits(section: Section, state: TableState, retention: Retention) -> Iterator[InstantTime]:
    """Times from which on completed instants must stay."""
    yield from _begun(section)
    yield from leased_points(section)
    if retention.policy is not CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        now = format_time(section.ports.clock.now_ms(), timeline_zone(state.config))
        before = min(held_since(section), default=NEVER)
        earliest = earliest_to_retain(retention, state.timeline.commits(), now=now, before=before)
        yield InstantTime("") if earliest is None else (earliest.completed_at or NEVER)
    if state.config.metadata_partitions:
        # Apache Hudi validates entries of the metadata table against the active timeline, unless they are compacted.
        compactions = [i for i in section.metadata_timeline.commits() if i.action is Action.COMMIT]
        yield max((i.requested_at for i in compactions), default=InstantTime(""))


def _begun(section: Section) -> Iterator[InstantTime]:
    """When pending instants began. An index build later reads the writes that followed its plan."""
    for instant in section.timeline.pending():
        if instant.action is Action.INDEXING:
            path = section.path(Instant(instant.requested_at, Action.INDEXING, State.REQUESTED))
            plan = decode_index_plan(section.ports.storage.get(path), path=path)
            yield from (InstantTime(each.up_to) for each in plan.partitions if each.up_to)
        if instant.action is not Action.SAVEPOINT:
            yield instant.requested_at


def _replaced(state: TableState, instant: Instant) -> frozenset[FileGroupId]:
    """File groups that would become visible again if the instant were archived before they are cleaned."""
    replaced = state.documents.commit(instant).replaced_file_ids
    return frozenset(FileGroupId(name, file_id) for name, file_ids in replaced.items() for file_id in file_ids)


def _others(section: Section, state: TableState, until: InstantTime) -> tuple[Instant, ...]:
    """Cleans and rollbacks to archive with the writes. The last clean stays, because the next one continues from it."""
    done = [i for i in section.timeline.completed() if i.requested_at < until]
    last = [i for i in section.timeline.completed() if i.action is Action.CLEAN][-1:]
    cleans = [i for i in done if i.action is Action.CLEAN and i not in last]
    rollbacks = [i for i in done if i.action is Action.ROLLBACK]
    return (*cleans, *_swept(section, state, rollbacks))


def _swept(section: Section, state: TableState, rollbacks: Sequence[Instant]) -> Iterator[Instant]:
    """Rollbacks whose targets left no file or marker. Files written by tasks after the rollback are deleted here.

    Once the rollback is archived, engines that judge files by their age would take such a file for committed.
    """
    targets = {rollback: _targets(section, rollback) for rollback in rollbacks}
    wanted = frozenset(target for found in targets.values() for target in found)
    known = {i.requested_at for i in section.timeline} | state.archive.completions(wanted).keys()
    strays = _delete_files(section, wanted - known) | drop_markers_of(section.ports.storage, wanted - known)
    yield from (rollback for rollback, found in targets.items() if not found & strays)


def _delete_unnamed(section: Section, state: TableState, commits: Sequence[Instant]) -> None:
    """Deletes files of failed attempts at plans that were executed again.

    Once the commit is archived, a file is judged by its time alone. The rollbacks of these attempts are still on the
    timeline, because they were requested later.
    """
    rollbacks = [i for i in section.timeline.completed() if i.action is Action.ROLLBACK]
    targets = frozenset(target for rollback in rollbacks for target in _targets(section, rollback))
    again = [instant for instant in commits if instant.requested_at in targets]
    named = frozenset(stat.path for instant in again for stat in state.documents.commit(instant).stats)
    times = [instant.requested_at for instant in again]
    _delete_files(section, times, kept=named)
    drop_markers_of(section.ports.storage, times)


def _targets(section: Section, rollback: Instant) -> frozenset[InstantTime]:
    path = section.path(rollback)
    return frozenset(map(InstantTime, decode_rollback(section.ports.storage.get(path), path=path).commits))


def _delete_files(
    section: Section, instants: Collection[InstantTime], kept: Collection[str] | None = None
) -> frozenset[InstantTime]:
    """Deletes data files of instants, in the metadata table too if none are `kept`; returns instants with files."""
    found: set[InstantTime] = set()
    for listed in section.ports.storage.list("", recursive=True) if instants else ():
        folder, _, name = listed.path.rpartition("/")
        is_data = not listed.path.startswith(".hoodie/") or (kept is None and listed.path.startswith(METADATA))
        if not is_data or listed.path in (kept or ()):
            continue
        file = decode_data_file_name(name, folder=folder)
        if file is not None and file.instant in instants:
            delete_file(section.ports.storage, listed.path)
            found.add(file.instant)
    return frozenset(found)
