"""The commands. Each parses its arguments, calls one function and shows the result.

Imports inside commands: whatever reads tables loads Arrow, and `lakebed --help` must not wait for that.
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
    """Handles errors, warnings and signals alike for all commands. The parser reports wrong arguments itself."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a LakebedError becomes a message, a hint and exit code 1."""
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
        except BrokenPipeError as error:  # The reader, such as `head`, has closed the pipe.
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
    """Read modes."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lakebed {__version__}")
        raise typer.Exit


Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only rows that match this SQL predicate.")]
AsOf = Annotated[
    str | None, typer.Option(metavar="TIME", help="The table as of an instant or a time: '2026-11-16 09:30:00'.")
]
Mode = Annotated[ReadMode, typer.Option(help="read_optimized reads base files only, without log files.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000_000_000, metavar="N", help="Number of rows to show.")]

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
    """Inspect and maintain Apache Hudi tables: rows, history, indexes and table services."""


@app.command()
def warm_up() -> None:
    """Compile the inner loops for this host now (images, benchmarks); otherwise it happens in the background."""
    from lakebed.kernels import warm

    done = warm.warm_up(tell=print)
    assert done is not None, "it waits for others"
    if done.folder is None:
        raise InvalidInputError(
            "no writable folder for compiled code", hint="set NUMBA_CACHE_DIR to a writable folder of your own"
        )
    print(f"{done.compiled} functions compiled, {done.present} found in {done.folder}")


@app.command()
def timeline(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the instants of the timeline: what was done to the table, and when."""
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
    """Show the table's configuration and properties."""
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
        list[str], typer.Argument(metavar="KEY...", help="Record keys, as in the column _hoodie_record_key.")
    ],
    columns: ColumnList = None,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Look up rows by record key, through the record index."""
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
    """Show which files a read would open, and why."""
    show(open_path(path, option).explain(where=where, as_of=as_of, mode=mode.value), as_json)


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Demonstrate lakebed on small tables that come with it."""
    from lakebed.cli.demo import collect, play, tell
    from lakebed.cli.output import JsonOutput, choose_text_output

    if as_json:
        JsonOutput().show(collect(play()))
    else:
        tell(play(), choose_text_output(remarks=sys.stdout))
