"""Commands that look after a table, alone and under `lakebed services`: each calls one method and shows its result."""

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
    """Services that have plans."""

    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"


class LayoutName(Word):
    """How rows are ordered by several columns; `zorder` is the word of Apache Hudi."""

    LINEAR = "linear"
    Z_ORDER = "z-order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


Service = Annotated[
    ServiceName, typer.Argument(metavar="SERVICE", help="compaction, logcompaction, clustering or clean.")
]
PlanTime = Annotated[str, typer.Argument(metavar="INSTANT", help="The time of a plan that waits on the timeline.")]
WriteTime = Annotated[str, typer.Argument(metavar="INSTANT", help="The time of a completed write.")]
Every = Annotated[str | None, typer.Option(metavar="TIME", help="Again and again: every 60s, 5m or 1h.")]
Removable = Annotated[
    bool, typer.Option("--removable", help="The plan makes way for writers; of clustering and logcompaction.")
]


@app.callback()
def root() -> None:
    """Schedule, execute, cancel and run table services. Any number of processes may."""


@app.command()
def schedule(
    path: TablePath, service: Service, removable: Removable = False, as_json: AsJson = False, option: Options = None
) -> None:
    """Put a plan on the timeline, for any process to execute."""
    instant = open_path(path, option).services.schedule(service.value, removable=removable or None)
    _show(path, service.value, instant, "scheduled" if instant else "nothing to do", as_json)


@app.command()
def execute(path: TablePath, instant: PlanTime, as_json: AsJson = False, option: Options = None) -> None:
    """Execute a plan, whoever scheduled it."""
    _show_result(path, "", open_path(path, option).services.execute(instant), as_json)


@app.command()
def cancel(path: TablePath, instant: PlanTime, as_json: AsJson = False, option: Options = None) -> None:
    """See to it that a removable plan never completes."""
    open_path(path, option).services.cancel(instant)
    _show(path, "cancel", instant, "cancelled", as_json)


@app.command()
def run(
    path: TablePath, every: Every = None, spark: Spark = None, as_json: AsJson = False, option: Options = None
) -> None:
    """Do all that is due: once, or with --every again and again until Ctrl-C or SIGTERM.

    With --every, --json prints one JSON object a line. Without it a line says what runs, one each what was done, and
    one every ten minutes that there was nothing to do.
    """
    # Imported here: it loads all services and Arrow, for which `lakebed --help` does not wait.
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
    """Rewrite small files into large ones, sorted by columns."""
    services = open_path(path, option).services
    result = services.cluster(split_columns(order_by) or (), layout=layout.value, removable=removable or None)
    _show_result(path, "clustering", result, as_json)


def clean(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """Undo what dead writers left, then delete files that no reader needs any more."""
    services = open_path(path, option).services
    undone = rollback_entries(services.rollback_failed_writes())
    _show_result(path, "clean", services.clean(), as_json, undone)


def rollback(
    path: TablePath,
    instant: Annotated[str | None, typer.Argument(metavar="INSTANT", help="The newest completed write.")] = None,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Undo the newest completed write or, without INSTANT, what dead writers left."""
    table = open_path(path, option)
    if instant is not None:
        table.rollback(instant)
        _show(path, "rollback", instant, "rolled back", as_json)
        return
    show(ServicesReport(path, rollback_entries(table.services.rollback_failed_writes())), as_json)


def savepoint(
    path: TablePath,
    instant: Annotated[str | None, typer.Argument(metavar="INSTANT", help="A completed write; the newest.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the savepoint of INSTANT.")] = False,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Keep the table as of a write readable until further notice."""
    if delete and instant is None:
        raise typer.BadParameter("say the INSTANT whose savepoint is to go")
    table = open_path(path, option)
    if not delete or instant is None:
        _show(path, "savepoint", table.savepoint(instant), "kept", as_json)
    else:
        table.delete_savepoint(instant)
        _show(path, "savepoint", instant, "removed", as_json)


def restore(path: TablePath, instant: WriteTime, as_json: AsJson = False, option: Options = None) -> None:
    """Set the table back to what it was when a write with a savepoint had completed."""
    _show_result(path, "restore", open_path(path, option).restore(instant), as_json)


TABLE_COMMANDS = (compact, cluster, clean, rollback, savepoint, restore)
"""Those that stand alone."""


def parse_seconds(text: str) -> float:
    """Seconds from `60`, `60s`, `5m` or `1h`."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise typer.BadParameter(f"{text!r} is no time such as 60s, 5m or 1h")
    return seconds


def _show_result(
    path: str, service: str, result: ServiceResult | None, as_json: bool, before: tuple[ServiceEntry, ...] = ()
) -> None:
    """Show what a service did, after what was done `before`."""
    show(ServicesReport(path, (*before, result_entry(service, result))), as_json)


def _show(path: str, service: str, instant: str | None, state: str, as_json: bool) -> None:
    show(ServicesReport(path, (ServiceEntry(service, instant, state),)), as_json)


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
