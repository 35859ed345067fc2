"""The commands. Each parses its arguments, calls one function and shows what it gives.

What reads tables is imported by the commands themselves, so that `lakebed --help` is there at once.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.ending import Commands
from lakebed.model.words import Word

if TYPE_CHECKING:
    from lakebed.api import Table
    from lakebed.cli.reports import Report


class ReadMode(Word):
    """What a read takes in."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"


def _print_version(wanted: bool) -> None:
    if wanted:
        from lakebed import __version__

        typer.echo(f"lakebed {__version__}")
        raise typer.Exit


def _parse_columns(text: str | None) -> str | None:
    if text is not None and not all(name.strip() for name in text.split(",")):
        raise typer.BadParameter(f"{text!r} is not a list of columns such as a,b")
    return text


def _parse_options(pairs: list[str] | None) -> list[str]:
    for pair in pairs or ():
        if not pair.partition("=")[0].strip() or "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not of the form key=value")
    return pairs or []


TablePath = Annotated[
    str, typer.Argument(metavar="PATH", help="The table: a folder, or a URL such as s3://bucket/table.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="A hoodie.* read option, or an option of the store. May be given several times.",
        callback=_parse_options,
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.", callback=_parse_columns)]
Where = Annotated[str | None, typer.Option(metavar="SQL", help="Only rows for which this SQL predicate holds.")]
AsOf = Annotated[
    str | None, typer.Option(metavar="TIME", help="The table at an instant, or at a time: '2026-11-16 09:30:00'.")
]
Mode = Annotated[ReadMode, typer.Option(help="read_optimized leaves out what is only in log files.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="How many rows to show.")]

app = typer.Typer(
    name="lakebed",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Look at Apache Hudi tables: what is in them, how they came to be, and what a read would touch."""


@app.command()
def timeline(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the instants: what was done to the table, and when."""
    from lakebed.cli.inspect import report_timeline

    _show(report_timeline(_open(path, option)), as_json)


@app.command()
def files(path: TablePath, as_of: AsOf = None, as_json: AsJson = False, option: Options = None) -> None:
    """List the file slices that a snapshot reads."""
    from lakebed.cli.inspect import report_files

    _show(report_files(_open(path, option), as_of), as_json)


@app.command()
def schema(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the columns and their types."""
    from lakebed.cli.inspect import report_schema

    _show(report_schema(_open(path, option)), as_json)


@app.command()
def config(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """Show the table's properties, and what they mean."""
    from lakebed.cli.inspect import report_config

    _show(report_config(_open(path, option)), as_json)


@app.command()
def indexes(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the indexes."""
    from lakebed.cli.inspect import report_indexes

    _show(report_indexes(_open(path, option)), as_json)


@app.command()
def read(
    path: TablePath,
    columns: Columns = None,
    where: Where = None,
    as_of: AsOf = None,
    mode: Mode = ReadMode.SNAPSHOT,
    limit: Limit = 20,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Show the first rows."""
    from lakebed.cli.inspect import report_rows

    table = _open(path, option)
    rows = report_rows(table, columns=_split(columns), where=where, as_of=as_of, mode=mode.value, limit=limit)
    _show(rows, as_json)


@app.command()
def lookup(
    path: TablePath,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY...", help="Record keys as the column _hoodie_record_key spells them.")
    ],
    columns: Columns = None,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Show the rows of record keys, by the record index."""
    from lakebed.cli.inspect import report_lookup

    _show(report_lookup(_open(path, option), keys, _split(columns)), as_json)


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
    _show(_open(path, option).explain(where=where, as_of=as_of, mode=mode.value), as_json)


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Show what lakebed does, on small tables that come with it."""
    from lakebed.cli.demo import collect, play, tell
    from lakebed.cli.output import JsonOutput, choose_text_output

    if as_json:
        JsonOutput().show(collect(play()))
    else:
        tell(play(), choose_text_output(remarks=sys.stdout))


def _open(path: str, options: list[str] | None) -> Table:
    from lakebed.api import open_table

    pairs = (pair.partition("=") for pair in options or ())
    return open_table(path, options={key.strip(): value for key, _, value in pairs})


def _split(columns: str | None) -> list[str] | None:
    return None if columns is None else [name.strip() for name in columns.split(",")]


def _show(report: Report, as_json: bool) -> None:
    from lakebed.cli.output import choose_output

    choose_output(as_json=as_json).show(report)
