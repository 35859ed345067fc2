"""The table services as users call them: schedule here, execute there, or both at once, or all that is due."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lakebed.clock import SystemClock
from lakebed.engine.engines import InProcess
from lakebed.errors import InvalidInputError, LakebedError, ServiceCancelledError, ServiceRunningError
from lakebed.metadata.maintenance import maintain
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action
from lakebed.services.archive import archive_timeline, parse_archive_limits
from lakebed.services.clean import execute_clean, schedule_clean
from lakebed.services.clean_plan import parse_retention
from lakebed.services.clustering import execute_clustering, schedule_clustering
from lakebed.services.clustering_options import parse_clustering_options, parse_layout
from lakebed.services.compaction import execute_compaction, schedule_compaction
from lakebed.services.compaction_options import parse_compaction_options, parse_log_compaction_options
from lakebed.services.log_compaction import execute_log_compaction, schedule_log_compaction
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.transaction.executions import find_plan
from lakebed.write.handover import sweep_rows

_LOG = logging.getLogger("lakebed.services")


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that a pass of the services did, or could not do: then `problem` says why."""

    service: str
    instant: str | None = None
    problem: str | None = None

    def __str__(self) -> str:
        return " ".join(filter(None, (self.service, self.instant, self.problem or "done")))


class TableServices:
    """Every table service on one table. Any number of processes may call them at once."""

    def __init__(self, context: ServiceContext, options: Mapping[str, str]) -> None:
        self._context = context
        self._options = options

    def schedule(self, service: str) -> InstantTime | None:
        """Puts a plan on the timeline, for any process to execute; its instant, or None if there is nothing to do.

        `service` is compaction, logcompaction, clustering or clean.
        """
        planners: dict[str, Callable[[], InstantTime | None]] = {
            "compaction": lambda: schedule_compaction(self._context, parse_compaction_options(self._options)),
            "logcompaction": lambda: schedule_log_compaction(
                self._context, parse_log_compaction_options(self._options)
            ),
            "clustering": self._schedule_clustering,
            "clean": lambda: schedule_clean(self._context, parse_retention(self._options)),
        }
        if service not in planners:
            raise InvalidInputError(f"there is no service {service!r}", hint=f"use one of {', '.join(planners)}")
        return planners[service]()

    def execute(self, instant: str) -> ServiceResult:
        """Executes a plan, whoever scheduled it. ServiceRunningError if another process is at it."""
        plan = find_plan(self._context.handle.state().timeline, InstantTime(instant))
        return _EXECUTE[plan.action](self._context, plan.requested_at)

    def compact(self) -> ServiceResult | None:
        """Merges log files into base files; None if there is nothing to merge."""
        return self._run(self.schedule("compaction"))

    def log_compact(self) -> ServiceResult | None:
        """Merges log files of a file group into one; None if there is nothing to merge."""
        return self._run(self.schedule("logcompaction"))

    def cluster(
        self, order_by: str | Sequence[str] = (), *, layout: str = "linear", removable: bool = False
    ) -> ServiceResult | None:
        """Rewrites small files into large ones, sorted by columns; None if there is nothing to gain.

        `layout` is linear, z-order or hilbert. A plan that is `removable` makes way for writers.
        """
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        sizing = parse_clustering_options(self._options).sizing
        plan = schedule_clustering(
            self._context, order_by=columns, layout=parse_layout(layout), removable=removable, sizing=sizing
        )
        return self._run(plan)

    def clean(self) -> ServiceResult | None:
        """Deletes files that no reader needs any more; None if there are none."""
        return self._run(self.schedule("clean"))

    def archive(self) -> int:
        """Moves old instants off the timeline; how many."""
        return archive_timeline(self._context, parse_archive_limits(self._options), parse_retention(self._options))

    def rollback_failed_writes(self) -> tuple[InstantTime, ...]:
        """Undoes what dead processes left; the instants that were undone."""
        undone = self._context.transactions.rollbacks.run()
        sweep_rows(self._context.handle.storage, SystemClock())
        return undone

    def cancel(self, instant: str) -> None:
        """Sees to it that a removable plan never completes."""
        self._context.transactions.executions.cancel(InstantTime(instant))

    def run(self) -> tuple[Done, ...]:
        """One pass: undoes what is dead, executes what waits, and does what is due. What fails waits for the next."""
        return tuple(self._pass())

    def run_forever(
        self,
        every: float = 60.0,
        until: Callable[[], bool] = lambda: False,
        report: Callable[[Done], None] = lambda done: _LOG.info("%s", done),
    ) -> None:
        """A pass every so many seconds, until told to stop. Safe to start many times, on any machine."""
        while not until():
            began = time.monotonic()
            for done in self._pass():
                report(done)
                if until():
                    return
            while not until() and time.monotonic() - began < every:
                time.sleep(min(0.2, every))

    def _schedule_clustering(self) -> InstantTime | None:
        given = parse_clustering_options(self._options)
        return schedule_clustering(
            self._context,
            order_by=given.order_by,
            layout=given.layout,
            partitions=given.partitions,
            sizing=given.sizing,
        )

    def _pass(self) -> Iterator[Done]:
        yield from self._attempt("rollback", lambda: list(self.rollback_failed_writes()))
        for plan in self._waiting():
            yield from self._attempt(str(plan.action), partial(self._execute_one, plan.requested_at))
        yield from self._attempt("compaction", self._compact_if_due)
        yield from self._attempt("clean", lambda: _instants(self.clean()))
        yield from self._attempt("archive", lambda: [f"{count} instants"] if (count := self.archive()) else [])
        yield from self._attempt("metadata table", self._maintain)

    def _attempt(self, service: str, work: Callable[[], Sequence[str]]) -> Iterator[Done]:
        try:
            yield from (Done(service, instant) for instant in work())
        except (ServiceRunningError, ServiceCancelledError):
            return  # Another process sees to it.
        except LakebedError as error:
            yield Done(service, problem=str(error))

    def _execute_one(self, instant: InstantTime) -> Sequence[str]:
        return [self.execute(instant).instant]

    def _compact_if_due(self) -> Sequence[str]:
        options = parse_compaction_options(self._options)
        return _instants(self._run(schedule_compaction(self._context, options, only_if_due=True)))

    def _maintain(self) -> Sequence[str]:
        if self._context.handle.config.metadata_partitions:
            maintain(self._context.transactions, InProcess())
        return []

    def _waiting(self) -> tuple[Instant, ...]:
        return tuple(i for i in self._context.handle.state().timeline.pending() if i.action in _EXECUTE)

    def _run(self, instant: InstantTime | None) -> ServiceResult | None:
        return None if instant is None else self.execute(instant)


_EXECUTE: Mapping[Action, Callable[[ServiceContext, InstantTime], ServiceResult]] = {
    Action.COMPACTION: execute_compaction,
    Action.LOG_COMPACTION: execute_log_compaction,
    Action.CLUSTERING: execute_clustering,
    Action.CLEAN: execute_clean,
}


def _instants(result: ServiceResult | None) -> Sequence[str]:
    return [] if result is None else [result.instant]
