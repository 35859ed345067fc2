"""Table services as processes of a run: each does one after the other, by chance, and dies when it is told to."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import lakebed
from lakebed.engine.spark import OnSpark
from lakebed.errors import LakebedError
from lakebed.services.table_services import TableServices

from .clients import Client, describe, runs
from .history import Log
from .register import Place

_PLANNED = ("compaction", "logcompaction", "clustering", "clean")
_REFUSALS = ("ServiceRunningError", "ServiceCancelledError", "WriteConflictError", "RolledBackError", "NoSuchPlan")
"""What a service may be told that met another process, or was taken for dead."""
_NO_PLAN = ("has already been executed", "there is no plan")

SERVICE_OPTIONS = {
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.clustering.plan.strategy.sort.columns": "key",
    "hoodie.clean.commits.retained": "15",
    "hoodie.keep.min.commits": "20",
    "hoodie.keep.max.commits": "30",
}
"""Everything is due often, and what readers of the last seconds need is kept."""


def serve_for_ever(client: Client) -> None:
    """One service after the other."""
    chance, log = random.Random(client.seed), Log(client.logs, client.name)
    services = open_services(client.place, spark=client.spark)
    while runs():
        name = chance.choice(sorted(_WORK))
        serve(log, name, partial(_WORK[name], services, chance))


def open_services(place: Place, *, spark: bool = False) -> TableServices:
    """The services of the table; their tasks run in this process, or on a Spark of its own."""
    options = {**place.options, **SERVICE_OPTIONS}
    table = lakebed.open_table(place.url, options=options)
    if not spark:
        return table.services
    return TableServices(replace(table._service_context, engine=OnSpark(lakebed.local_session())), options)


def serve(log: Log, name: str, work: Callable[[], object]) -> None:
    """One service, with what came of it logged."""
    error = ""
    try:
        work()
    except Exception as problem:
        is_late = isinstance(problem, LakebedError) and any(words in str(problem) for words in _NO_PLAN)
        error = f"NoSuchPlan: {problem}" if is_late else describe(problem)
    log.add("served", service=name, error=error)


def _execute_waiting(services: TableServices, chance: random.Random) -> None:
    waiting = [i.requested_at for i in services._waiting()]
    if waiting:
        services.execute(chance.choice(waiting))


_WORK: dict[str, Callable[[TableServices, random.Random], object]] = {
    "compact": lambda services, chance: services.compact(),
    "log compact": lambda services, chance: services.log_compact(),
    "cluster": lambda services, chance: services.cluster("key", removable=chance.random() < 0.5),
    "clean": lambda services, chance: services.clean(),
    "archive": lambda services, chance: services.archive(),
    "roll back": lambda services, chance: services.rollback_failed_writes(),
    "schedule": lambda services, chance: services.schedule(chance.choice(_PLANNED)),
    "execute": _execute_waiting,
    "run": lambda services, chance: services.run(),
}


def run_once(place: Place) -> list[str]:
    """One pass while nobody else is at work; what it could not do."""
    return [f"service: {done}" for done in open_services(place).run() if done.problem is not None]


def count_services(logs: Path) -> Counter[str]:
    """How often each service was done or refused."""
    counts: Counter[str] = Counter()
    for line in _served(logs):
        kind = line["error"].partition(":")[0]
        counts[f"service {line['service']}{f' refused ({kind})' if kind else ''}"] += 1
    return counts


def find_service_errors(logs: Path, allowed: Sequence[str] = ()) -> list[str]:
    """What services were told that they should not be; `allowed` is what writers may be told, too."""
    return [
        f"service error: {line['service']}: {line['error']}"
        for line in _served(logs)
        if line["error"] and line["error"].partition(":")[0] not in (*_REFUSALS, *allowed)
    ]


def _served(logs: Path) -> Iterator[dict[str, str]]:
    for file in sorted(logs.glob("service-*.jsonl")):
        for line in file.read_bytes().split(b"\n")[:-1]:
            found = json.loads(line)
            if found["event"] == "served":
                yield found
