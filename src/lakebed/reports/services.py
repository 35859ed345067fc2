"""Reports of table services and the doctor: what they did, what is wrong, and what is in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.services.doctor.doctor import Doctor
    from lakebed.services.doctor.finding import Finding
    from lakebed.services.doctor.under_way import UnderWay
    from lakebed.services.table_services import Done
    from lakebed.services.values import ServiceResult


DONE = "done"
"""The state of an entry whose service succeeded."""


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One action of a table service; `state` says whether it is done, or what went wrong."""

    service: str
    instant: str | None
    state: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServicesReport:
    """Actions of table services on a table."""

    table: str
    services: tuple[ServiceEntry, ...]


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One action of the service runner: when it ended, how long it took, and the outcome."""

    time: str
    service: str
    instant: str | None
    milliseconds: int
    outcome: str
    problem: str | None


def result_entry(service: str, result: ServiceResult | None) -> ServiceEntry:
    """The entry for the result of a service; None means that it had nothing to do."""
    if result is None:
        return ServiceEntry(service, None, "nothing to do")
    state = f"{DONE}, but without {', '.join(result.missing)}: see `lakebed doctor`" if result.missing else DONE
    return ServiceEntry(result.service, result.instant, state, result.counts)


def rollback_entries(instants: Iterable[str]) -> tuple[ServiceEntry, ...]:
    """One entry for each write that was rolled back."""
    return tuple(ServiceEntry("rollback", instant, "rolled back") for instant in instants)


def pass_report(table: str, done: Iterable[Done]) -> ServicesReport:
    """The actions and failures of one run of all services."""
    return ServicesReport(table, tuple(ServiceEntry(d.service, d.instant, d.problem or DONE) for d in done))


def run_entry(done: Done, time: str) -> RunEntry:
    """The entry for one action of the runner; `time` is ISO 8601."""
    return RunEntry(time, done.service, done.instant, done.milliseconds, done.outcome, done.problem)


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Findings that are about to be repaired."""

    table: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The doctor's findings; `is_healthy` if there are none, or all are repaired. `under_way` are actions in flight."""

    table: str
    is_healthy: bool
    findings: tuple[Finding, ...]
    under_way: tuple[UnderWay, ...] = ()


def examine_report(table: str, doctor: Doctor, *, quick: bool = False) -> DoctorReport:
    """Examines a table, which may be too damaged to be opened."""
    return _report(table, doctor, doctor.examine(quick=quick))


def cure_report(
    table: str, doctor: Doctor, announce: Callable[[RepairReport], None], *, quick: bool = False
) -> DoctorReport:
    """Examines and repairs a table; `announce` is called before repairs begin."""

    def tell(todo: Sequence[Finding]) -> None:
        announce(RepairReport(table, tuple(todo)))

    return _report(table, doctor, doctor.cure(quick=quick, announce=tell))


def _report(table: str, doctor: Doctor, findings: tuple[Finding, ...]) -> DoctorReport:
    is_healthy = all(finding.is_repaired for finding in findings)
    return DoctorReport(table, is_healthy, findings, doctor.under_way())
