"""The commands. Each parses its arguments, calls one function and shows what it gives.

What reads tables is imported by the commands themselves: it loads Arrow, which takes longer than `lakebed --help` may.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lakebed import __version__
from lakebed.cli import index, services
from lakebed.cli.arguments import AsJson, ColumnList, Options, TablePath, open_path, show, split_columns
from lakebed.cli.words import printable
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.words import Word


class Commands(TyperGroup):
    """Commands that end in the same ways. Wrong use is told by the parser, before any of them runs."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it raises on purpose becomes a message, a hint and exit code 1."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                result = super().invoke(ctx)
            sys.stdout.flush()
        except LakebedError as error:
            _tell("error", error.what)
            _tell("hint", error.hint)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except BrokenPipeError as error:  # The reader has seen enough, as `head` has after ten lines.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error
        return result


def _show_warning(message: Warning | str, *_where: object, **_how: object) -> None:
    _tell("warning", str(message))


def _tell(kind: str, text: str) -> None:
    style = {"error": typer.colors.RED, "warning": typer.colors.YELLOW}.get(kind, typer.colors.CYAN)
    lines = [printable(line) for line in text.splitlines()]
    typer.echo(typer.style(f"{kind}: ", fg=style) + "\n".join(lines), err=True)


class ReadMode(Word):
    """What a read takes in."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakebed {__version__}")
        raise typer.Exit


Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only rows for which this SQL predicate holds.")]
AsOf = Annotated[
    str | None, typer.Option(metavar="TIME", help="The table at an instant, or at a time: '2026-11-16 09:30:00'.")
]
Mode = Annotated[ReadMode, typer.Option(help="read_optimized leaves out what is only in log files.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000_000, metavar="N", help="How many rows to show.")]

app = typer.Typer(
    name="lakebed",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(index.app, name="index")
app.add_typer(services.app, name="services")
for command in (*services.TABLE_COMMANDS, services.doctor):
    app.command()(command)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Look at Apache Hudi tables, and look after them: what is in them, how they came to be, indexes and services."""


@app.command()
def warm_up() -> None:
    """Compile the inner loops for this host, now: for images and benchmarks. Otherwise it happens in the background."""
    from lakebed.kernels import warm

    done = warm.warm_up(tell=print)
    assert done is not None, "it waits for others"
    if done.folder is None:
        raise InvalidInputError(
            "no folder for compiled code can be written", hint="set NUMBA_CACHE_DIR to a writable folder of your own"
        )
    print(f"{done.compiled} functions compiled, {done.present} found in {done.folder}")


@app.command()
def timeline(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the instants: what was done to the table, and when."""
    from lakebed.reports.timeline import timeline_report

    show(timeline_report(open_path(path, option)), as_json)


@app.command()
def files(path: TablePath, as_of: AsOf = None, as_json: AsJson = False, option: Options = None) -> None:
    """List the file slices that a snapshot reads."""
    from lakebed.reports.table import files_report

    show(files_report(open_path(path, option), as_of), as_json)


@app.command()
def schema(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the columns and their types."""
    from lakebed.reports.table import schema_report

    show(schema_report(open_path(path, option)), as_json)


@app.command()
def config(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """Show the table's properties, and what they mean."""
    from lakebed.reports.table import config_report

    show(config_report(open_path(path, option)), as_json)


@app.command()
def indexes(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the indexes."""
    from lakebed.reports.table import indexes_report

    show(indexes_report(open_path(path, option)), as_json)


@app.command()
def read(
    path: TablePath,
    columns: ColumnList = None,
    where: Where = None,
    as_of: AsOf = None,
    mode: Mode = ReadMode.SNAPSHOT,
    limit: Limit = 20,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Show the first rows."""
    from lakebed.reports.table import rows_report

    table = open_path(path, option)
    rows = rows_report(table, columns=split_columns(columns), where=where, as_of=as_of, mode=mode.value, limit=limit)
    show(rows, as_json)


@app.command()
def lookup(
    path: TablePath,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Record keys as the column _hoodie_record_key spells them.")
    ],
    columns: ColumnList = None,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Show the rows of record keys, by the record index."""
    from lakebed.reports.table import lookup_report

    show(lookup_report(open_path(path, option), keys, split_columns(columns)), as_json)


@app.command()
def explain(
    path: TablePath,
    where: Where = None,
    as_of: AsOf = None,
    mode: Mode = ReadMode.SNAPSHOT,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Show which files a read would touch, and why."""
    show(open_path(path, option).explain(where=where, as_of=as_of, mode=mode.value), as_json)


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Show what lakebed does, on small tables that come with it."""
    from lakebed.cli.demo import collect, play, tell
    from lakebed.cli.output import JsonOutput, choose_text_output

    if as_json:
        JsonOutput().show(collect(play()))
    else:
        tell(play(), choose_text_output(remarks=sys.stdout))
