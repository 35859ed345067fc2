"""Log compaction of merge-on-read tables: the log files of a slice become one, without touching its base file.

It makes reads of slices with many small log files cheaper, for less than a compaction costs. The log files that were
merged stay until their slice is cleaned.
"""

from __future__ import annotations

from dataclasses import replace

from lakebed.format.timeline.metadata import encode_compaction_plan
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

_STRATEGY = {
    "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
    "strategyParams": {},
    "version": 1,
}
"""Who is to execute the plan, as Apache Hudi says it in plans of its own."""


def schedule_log_compaction(context: ServiceContext, options: LogCompactionOptions | None = None) -> InstantTime | None:
    """Plans the log compaction of all slices that have enough log files; its instant, or None if none has."""
    given = options or LogCompactionOptions()
    before = context.handle.state()
    check_writable(before)

    def make_plan(section: Section, instant: InstantTime) -> bytes | None:
        state = before.at(section.config, section.timeline)
        slices = [
            each
            for each in slices_to_log_compact(state, section)
            if _unmerged_logs(state, each) >= max(given.log_files_min, 2)
        ]
        plan = plan_slices(state, slices, instant)
        extra = {REMOVABLE: "true"} if given.removable else {}
        plan = replace(plan, strategy=_STRATEGY, preserve_meta_columns=True, extra_metadata=extra)
        return encode_compaction_plan(plan) if plan.operations else None

    return context.transactions.executions.schedule(Action.LOG_COMPACTION, make_plan)


def execute_log_compaction(context: ServiceContext, instant: InstantTime) -> ServiceResult:
    """Executes a log compaction that anybody scheduled."""
    kind = Compaction(Action.LOG_COMPACTION, "LOG_COMPACT", context.plane.compact_logs, compacts=False)
    return execute_plan(context, instant, kind)


def _unmerged_logs(state: TableState, file_slice: FileSlice) -> int:
    """How many log files a reader has to read: a log compaction merged all that had completed before it."""
    wrote = {log.instant for log in file_slice.logs}
    merged_at = [
        instant.requested_at
        for instant in state.timeline.commits()
        if instant.requested_at in wrote and state.documents.commit(instant).operation == "LOG_COMPACT"
    ]
    newest = max(merged_at, default=InstantTime(""))
    completion_of = state.latest.completion_of
    return sum((completion_of(log.instant) or "") >= newest for log in file_slice.logs)
