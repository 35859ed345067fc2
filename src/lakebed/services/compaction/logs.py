"""Log compaction of merge-on-read tables: merges the log files of a slice into one and leaves its base file.

It makes reads of slices with many small log files cheaper, and costs less than a compaction. The merged log files stay
until their slice is cleaned.
"""

from __future__ import annotations

from dataclasses import replace

from lakebed.format.timeline.metadata import encode_compaction_plan
from lakebed.metadata.upkeep.log_compaction import LOG_COMPACTION_STRATEGY
from lakebed.model.files import FileSlice
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.compaction.plan import LogCompactionOptions, plan_slices, slices_to_log_compact
from lakebed.services.compaction.run import Compaction, execute_plan
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.table import TableState
from lakebed.transaction.plans import REMOVABLE
from lakebed.transaction.section import Section
from lakebed.write.checks import check_writable


def schedule_log_compaction(context: ServiceContext, options: LogCompactionOptions | None = None) -> InstantTime | None:
    """Schedules a log compaction of all slices with enough log files; its instant, or None if there are none."""
    given = options or LogCompactionOptions()
    before = context.handle.state()
    check_writable(before)

    def make_plan(section: Section, instant: InstantTime) -> bytes | None:
        state = before.at(section.config, section.timeline, section.metadata_timeline)
        slices = [
            each
            for each in slices_to_log_compact(state, section)
            if _unmerged_logs(state, each) >= max(given.log_files_min, 2)
        ]
        plan = plan_slices(state, slices, instant)
        extra = {REMOVABLE: "true"} if given.removable else {}
        plan = replace(plan, strategy=LOG_COMPACTION_STRATEGY, preserve_meta_columns=True, extra_metadata=extra)
        return encode_compaction_plan(plan) if plan.operations else None

    return context.transactions.executions.schedule(Action.LOG_COMPACTION, make_plan)


def execute_log_compaction(context: ServiceContext, instant: InstantTime) -> ServiceResult:
    """Executes a log compaction that any process scheduled."""
    kind = Compaction(Action.LOG_COMPACTION, "LOG_COMPACT", context.plane.compact_logs, compacts=False)
    return execute_plan(context, instant, kind)


def _unmerged_logs(state: TableState, file_slice: FileSlice) -> int:
    """Log files that a reader must read: a log compaction replaces those that completed before it."""
    wrote = {log.instant for log in file_slice.logs}
    merged_at = [
        instant.requested_at
        for instant in state.timeline.commits()
        if instant.requested_at in wrote and state.documents.commit(instant).operation == "LOG_COMPACT"
    ]
    newest = max(merged_at, default=InstantTime(""))
    completion_of = state.latest.completion_of
    return sum((completion_of(log.instant) or "") >= newest for log in file_slice.logs)
