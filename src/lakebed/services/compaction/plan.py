"""Which file slices a compaction or log compaction takes, decided under the table's lock.

A plan names exact files: those of the slices as of its own instant. File groups that another pending plan has, or that
a write at work may be about to rewrite, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timezone

from lakebed.format.timeline.metadata import decode_commit
from lakebed.metadata.upkeep.compaction import plan_compaction
from lakebed.model.commit import CompactionOperation, CompactionPlan
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.compaction.options import CompactionOptions
from lakebed.table import TableState
from lakebed.timeline import Timeline
from lakebed.transaction.pending import pending_rivals
from lakebed.transaction.section import Section
from lakebed.transaction.times import instant_ms
from lakebed.write.assign import logs_inserts

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def slices_to_compact(state: TableState, section: Section) -> tuple[FileSlice, ...]:
    """Slices with logs whose file groups nobody has laid hands on."""
    busy = _planned_groups(section)
    if not logs_inserts(section.config):  # Then inserts rewrite base files, and such a write would lose to our plan.
        busy |= _declared_groups(section) or frozenset()
    return tuple(each for each in state.latest_slices if each.logs and each.group not in busy)


def slices_to_log_compact(state: TableState, section: Section) -> tuple[FileSlice, ...]:
    """Slices with logs whose file groups nobody has laid hands on, and nobody is about to append to.

    A log file that was begun before the log compaction and completes after it would lie between those that it merges.
    """
    declared = _declared_groups(section)
    if declared is None:
        return ()
    busy = _planned_groups(section) | declared
    return tuple(each for each in state.latest_slices if each.logs and each.group not in busy)


def plan_slices(state: TableState, slices: Iterable[FileSlice], instant: InstantTime) -> CompactionPlan:
    """The plan at `instant` for slices, in Apache Hudi's bytes."""
    return plan_compaction(slices, instant, state.latest.completion_of)


def choose_operations(
    operations: Iterable[CompactionOperation], options: CompactionOptions
) -> tuple[CompactionOperation, ...]:
    """The operations that a strategy takes, in its order."""
    if options.strategy == "unbounded":
        return tuple(operations)
    found = list(operations)
    if options.strategy in _MEASURES:
        measure = _MEASURES[options.strategy]
        least = options.log_bytes_min if options.strategy == "log_size" else options.log_files_min
        found = [each for each in found if each.metrics[measure] >= least]
        found.sort(key=lambda each: -each.metrics[measure])
    return tuple(_within(found, options.target_io_mib))


def is_due(timeline: Timeline, instant: InstantTime, options: CompactionOptions) -> bool:
    """Whether the trigger asks for a compaction at `instant`."""
    counts_requests = options.trigger == "num_commits_after_last_request"
    since = _last_compaction(timeline, with_pending=counts_requests)
    newer = [i for i in timeline.commits() if i.action is Action.DELTA_COMMIT and (i.completed_at or "") > since]
    if not newer:
        return False
    enough = len(newer) >= options.delta_commits
    seconds = _seconds_between(since or newer[0].requested_at, instant)
    late = seconds >= options.delta_seconds
    return {"time_elapsed": late, "num_and_time": enough and late, "num_or_time": enough or late}.get(
        options.trigger, enough
    )


_MEASURES = {"log_size": "TOTAL_LOG_FILES_SIZE", "log_count": "TOTAL_LOG_FILES"}


def _within(operations: Iterable[CompactionOperation], io_mib: int) -> Iterator[CompactionOperation]:
    """Operations until their reads and writes reach a limit; the one that reaches it is the last."""
    for operation in operations:
        yield operation
        io_mib -= int(operation.metrics["TOTAL_IO_MB"])
        if io_mib <= 0:
            return


def _last_compaction(timeline: Timeline, *, with_pending: bool) -> str:
    """When the last compaction was requested; '' if there was none. On these tables every commit is a compaction."""
    done = [i.requested_at for i in timeline.commits() if i.action is Action.COMMIT]
    pending = [i.requested_at for i in timeline.pending() if with_pending and i.action is Action.COMPACTION]
    return max((*done, *pending), default="")


def _seconds_between(earlier: str, later: str) -> float:
    """Between two instants of one table, whose zone does not matter then."""
    ms = instant_ms(InstantTime(later), timezone.utc) - instant_ms(InstantTime(earlier), timezone.utc)
    return ms / 1000


def _planned_groups(section: Section) -> frozenset[FileGroupId]:
    """File groups in the pending plans of other services."""
    rivals = pending_rivals(section.ports.storage, section.config, section.timeline)
    return frozenset(group for rival in rivals for group in rival.writes.rewritten)


def _declared_groups(section: Section) -> frozenset[FileGroupId] | None:
    """File groups that writes in flight set out to change; None if one has not said yet which."""
    found: set[FileGroupId] = set()
    for instant in section.timeline.pending():
        if instant.action in _WRITES:
            groups = _groups_of(section, instant)
            if groups is None:
                return None
            found |= groups
    return frozenset(found)


def _groups_of(section: Section, instant: Instant) -> frozenset[FileGroupId] | None:
    path = section.path(instant)
    data = section.ports.storage.find(path) if instant.state is State.INFLIGHT else None
    if not data:
        return None
    return frozenset(FileGroupId(stat.partition, stat.file_id) for stat in decode_commit(data, path=path).stats)
