"""Compaction plans: options, and which file slices a compaction or log compaction takes.

Slices are chosen under the table's lock. A plan names the exact files of slices as of its own instant. File groups in
other pending plans, and those that a write in flight may rewrite, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import timezone
from typing import Any

from lakebed.format.timeline.metadata import decode_commit
from lakebed.metadata.upkeep.compaction import plan_compaction
from lakebed.model.commit import CompactionOperation, CompactionPlan
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.options import parse_option
from lakebed.table import TableState
from lakebed.timeline import Timeline
from lakebed.transaction.pending import pending_rivals
from lakebed.transaction.section import Section
from lakebed.transaction.times import instant_ms
from lakebed.write.assign import logs_inserts

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_MEASURES = {"log_size": "TOTAL_LOG_FILES_SIZE", "log_count": "TOTAL_LOG_FILES"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """When a compaction is due, and which file slices it takes.

    `trigger` counts delta commits or seconds since the last compaction. `strategy` decides which slices come first:
    those with the most log bytes ("log_size"), with the most log files ("log_count"), or in no order. Slices are taken
    up to `target_io_mib`, unless it is "unbounded". "log_size" and "log_count" skip slices below their minimum.
    """

    trigger: str = field(default="num_commits", metadata={"hoodie": "hoodie.compact.inline.trigger.strategy"})
    delta_commits: int = field(default=5, metadata={"hoodie": "hoodie.compact.inline.max.delta.commits"})
    delta_seconds: int = field(default=3600, metadata={"hoodie": "hoodie.compact.inline.max.delta.seconds"})
    strategy: str = field(default="log_size", metadata={"hoodie": "hoodie.compaction.strategy"})
    target_io_mib: int = field(default=500 << 10, metadata={"hoodie": "hoodie.compaction.target.io"})
    log_bytes_min: int = field(default=0, metadata={"hoodie": "hoodie.compaction.logfile.size.threshold"})
    log_files_min: int = field(default=0, metadata={"hoodie": "hoodie.compaction.logfile.num.threshold"})

    def __post_init__(self) -> None:
        for each in (f for f in fields(self) if f.type == "str"):
            parse_option(each.metadata["hoodie"], getattr(self, each.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompactionOptions:
    """Which file slices are log-compacted: those with at least that many log files not yet merged.

    A `removable` plan can be cancelled and rolled back.
    """

    log_files_min: int = field(default=5, metadata={"hoodie": "hoodie.log.compaction.blocks.threshold"})
    removable: bool = False


def parse_compaction_options(options: Mapping[str, str]) -> CompactionOptions:
    """Compaction options from `hoodie.*` options; other options are ignored."""
    return CompactionOptions(**_parse(options, CompactionOptions))


def parse_log_compaction_options(options: Mapping[str, str], *, removable: bool = False) -> LogCompactionOptions:
    """Log compaction options from `hoodie.*` options; other options are ignored."""
    return LogCompactionOptions(**_parse(options, LogCompactionOptions), removable=removable)


def _parse(options: Mapping[str, str], kind: type[CompactionOptions | LogCompactionOptions]) -> dict[str, Any]:
    spellings = {f.metadata["hoodie"]: f.name for f in fields(kind) if f.metadata}
    return {name: parse_option(key, options[key]) for key, name in spellings.items() if key in options}


def slices_to_compact(state: TableState, section: Section) -> tuple[FileSlice, ...]:
    """Slices with logs whose file groups no pending plan, and no write in flight, may rewrite."""
    busy = _planned_groups(section)
    if not logs_inserts(
        section.config
    ):  # Inserts rewrite base files, and such a write in flight would conflict with the plan.
        busy |= _declared_groups(section) or frozenset()
    return tuple(each for each in state.latest_slices if each.logs and each.group not in busy)


def slices_to_log_compact(state: TableState, section: Section) -> tuple[FileSlice, ...]:
    """Slices with logs whose file groups are in no pending plan, and which no write in flight appends to.

    A log file begun before the log compaction and completed after it would sort between the merged ones.
    """
    declared = _declared_groups(section)
    if declared is None:
        return ()
    busy = _planned_groups(section) | declared
    return tuple(each for each in state.latest_slices if each.logs and each.group not in busy)


def plan_slices(state: TableState, slices: Iterable[FileSlice], instant: InstantTime) -> CompactionPlan:
    """The compaction plan at `instant` for these slices."""
    return plan_compaction(slices, instant, state.latest.completion_of)


def choose_operations(
    operations: Iterable[CompactionOperation], options: CompactionOptions
) -> tuple[CompactionOperation, ...]:
    """The operations that the strategy selects, in its order."""
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
    """Whether a compaction is due at `instant`."""
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


def _within(operations: Iterable[CompactionOperation], io_mib: int) -> Iterator[CompactionOperation]:
    """Operations until their I/O reaches a limit; the one that reaches it is included."""
    for operation in operations:
        yield operation
        io_mib -= int(operation.metrics["TOTAL_IO_MB"])
        if io_mib <= 0:
            return


def _last_compaction(timeline: Timeline, *, with_pending: bool) -> str:
    """When the last compaction was requested; "" if there was none. On these tables every commit is a compaction."""
    done = [i.requested_at for i in timeline.commits() if i.action is Action.COMMIT]
    pending = [i.requested_at for i in timeline.pending() if with_pending and i.action is Action.COMPACTION]
    return max((*done, *pending), default="")


def _seconds_between(earlier: str, later: str) -> float:
    """Seconds between two instants of one table; the zone does not matter."""
    ms = instant_ms(InstantTime(later), timezone.utc) - instant_ms(InstantTime(earlier), timezone.utc)
    return ms / 1000


def _planned_groups(section: Section) -> frozenset[FileGroupId]:
    """File groups in the pending plans of other services."""
    rivals = pending_rivals(section.ports.storage, section.config, section.timeline)
    return frozenset(group for rival in rivals for group in rival.writes.rewritten)


def _declared_groups(section: Section) -> frozenset[FileGroupId] | None:
    """File groups that writes in flight declared to change; None if one has not declared them yet."""
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
