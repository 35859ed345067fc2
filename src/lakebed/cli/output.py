"""Where reports go: JSON for programs; text for people, fitted to a terminal or whole in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from lakebed.cli.grid import Grid, fit_columns, layout
from lakebed.cli.json_text import encode_json
from lakebed.cli.reports import Report
from lakebed.cli.text import describe

if TYPE_CHECKING:
    from rich.console import Console


class Output(Protocol):
    """Shows reports."""

    def show(self, report: Report) -> None:
        """Write one report."""
        ...


class JsonOutput:
    """One JSON document on standard output."""

    def show(self, report: Report) -> None:
        """Write the report's fields."""
        print(encode_json(report))


class PipeOutput:
    """Whole, plain columns on standard output; remarks on standard error, so that they do not mix."""

    def show(self, report: Report) -> None:
        """Write the report's tables, with an empty line between them."""
        for number, part in enumerate(describe(report)):
            if isinstance(part, str):
                print(part, file=sys.stderr)
                continue
            if number:
                print()
            for line in layout(part):
                print("".join(text for text, _ in line).rstrip())


class TerminalOutput:
    """Coloured columns that fit the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, report: Report) -> None:
        """Write the report's tables and remarks, with an empty line between them."""
        for number, part in enumerate(describe(report)):
            if number:
                self._console.print()
            if isinstance(part, str):
                self.remark(part)
            else:
                self._show_grid(part)

    def remark(self, text: str) -> None:
        """Write a line that is about the report."""
        self._console.print(text, style="dim", markup=False, highlight=False)

    def _show_grid(self, part: Grid) -> None:
        from rich.text import Text

        fitted, widths, left_out = fit_columns(part, self._console.width)
        for line in layout(fitted, widths):
            self._console.print(Text.assemble(*line), soft_wrap=True)
        if left_out:
            self.remark(f"\nleft out for want of room: {', '.join(left_out)} (a wider terminal, a pipe and --json have them)")


def choose_output(*, as_json: bool) -> Output:
    """JSON if asked for; else text for whatever standard output is."""
    if as_json:
        return JsonOutput()
    if not sys.stdout.isatty():
        return PipeOutput()
    from rich.console import Console

    return TerminalOutput(Console())
