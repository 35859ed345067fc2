"""What table services did to a table, as reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.services.table_services import Done
    from lakebed.services.values import ServiceResult

DONE = "done"
"""The state of an entry whose service succeeded."""


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One thing that a table service did or planned; `state` says how far it came, or what went wrong."""

    service: str
    instant: str | None
    state: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServicesReport:
    """What table services did to a table."""

    table: str
    services: tuple[ServiceEntry, ...]


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One thing that the service runner did or tried: when it ended, how long it took, and the outcome."""

    time: str
    service: str
    instant: str | None
    milliseconds: int
    outcome: str
    problem: str | None


def result_entry(service: str, result: ServiceResult | None) -> ServiceEntry:
    """The entry of a service's result; None means that it had nothing to do."""
    if result is None:
        return ServiceEntry(service, None, "nothing to do")
    state = f"{DONE}, but without {', '.join(result.missing)}: see `lakebed doctor`" if result.missing else DONE
    return ServiceEntry(result.service, result.instant, state, result.counts)


def rollback_entries(instants: Iterable[str]) -> tuple[ServiceEntry, ...]:
    """One entry for each write that was rolled back."""
    return tuple(ServiceEntry("rollback", instant, "rolled back") for instant in instants)


def pass_report(table: str, done: Iterable[Done]) -> ServicesReport:
    """What one pass of all services did, and what failed."""
    return ServicesReport(table, tuple(ServiceEntry(d.service, d.instant, d.problem or DONE) for d in done))


def run_entry(done: Done, time: str) -> RunEntry:
    """The entry of one thing that a runner did; `time` is ISO 8601."""
    return RunEntry(time, done.service, done.instant, done.milliseconds, done.outcome, done.problem)
