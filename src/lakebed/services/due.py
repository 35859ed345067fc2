"""Decides which table services follow a write, from the timeline that the writer has loaded anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakebed.model.instant import InstantTime
from lakebed.model.words import Action, TableType
from lakebed.options import InlineOptions, parse_inline_options
from lakebed.services.archive import ArchiveLimits, parse_archive_limits
from lakebed.services.clean.plan import CleanPolicy, Retention, parse_retention
from lakebed.services.compaction.plan import (
    CompactionOptions,
    LogCompactionOptions,
    is_due,
    parse_compaction_options,
    parse_log_compaction_options,
)
from lakebed.table import TableState
from lakebed.timeline import Timeline


@dataclass(frozen=True, slots=True)
class InlineServices:
    """The services that options request after writes, and when each is due.

    A service with nothing to do leaves no trace on the timeline. So services that count writes are due at multiples of
    their number, not at every write from then on.
    """

    asked: InlineOptions
    retention: Retention
    limits: ArchiveLimits
    compaction: CompactionOptions
    log_compaction: LogCompactionOptions

    def due(self, state: TableState, completed_at: InstantTime) -> tuple[str, ...]:
        """The services due after a write, in order of execution; `state` is the table after the write."""
        return tuple(self._due(state, state.timeline, completed_at))

    def passes_cluster(self, state: TableState) -> bool:
        """Whether a pass of all services should cluster: it is requested, and enough writes have completed."""
        limits = (
            *((self.asked.clustering_commits,) if self.asked.clustering else ()),
            *((self.asked.passes_cluster_commits,) if self.asked.passes_cluster else ()),
        )
        return bool(limits) and _since(state.timeline, _last_clustering(state)) >= min(limits)

    def _due(self, state: TableState, timeline: Timeline, now: InstantTime) -> Iterator[str]:
        asked, waiting = self.asked, {i.action for i in timeline.pending()}
        is_mor = state.config.table_type is TableType.MERGE_ON_READ
        if asked.compaction and is_mor and (Action.COMPACTION in waiting or is_due(timeline, now, self.compaction)):
            yield "compaction"
        if asked.log_compaction and is_mor and (Action.LOG_COMPACTION in waiting or self._log_compaction_due(timeline)):
            yield "logcompaction"
        if asked.clustering and (Action.CLUSTERING in waiting or self._clustering_due(state, timeline)):
            yield "clustering"
        if asked.clean and (Action.CLEAN in waiting or self._clean_due(timeline)):
            yield "clean"
        if asked.archive and self._archive_due(timeline):
            yield "archive"

    def _clustering_due(self, state: TableState, timeline: Timeline) -> bool:
        return _every(_since(timeline, _last_clustering(state)), self.asked.clustering_commits)

    def _log_compaction_due(self, timeline: Timeline) -> bool:
        return _every(_since(timeline, _last(timeline, Action.COMMIT)), self.log_compaction.log_files_min)

    def _clean_due(self, timeline: Timeline) -> bool:
        """Nothing can be deleted while all commits are retained."""
        by_commits = self.retention.policy is CleanPolicy.KEEP_LATEST_COMMITS
        if by_commits and len(timeline.commits()) <= self.retention.commits:
            return False
        return _every(_since(timeline, _last(timeline, Action.CLEAN)), self.asked.clean_commits)

    def _archive_due(self, timeline: Timeline) -> bool:
        surplus = len(timeline.commits()) - self.limits.max_commits
        return surplus > 0 and (surplus - 1) % (self.limits.max_commits - self.limits.min_commits) == 0


def parse_inline_services(options: Mapping[str, str]) -> InlineServices:
    """The services that `hoodie.*` options request after writes."""
    return InlineServices(
        parse_inline_options(options),
        parse_retention(options),
        parse_archive_limits(options),
        parse_compaction_options(options),
        parse_log_compaction_options(options),
    )


def _every(count: int, number: int) -> bool:
    return count > 0 and count % max(number, 1) == 0


def _since(timeline: Timeline, last: str) -> int:
    return sum((instant.completed_at or "") > last for instant in timeline.commits())


def _last(timeline: Timeline, action: Action) -> str:
    return max((i.completed_at or "" for i in timeline.completed() if i.action is action), default="")


def _last_clustering(state: TableState) -> str:
    """When the last clustering completed; a state has replace commits loaded, because they hide file groups."""
    for instant in reversed(state.timeline.commits()):
        if instant.action is Action.REPLACE_COMMIT and state.documents.commit(instant).operation == "CLUSTER":
            return instant.completed_at or ""
    return ""
