"""The doctor's findings as reports, with the writes and table services in flight and their last heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.services.doctor.doctor import Doctor
    from lakebed.services.doctor.finding import Finding
    from lakebed.services.doctor.under_way import UnderWay


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair is about to put right."""

    table: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What is wrong with a table; `is_healthy` if nothing is, or nothing any more. What is `under_way` is not wrong."""

    table: str
    is_healthy: bool
    findings: tuple[Finding, ...]
    under_way: tuple[UnderWay, ...] = ()


def examine_report(table: str, doctor: Doctor, *, quick: bool = False) -> DoctorReport:
    """What the doctor finds wrong with a table, which may be one that cannot be opened."""
    return _report(table, doctor, doctor.examine(quick=quick))


def cure_report(
    table: str, doctor: Doctor, announce: Callable[[RepairReport], None], *, quick: bool = False
) -> DoctorReport:
    """What the doctor found, and the outcome of each repair; `announce` is called before repairs are made."""

    def tell(todo: Sequence[Finding]) -> None:
        announce(RepairReport(table, tuple(todo)))

    return _report(table, doctor, doctor.cure(quick=quick, announce=tell))


def _report(table: str, doctor: Doctor, findings: tuple[Finding, ...]) -> DoctorReport:
    is_healthy = all(finding.is_repaired for finding in findings)
    return DoctorReport(table, is_healthy, findings, doctor.under_way())
