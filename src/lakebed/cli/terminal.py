"""Reports on a terminal: coloured text, fitted to its width. Loaded only for terminals, because rich loads slowly."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from lakebed.cli.grid import Grid, fit_columns, layout
from lakebed.cli.text import describe
from lakebed.cli.words import printable
from lakebed.reports.report import Report


class TerminalOutput:
    """Coloured text, fitted to the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, report: Report) -> None:
        """Write the tables of a report, separated by empty lines, and remarks."""
        for number, part in enumerate(describe(report)):
            if isinstance(part, str):
                self.remark(part)
            else:
                self._console.print("\n" if number else "", end="")
                self._show_grid(part)

    def remark(self, text: str) -> None:
        """Write a remark on the report."""
        self._print(printable(text), "dim")

    def heading(self, title: str, about: str) -> None:
        """Begin a section."""
        self._console.print()
        self._console.print(Rule(title, align="left", style="cyan"))
        self._print(about)

    def call(self, what: str, call: str) -> None:
        """Write a line of Python and what it is for."""
        self._console.print()
        self._print(what)
        self._print(f">>> {call}", "bold")

    def _show_grid(self, part: Grid) -> None:
        fitted, widths, left_out = fit_columns(part, self._console.width)
        for line in layout(fitted, widths):
            self._console.print(Text.assemble(*line), soft_wrap=True)
        if left_out:
            self.remark(f"no room for {', '.join(left_out)}")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, highlight=False)
