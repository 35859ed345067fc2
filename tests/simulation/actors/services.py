"""Who looks after the table: compactors, clusterers, cleaners, archivers, and those who execute or cancel their plans.

They call the services of lakebed as users do; only what touches rows is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from lakebed.errors import CommitUnknownError, LakebedError, ServiceCancelledError
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.archive import ArchiveLimits, archive_timeline
from lakebed.services.clean.plan import CleanPolicy, Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.clustering.plan import ClusteringSizing
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.services.compaction.logs import execute_log_compaction, schedule_log_compaction
from lakebed.services.compaction.plan import CompactionOptions, LogCompactionOptions
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config

from ..actor import Actor, register
from ..checker import Told, Write
from ..client import Client
from ..invariants import PLANS

KEPT = Retention(commits=1)
OFTEN = ArchiveLimits(min_commits=1, max_commits=2, merged_files=2)


def run_service(client: Client, action: Action, rounds: int, delay_ms: int) -> None:
    """Plans a service and executes the plan, some time later."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            instant = _SCHEDULE[action](client)
        except LakebedError as error:
            client.world.reached[f"service told {type(error).__name__}"] += 1
            continue
        if instant is not None:
            execute_plan(client, Instant(instant, action, State.REQUESTED))
    client.check_no_timers()


def plan_service(client: Client, action: Action) -> InstantTime | None:
    """Plans a service, for somebody to execute; None if there is nothing to do."""
    return _SCHEDULE[action](client)


def run_executor(client: Client, rounds: int, delay_ms: int) -> None:
    """Executes plans that somebody made."""
    for plan in _find_plans(client, rounds, delay_ms):
        execute_plan(client, plan)
    client.check_no_timers()


def run_canceller(client: Client, rounds: int, delay_ms: int) -> None:
    """Cancels plans that somebody made."""
    for plan in _find_plans(client, rounds, delay_ms):
        with suppress(LakebedError):
            client.transactions.executions.cancel(plan.requested_at)


def _find_plans(client: Client, rounds: int, delay_ms: int) -> Iterator[Instant]:
    """Plans that wait or are under way, as they are found now and then."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        with suppress(LakebedError):
            pending = load_timeline(client.storage, load_config(client.storage)).pending()
            yield from [plan for plan in pending if plan.action in _EXECUTE]


def execute_plan(client: Client, plan: Instant) -> LakebedError | None:
    """One attempt at a plan; why it failed, if it did."""
    instant = plan.requested_at
    if plan.action is not Action.CLEAN:
        number = len(client.history.writes) + 1
        client.history.writes.setdefault(instant, Write(number, client.process.name, instant, told=Told.UNKNOWN))
    try:
        _EXECUTE[plan.action](client.context, instant)
        client.world.reached[str(plan.action)] += 1
    except LakebedError as error:
        client.world.reached[f"service told {type(error).__name__}"] += 1
        return None if isinstance(error, CommitUnknownError) else error
    return None


def run_archiver(client: Client, rounds: int, delay_ms: int) -> None:
    """Archives what may go, a few times."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            client.world.reached["archived"] += archive_timeline(client.context, OFTEN, KEPT)
        except LakebedError as error:
            client.world.reached[f"archiver told {type(error).__name__}"] += 1


def _schedule_clustering(client: Client) -> InstantTime | None:
    partitions = sorted(client.context.handle.state().files)
    return schedule_clustering(
        client.context,
        order_by=["key"],
        removable=client.dice.random() < 0.5,
        partitions=[client.dice.choice(partitions)] if partitions else None,
        sizing=ClusteringSizing(groups_max=1),
    )


def _schedule_log_compaction(client: Client) -> InstantTime | None:
    options = LogCompactionOptions(log_files_min=2, removable=client.dice.random() < 0.5)
    return schedule_log_compaction(client.context, options)


def _schedule_clean(client: Client) -> InstantTime | None:
    policy = client.dice.choice((CleanPolicy.KEEP_LATEST_COMMITS, CleanPolicy.KEEP_LATEST_FILE_VERSIONS))
    retention = Retention(policy=policy, commits=client.dice.randint(1, 2), versions=1)
    return schedule_clean(client.context, retention)


_SCHEDULE: dict[Action, Callable[[Client], InstantTime | None]] = {
    Action.COMPACTION: lambda client: schedule_compaction(client.context, CompactionOptions(strategy="unbounded")),
    Action.LOG_COMPACTION: _schedule_log_compaction,
    Action.CLUSTERING: _schedule_clustering,
    Action.CLEAN: _schedule_clean,
}
_EXECUTE = {
    Action.COMPACTION: execute_compaction,
    Action.LOG_COMPACTION: execute_log_compaction,
    Action.CLUSTERING: execute_clustering,
    Action.CLEAN: execute_clean,
}


def _finish(client: Client) -> None:
    """Any process executes what waits, unless it is removable: that was begun and is to be rolled back."""
    client.context.engine.outlive = False  # type: ignore[attr-defined]
    problems = [execute_plan(client, p) for p in client.invariants.timeline().pending() if p.action in PLANS]
    for problem in problems:
        if problem is not None and not isinstance(problem, ServiceCancelledError):
            raise problem


def _nothing(client: Client) -> None:
    del client


def _register(name: str, run: Callable[[Client], None], finish: Callable[[Client], None] = _nothing) -> None:
    register(Actor(name, lambda setup: setup.count(name), lambda client, _: run(client), finish=finish))


_register("compactor", lambda client: run_service(client, Action.COMPACTION, 1, 5_000))
_register("log compactor", lambda client: run_service(client, Action.LOG_COMPACTION, 2, 5_000))
_register("clusterer", lambda client: run_service(client, Action.CLUSTERING, 1, 5_000))
_register("file cleaner", lambda client: run_service(client, Action.CLEAN, 2, 5_000))
_register("archiver", lambda client: run_archiver(client, 2, 10_000))
_register("executor", lambda client: run_executor(client, 2, 30_000), _finish)
_register("canceller", lambda client: run_canceller(client, 3, 5_000))
