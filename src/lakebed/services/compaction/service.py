"""Compaction of merge-on-read tables: file slices that have logs become base files again.

Scheduling puts a plan on the timeline, under the lock; executing it reads and writes without, while writers go on. What
they append meanwhile lies on top of the new base files, whichever completes first.
"""

from __future__ import annotations

from dataclasses import replace

from lakebed.format.timeline.metadata import encode_compaction_plan
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.compaction.options import CompactionOptions
from lakebed.services.compaction.plan import choose_operations, is_due, plan_slices, slices_to_compact
from lakebed.services.compaction.run import Compaction, execute_plan
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.transaction.section import Section
from lakebed.write.checks import check_writable


def schedule_compaction(
    context: ServiceContext, options: CompactionOptions | None = None, *, only_if_due: bool = False
) -> InstantTime | None:
    """Plans the compaction of all slices with logs that the strategy takes; its instant, or None if there are none.

    With `only_if_due` the trigger is asked first.
    """
    given = options or CompactionOptions()
    before = context.handle.state()
    check_writable(before)

    def make_plan(section: Section, instant: InstantTime) -> bytes | None:
        if only_if_due and not is_due(section.timeline, instant, given):
            return None
        state = before.at(section.config, section.timeline)
        plan = plan_slices(state, slices_to_compact(state, section), instant)
        operations = choose_operations(plan.operations, given)
        return encode_compaction_plan(replace(plan, operations=operations)) if operations else None

    return context.transactions.executions.schedule(Action.COMPACTION, make_plan)


def execute_compaction(context: ServiceContext, instant: InstantTime) -> ServiceResult:
    """Executes a compaction that anybody scheduled."""
    kind = Compaction(Action.COMPACTION, "COMPACT", context.plane.compact, compacts=True)
    return execute_plan(context, instant, kind)
