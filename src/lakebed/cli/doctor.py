"""The command that says what is wrong with a table, and puts it right if asked to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.arguments import AsJson, Options, TablePath, parse_pairs, show

if TYPE_CHECKING:
    from lakebed.services.doctor.finding import Finding

Repair = Annotated[
    bool, typer.Option("--repair/--dry-run", help="Put right what is safe, or only say what that would do.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Do not compare indexes with all rows.")]


def doctor(
    path: TablePath, repair: Repair = False, quick: Quick = False, as_json: AsJson = False, option: Options = None
) -> None:
    """Find what is wrong, what it blocks, and how it is put right; exit code 1 if something is left."""
    from lakebed.cli.reports import DoctorReport, RepairReport
    from lakebed.services.doctor.doctor import open_doctor_at

    def announce(todo: Sequence[Finding]) -> None:
        if not as_json:
            show(RepairReport(path, tuple(todo)), as_json)
            typer.echo()

    table = open_doctor_at(path, parse_pairs(option))
    findings = table.cure(quick=quick, announce=announce) if repair else table.examine(quick=quick)
    is_healthy = all(finding.is_repaired for finding in findings)
    show(DoctorReport(path, is_healthy, findings, table.under_way()), as_json)
    if not is_healthy:
        raise typer.Exit(1)
