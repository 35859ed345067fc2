"""The table services as users call them: schedule, execute, both at once, or everything that is due."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from lakebed.engine.engines import InProcess
from lakebed.engine.spark import OnSpark
from lakebed.errors import InvalidInputError, LakebedError, ServiceCancelledError, ServiceRunningError
from lakebed.index.upkeep import maintain
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.observe import Logged, Observer
from lakebed.options import parse_index_options
from lakebed.services.archive import archive_timeline, parse_archive_limits
from lakebed.services.clean.plan import parse_retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.clustering.plan import parse_clustering_options, parse_layout
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.services.compaction.logs import execute_log_compaction, schedule_log_compaction
from lakebed.services.compaction.plan import parse_compaction_options, parse_log_compaction_options
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from lakebed.services.due import InlineServices, parse_inline_services
from lakebed.services.indexing.create import run_index
from lakebed.services.indexing.plans import reclaim
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.transaction.executions import find_plan
from lakebed.transaction.index_plans import PendingPlan, pending_plans
from lakebed.write.handover import sweep_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAITING = "waiting"
"""Name of the phase between two passes."""
_LOG = logging.getLogger("lakebed.services")
_LOGGED = Logged(_LOG)


@dataclass(frozen=True, slots=True)
class Done:
    """One result of a pass; if a service failed, `problem` says why."""

    service: str
    instant: str | None = None
    problem: str | None = None
    milliseconds: int = 0

    @property
    def outcome(self) -> str:
        """The word `done` or `failed`."""
        return "failed" if self.problem else "done"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.service, self.instant, self.problem or "done")))


class TableServices:
    """Every table service on one table. Any number of processes may call them at once."""

    def __init__(
        self,
        context: ServiceContext,
        options: Mapping[str, str],
        session: Callable[[], SparkSession] | None = None,
    ) -> None:
        self._context = context
        self._options = options
        self._session = session

    def on_spark(self) -> TableServices:
        """The same services, with one Spark task per file group, on the table's session."""
        if self._session is None:
            raise InvalidInputError("there is no Spark session", hint="pass one: open_table(path, spark=spark)")
        return TableServices(replace(self._context, engine=OnSpark(self._session())), self._options, self._session)

    def schedule(self, service: str, *, removable: bool | None = None) -> InstantTime | None:
        """Adds a plan to the timeline, for any process to execute; its instant, or None if there is nothing to do.

        `service` is compaction, logcompaction, clustering or clean. A `removable` plan of a clustering or log
        compaction yields to writers and can be cancelled; the default is the option lakebed.services.removable.
        """
        planners: dict[str, Callable[[], InstantTime | None]] = {
            "compaction": lambda: schedule_compaction(self._context, parse_compaction_options(self._options)),
            "logcompaction": partial(self._schedule_log_compaction, removable),
            "clustering": partial(self._schedule_clustering, removable),
            "clean": lambda: schedule_clean(self._context, parse_retention(self._options)),
        }
        if service not in planners:
            raise InvalidInputError(f"there is no service {service!r}", hint=f"use one of {', '.join(planners)}")
        if removable and service in _STAYS:
            raise InvalidInputError(f"the plan of a {service} cannot be removable: {_STAYS[service]}", hint=_REMOVABLE)
        return planners[service]()

    def execute(self, instant: str) -> ServiceResult:
        """Executes a plan that any process scheduled. ServiceRunningError if another process is executing it."""
        plan = find_plan(self._context.handle.state().timeline, InstantTime(instant))
        return _EXECUTE[plan.action](self._context, plan.requested_at)

    def compact(self) -> ServiceResult | None:
        """Merges log files into base files; None if there is nothing to merge."""
        return self._run(self.schedule("compaction"))

    def log_compact(self) -> ServiceResult | None:
        """Merges log files of a file group into one; None if there is nothing to merge."""
        return self._run(self.schedule("logcompaction"))

    def cluster(
        self, order_by: str | Sequence[str] = (), *, layout: str = "linear", removable: bool | None = None
    ) -> ServiceResult | None:
        """Rewrites small files into large ones, sorted by columns; None if there is nothing to gain.

        `layout` is linear, z-order or hilbert. A `removable` plan yields to writers; the default is the option
        lakebed.services.removable.
        """
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        plan = schedule_clustering(
            self._context,
            order_by=columns,
            layout=parse_layout(layout),
            removable=self._is_removable(removable),
            sizing=parse_clustering_options(self._options).sizing,
        )
        return self._run(plan)

    def clean(self) -> ServiceResult | None:
        """Rolls back writes of dead processes, then deletes files that no reader needs; None if there are none."""
        self.rollback_failed_writes()
        return self._run(self.schedule("clean"))

    def archive(self) -> int:
        """Moves old instants into the history; returns their number."""
        return archive_timeline(self._context, parse_archive_limits(self._options), parse_retention(self._options))

    def rollback_failed_writes(self) -> tuple[InstantTime, ...]:
        """Rolls back writes and index builds of dead processes; returns their instants."""
        undone = self._context.transactions.rollbacks.run() + reclaim(self._context.transactions)
        sweep_rows(self._context.transactions.ports, self._context.transactions.timing)
        return undone

    def cancel(self, instant: str) -> None:
        """Cancels a removable plan: it will never complete."""
        self._context.transactions.executions.cancel(InstantTime(instant))

    @property
    def names(self) -> tuple[str, ...]:
        """The steps of a pass."""
        asked = self._inline.asked
        clusters = asked.clustering or asked.passes_cluster
        steps = ("compaction", "clustering", "clean", "archive", "metadata table")
        return ("rollback", "waiting plans", *(step for step in steps if clusters or step != "clustering"))

    def run(self) -> tuple[Done, ...]:
        """One pass: rolls back, executes waiting plans, does what is due. What fails is retried in the next pass."""
        return tuple(self._pass(lambda: False, _LOGGED))

    def run_after_write(self, due: Sequence[str]) -> None:
        """Runs services that a write made due. The write has completed, so failures are only logged."""
        for service in due:
            self._run_after_write(service)

    def _run_after_write(self, service: str) -> None:
        try:
            for done in self._attempt(service, self._work[service]):
                _LOG.log(logging.WARNING if done.problem else logging.INFO, "after a write: %s", done)
        except Exception:
            _LOG.exception("after a write: %s failed", service)

    def run_forever(
        self,
        every: float = 60.0,
        until: Callable[[], bool] = lambda: False,
        report: Callable[[Done], None] = lambda done: _LOG.info("%s", done),
        observer: Observer = _LOGGED,
    ) -> None:
        """Runs a pass every so many seconds, until told to stop. Any number of processes may run it at once.

        It stops at the end of the current step. Each step is a phase of the `observer`, and so is the wait for the next
        pass; `report` gets the outcome of each step.
        """
        while not until():
            began = time.monotonic()
            for done in self._pass(until, observer):
                report(done)
            observer.phase(WAITING)
            while not until() and time.monotonic() - began < every:
                time.sleep(min(0.2, every))

    def _is_removable(self, asked: bool | None) -> bool:
        return self._inline.asked.removable if asked is None else asked

    def _schedule_log_compaction(self, removable: bool | None) -> InstantTime | None:
        given = parse_log_compaction_options(self._options, removable=self._is_removable(removable))
        return schedule_log_compaction(self._context, given)

    def _schedule_clustering(self, removable: bool | None = None) -> InstantTime | None:
        given = parse_clustering_options(self._options)
        return schedule_clustering(
            self._context,
            order_by=given.order_by,
            layout=given.layout,
            removable=self._is_removable(removable),
            partitions=given.partitions,
            sizing=given.sizing,
        )

    def _pass(self, until: Callable[[], bool], observer: Observer) -> Iterator[Done]:
        try:
            for service, work in self._steps():
                if until():
                    return
                observer.phase(service)
                yield from self._attempt(service, work)
        except LakebedError as error:
            yield Done("timeline", problem=str(error))

    def _steps(self) -> Iterator[tuple[str, _Work]]:
        yield "rollback", lambda: list(self.rollback_failed_writes())
        for plan in self._waiting():
            yield str(plan.action), partial(self._executed, plan.requested_at)
        for build in self._planned_builds():
            yield "indexing", partial(self._build, build)
        yield "compaction", self._compact_if_due
        yield "clustering", self._cluster_if_due
        yield "clean", lambda: self._executed(self.schedule("clean"))
        yield "archive", self._archive
        yield "metadata table", self._maintain

    @property
    def _work(self) -> Mapping[str, _Work]:
        """What to do for each service that follows writes."""
        return {
            "compaction": lambda: [*self._execute_waiting(Action.COMPACTION), *self._compact_if_due()],
            "logcompaction": lambda: [
                *self._execute_waiting(Action.LOG_COMPACTION),
                *self._executed(self.schedule("logcompaction")),
            ],
            "clustering": lambda: [*self._execute_waiting(Action.CLUSTERING), *self._cluster_if_due()],
            "clean": self._clean,
            "archive": self._archive,
        }

    def _attempt(self, service: str, work: _Work) -> Iterator[Done]:
        began = time.monotonic()
        try:
            found = work()
        except (ServiceRunningError, ServiceCancelledError):
            return  # Another process does it.
        except LakebedError as error:
            yield Done(service, problem=str(error), milliseconds=_milliseconds_since(began))
            return
        yield from (Done(service, instant, milliseconds=_milliseconds_since(began)) for instant in found)

    def _executed(self, instant: InstantTime | None) -> Sequence[str]:
        """The instant of a plan, if there is one and this process executed it."""
        result = self._run(instant)
        return [] if result is None else [result.instant]

    def _execute_waiting(self, action: Action) -> Sequence[str]:
        plans = [plan.requested_at for plan in self._waiting() if plan.action is action]
        return [done for plan in plans for done in self._executed(plan)]

    def _planned_builds(self) -> tuple[PendingPlan, ...]:
        """Plans of indexes that nobody builds."""
        state = self._context.handle.state()
        plans = pending_plans(state.storage, state.config, state.timeline)
        return tuple(plan for plan in plans if plan.is_own and plan.instant.state is State.REQUESTED)

    def _build(self, plan: PendingPlan) -> Sequence[str]:
        state, options = self._context.handle.state(), parse_index_options(self._options)
        for partition in plan.partitions:
            run_index(self._context.transactions, state, partition, options)
        return [plan.instant.requested_at]

    def _compact_if_due(self) -> Sequence[str]:
        options = parse_compaction_options(self._options)
        return self._executed(schedule_compaction(self._context, options, only_if_due=True))

    def _cluster_if_due(self) -> Sequence[str]:
        due = self._inline.passes_cluster(self._context.handle.state())
        return self._executed(self._schedule_clustering()) if due else []

    def _clean(self) -> Sequence[str]:
        result = self.clean()
        return [] if result is None else [result.instant]

    def _archive(self) -> Sequence[str]:
        count = self.archive()
        return [f"{count} instants"] if count else []

    @cached_property
    def _inline(self) -> InlineServices:
        return parse_inline_services(self._options)

    def _maintain(self) -> Sequence[str]:
        if self._context.handle.config.metadata_partitions:
            maintain(self._context.transactions, InProcess(), self._context.options.metadata_log_blocks)
        return []

    def _waiting(self) -> tuple[Instant, ...]:
        return tuple(i for i in self._context.handle.state().timeline.pending() if i.action in _EXECUTE)

    def _run(self, instant: InstantTime | None) -> ServiceResult | None:
        """Executes a plan; None if there is none, or another process executed or removed it."""
        if instant is None:
            return None
        try:
            return self.execute(instant)
        except InvalidInputError:
            if any(i.requested_at == instant for i in self._context.handle.state().timeline.pending()):
                raise
            return None


_Work = Callable[[], Sequence[str]]
"""Work of a step; returns the instants that it completed."""
_STAYS = {
    "compaction": "once it is scheduled, writers append log files to the base files it will write",
    "clean": "it is executed again until it completes",
}
_REMOVABLE = "leave removable out; only clustering and log compaction plans can be removable"
_EXECUTE: Mapping[Action, Callable[[ServiceContext, InstantTime], ServiceResult]] = {
    Action.COMPACTION: execute_compaction,
    Action.LOG_COMPACTION: execute_log_compaction,
    Action.CLUSTERING: execute_clustering,
    Action.CLEAN: execute_clean,
}


def _milliseconds_since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
