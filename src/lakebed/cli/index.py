"""The commands under `lakebed index`: each calls one method of `table.indexes` and shows its result and progress.

Imports inside commands: they load Arrow or rich, and `lakebed --help` must not wait for that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.arguments import AsJson, ColumnList, Options, TablePath, open_path, show, split_columns
from lakebed.index.words import COMMANDS, COMMANDS_TEXT, TOLD_BY_TABLE
from lakebed.model.words import Word
from lakebed.observe import SILENT, Observer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

SHARDS_MAX = 10_000
"""Maximum number of shards that a command accepts."""


def _parse_kind(text: str | None) -> str | None:
    if text is None or text in (*COMMANDS, *TOLD_BY_TABLE):
        return text
    from lakebed.index.names import other_names

    kind = other_names().get(text.lower())
    if kind is None:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(COMMANDS)}")
    return kind


Name = Annotated[str, typer.Argument(metavar="NAME", help="The index, as listed by `lakebed indexes`.")]


class OnDuplicate(Word):
    """What to do if a key occurs more than once."""

    FAIL = "fail"
    LATEST = "latest"


@app.callback()
def root() -> None:
    """Create, check, reshard and drop indexes."""


@app.command("list")
def list_(path: TablePath, as_json: AsJson = False, option: Options = None) -> None:
    """List the indexes."""
    _show_indexes(path, option, as_json)


@app.command()
def create(
    path: TablePath,
    name: Name,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"{COMMANDS_TEXT}; by default from NAME.",
            callback=_parse_kind,
        ),
    ] = None,
    on: ColumnList = None,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1, max=SHARDS_MAX, metavar="N", help="Number of shards; by default chosen by the number of rows."
        ),
    ] = None,
    on_duplicate: Annotated[
        OnDuplicate, typer.Option(help="If a key occurs more than once: fail, or index its newest row.")
    ] = (OnDuplicate.FAIL),
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Replace the index; a record index keeps its kind unless --kind is given.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Only plan the index; `lakebed index run` builds it, in any process.")
    ] = False,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Build an index from the rows of the table, while others write."""
    table = open_path(path, option)
    with show_progress() as observer:
        table.indexes.create(
            name,
            on=split_columns(on),
            kind=kind,
            shards=shards,
            on_duplicate=on_duplicate.value,
            rebuild=rebuild,
            wait=not no_wait,
            observer=observer,
        )
    _show_indexes(path, option, as_json)


@app.command()
def run(path: TablePath, name: Name, as_json: AsJson = False, option: Options = None) -> None:
    """Build an index that was planned with --no-wait, by this process or another."""
    table = open_path(path, option)
    with show_progress() as observer:
        table.indexes.run(name, observer=observer)
    _show_indexes(path, option, as_json)


@app.command()
def drop(path: TablePath, name: Name, as_json: AsJson = False, option: Options = None) -> None:
    """Remove an index."""
    open_path(path, option).indexes.drop(name)
    _show_indexes(path, option, as_json)


@app.command()
def reshard(
    path: TablePath,
    name: Name,
    shards: Annotated[
        int,
        typer.Option(
            min=1, max=SHARDS_MAX, metavar="N", help="Number of shards; per data partition if the index is partitioned."
        ),
    ],
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Change the number of shards of the record index; writers continue meanwhile."""
    table = open_path(path, option)
    with show_progress() as observer:
        table.indexes.reshard(name, shards=shards, observer=observer)
    _show_indexes(path, option, as_json)


@app.command()
def validate(
    path: TablePath,
    name: Name,
    examples: Annotated[
        int,
        typer.Option(min=0, max=1_000_000, metavar="N", help="Number of examples to show of each kind of difference."),
    ] = 20,
    as_json: AsJson = False,
    option: Options = None,
) -> None:
    """Compare an index with all rows, in both directions; exit code 1 if they differ."""
    from lakebed.reports.table import check_report

    table = open_path(path, option)
    with show_progress() as observer:
        report = check_report(table, name, examples=examples, observer=observer)
    show(report, as_json)
    if not report.is_sound:
        raise typer.Exit(1)


def _show_indexes(path: str, option: list[str] | None, as_json: bool) -> None:
    from lakebed.reports.table import indexes_report

    show(indexes_report(open_path(path, option)), as_json)


class ProgressBar:
    """An observer that shows one bar, labelled with the phase."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def phase(self, name: str) -> None:
        """Start a new bar of unknown length."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(name, total=None)

    def progress(self, what: str, done: int, total: int) -> None:
        """Move the bar forward; its label is `what` if no phase was reported."""
        if self._task is None:
            self._task = self._bars.add_task(what, total=None)
        self._bars.update(self._task, completed=done, total=total)


@contextmanager
def show_progress() -> Iterator[Observer]:
    """An observer that draws a progress bar on standard error; a silent one if that is not a terminal."""
    if not sys.stderr.isatty():
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield ProgressBar(bars)
