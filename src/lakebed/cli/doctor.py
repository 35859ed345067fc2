"""The command that says what is wrong with a table, and puts it right if asked to."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebed.cli.arguments import AsJson, Options, TablePath, parse_pairs, show
from lakebed.reports.doctor import RepairReport, cure_report, examine_report

Repair = Annotated[
    bool, typer.Option("--repair/--dry-run", help="Put right what is safe, or only say what that would do.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Do not compare indexes with all rows.")]


def doctor(
    path: TablePath, repair: Repair = False, quick: Quick = False, as_json: AsJson = False, option: Options = None
) -> None:
    """Find what is wrong, what it blocks, and how it is put right; exit code 1 if something is left."""
    # Imported here: it loads Arrow, for which `lakebed --help` does not wait.
    from lakebed.services.doctor.doctor import open_doctor_at

    def announce(repairs: RepairReport) -> None:
        if not as_json:
            show(repairs, as_json)
            typer.echo()

    table = open_doctor_at(path, parse_pairs(option))
    report = cure_report(path, table, announce, quick=quick) if repair else examine_report(path, table, quick=quick)
    show(report, as_json)
    if not report.is_healthy:
        raise typer.Exit(1)
