"""The commands. Each parses its arguments, calls one function and shows what it gives.

What reads tables is imported by the commands themselves, so that `lakebed --help` is there at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from lakebed.errors import LakebedError
from lakebed.model.words import Word

if TYPE_CHECKING:
    from lakebed.api import Table
    from lakebed.cli.reports import Report


class ReadMode(Word):
    """What a read of a merge-on-read table takes in."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"


class Commands(TyperGroup):
    """The commands, with one way to fail: a message and a hint on standard error, and no traceback."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run a command and end with exit code 1 if it fails, 130 if it is interrupted."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                result = super().invoke(ctx)
            sys.stdout.flush()
        except LakebedError as error:
            _complain("error", error.what)
            _complain("hint", error.hint)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(130) from error
        except BrokenPipeError as error:  # The reader has seen enough, as in `lakebed files … | head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error
        return result


app = typer.Typer(
    name="lakebed",
    cls=Commands,
    help="Look at Apache Hudi tables: what is in them, how they came to be, what a read would touch.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _parse_options(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        if not pair.partition("=")[0].strip() or "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not of the form key=value", param_hint="--option")
    return {key.strip(): value for key, _, value in (pair.partition("=") for pair in pairs)}


def _parse_columns(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise typer.BadParameter(f"{text!r} is not a list of columns such as a,b", param_hint="--columns")
    return names


TablePath = Annotated[str, typer.Argument(metavar="PATH", help="The table: a folder, or a URL such as s3://bucket/table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Options = Annotated[
    list[str],
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="A hoodie.* read option or an option of the store; may be repeated."
    ),
]
Columns = Annotated[str | None, typer.Option("--columns", metavar="A,B", help="Only these columns.")]
Where = Annotated[str | None, typer.Option("--where", metavar="SQL", help="Only rows of this SQL predicate.")]
AsOf = Annotated[
    str | None,
    typer.Option("--as-of", metavar="TIME", help="The table at an instant, or at a time such as '2026-11-16 09:30:00'."),
]
Mode = Annotated[ReadMode, typer.Option("--mode", help="read_optimized leaves out what is only in log files.")]


@app.callback()
def lakebed(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version.", callback=_print_version)] = False,
) -> None:
    """Options before a command."""


@app.command()
def timeline(path: TablePath, as_json: AsJson = False, option: Options = []) -> None:
    """List the instants: what was done to the table, when, and what each write wrote."""
    from lakebed.cli.inspect import report_timeline

    _show(report_timeline(_open(path, option)), as_json)
