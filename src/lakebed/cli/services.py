"""Maintenance commands, at the top level and under `lakebed services`: each calls one method and shows its result.

Imports inside commands: they load Arrow and all services, and `lakebed --help` must not wait for that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.arguments import (
    AsJson,
    ColumnList,
    Options,
    Spark,
    TablePath,
    open_path,
    parse_pairs,
    show,
    split_columns,
)
from lakebed.model.words import Word
from lakebed.reports.services import (
    DONE,
    RepairReport,
    ServiceEntry,
    ServicesReport,
    cure_report,
    examine_report,
    pass_report,
    result_entry,
    rollback_entries,
)

if TYPE_CHECKING:
    from lakebed.services.values import ServiceResult


app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


class ServiceName(Word):
    """Services that can be scheduled."""

    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"


class LayoutName(Word):
    """How rows are ordered by several columns; `zorder` is Apache Hudi's name of `z-order`."""

    LINEAR = "linear"
    Z_ORDER = "z-order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


Service = Annotated[
    ServiceName, typer.Argument(metavar="SERVICE", help="compaction, logcompaction, clustering or clean.")
]
PlanTime = Annotated[str, typer.Argument(metavar="INSTANT", help="The instant of a pending plan on the timeline.")]
WriteTime = Annotated[str, typer.Argument(metavar="INSTANT", help="The instant of a completed write.")]
Every = Annotated[str | None, typer.Option(metavar="TIME", help="Repeat at this interval: 60s, 5m or 1h.")]
Removable = Annotated[
    bool, typer.Option("--removable", help="Conflicting writers may cancel the plan (clustering and logcompaction).")
]


@app.callback()
def root() -> None:
    """Schedule, execute, cancel and run table services. Several processes may do so at once."""


@app.command()
def schedule(
    path: TablePath, service: Service, removable: Removable = False, as_json: AsJson = False, option: Options = None
) -> None:
    """Write a plan to the timeline, for any process to execute."""
    instant = open_path(path, option).services.schedule(service.value, removable=removable or None)
    _show(path, service.value, instant, "scheduled" if instant else "nothing to do", as_json)


@app.command()
def execute(path: TablePath, instant: PlanTime, as_json: AsJson = False, option: Options = None) -> None:
    """Execute a pending plan of any process."""
    _show_result(path, "", open_path(path, option).services.execute(instant), as_json)


@app.command()
def cancel(path: TablePath, instant: PlanTime, as_json: AsJson = False, option: Options = None) -> None:
    """Cancel a removable plan."""
    open_path(path, option).services.cancel(instant)
    _show(path, "cancel", instant, "cancelled", as_json)


@app.command()
def run(
    path: TablePath, every: Every = None, spark: Spark = None, as_json: AsJson = False, option: Options = None
) -> None:
    """Run all services that are due: once, or with --every repeatedly until Ctrl-C or SIGTERM.

    With --every, --json prints one JSON object per line. Without --json, there is a line at the start, one per action,
    and one every ten minutes while there is nothing to do.
    """
    from lakebed.cli.runner import open_lines, stopped_by_signals

    seconds = None if every is None else parse_seconds(every)
    services = open_path(path, option, spark).services
    if spark is not None:
        services = services.on_spark()
    if seconds is not None:
        with stopped_by_signals() as stop, open_lines(as_json=as_json) as lines:
            lines.start(path, every or "", services.names)
            services.run_forever(seconds, stop.is_set, lines.report, lines)
        return
    report = pass_report(path, services.run())
    show(report, as_json)
    if any(entry.state != DONE for entry in report.services):
        raise typer.Exit(1)


def compact(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """Merge log files into base files."""
    _show_result(path, "compaction", open_path(path, option).services.compact(), as_json)


def cluster(
    path: TablePath,
    order_by: ColumnList = None,
    layout: Annotated[
        LayoutName, typer.Option(case_sensitive=False, help="How rows are ordered by several columns.")
    ] = LayoutName.LINEAR,
    removable: Removable = False,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Rewrite small files as large ones, sorted by columns."""
    services = open_path(path, option).services
    result = services.cluster(split_columns(order_by) or (), layout=layout.value, removable=removable or None)
    _show_result(path, "clustering", result, as_json)


def clean(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """Roll back failed writes, then delete files that no reader needs any more."""
    services = open_path(path, option).services
    undone = rollback_entries(services.rollback_failed_writes())
    _show_result(path, "clean", services.clean(), as_json, undone)


def rollback(
    path: TablePath,
    instant: Annotated[str | None, typer.Argument(metavar="INSTANT", help="The newest completed write.")] = None,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Roll back the newest completed write or, without INSTANT, failed writes."""
    table = open_path(path, option)
    if instant is not None:
        table.rollback(instant)
        _show(path, "rollback", instant, "rolled back", as_json)
        return
    show(ServicesReport(path, rollback_entries(table.services.rollback_failed_writes())), as_json)


def savepoint(
    path: TablePath,
    instant: Annotated[
        str | None, typer.Argument(metavar="INSTANT", help="A completed write; default: the newest.")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the savepoint of INSTANT.")] = False,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Keep the table as of a write readable until the savepoint is deleted."""
    if delete and instant is None:
        raise typer.BadParameter("give the INSTANT whose savepoint to delete")
    table = open_path(path, option)
    if not delete or instant is None:
        _show(path, "savepoint", table.savepoint(instant), "kept", as_json)
    else:
        table.delete_savepoint(instant)
        _show(path, "savepoint", instant, "removed", as_json)


def restore(path: TablePath, instant: WriteTime, as_json: AsJson = False, option: Options = None) -> None:
    """Restore the table to its state after a write that has a savepoint."""
    _show_result(path, "restore", open_path(path, option).restore(instant), as_json)


TABLE_COMMANDS = (compact, cluster, clean, rollback, savepoint, restore)
"""Commands at the top level, without `lakebed services`."""


def parse_seconds(text: str) -> float:
    """Seconds from `60`, `60s`, `5m` or `1h`."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise typer.BadParameter(f"{text!r} is not an interval such as 60s, 5m or 1h")
    return seconds


def _show_result(
    path: str, service: str, result: ServiceResult | None, as_json: bool, before: tuple[ServiceEntry, ...] = ()
) -> None:
    """Show the result of a service, after the entries `before`."""
    show(ServicesReport(path, (*before, result_entry(service, result))), as_json)


def _show(path: str, service: str, instant: str | None, state: str, as_json: bool) -> None:
    show(ServicesReport(path, (ServiceEntry(service, instant, state),)), as_json)


Repair = Annotated[bool, typer.Option("--repair/--dry-run", help="Make the repairs that are safe, or only list them.")]
Quick = Annotated[bool, typer.Option("--quick", help="Skip the comparison of indexes with all rows.")]


def doctor(
    path: TablePath, repair: Repair = False, quick: Quick = False, as_json: AsJson = False, option: Options = None
) -> None:
    """Find what is wrong, what it blocks, and how to repair it; exit code 1 if problems remain."""
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
