"""Where reports go: JSON for programs; text for people, fitted to a terminal or whole in a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TextIO

from lakebed.cli.grid import Grid, fit_columns, layout
from lakebed.cli.text import describe
from lakebed.cli.words import printable
from lakebed.reports.json_text import encode_json
from lakebed.reports.report import Report

if TYPE_CHECKING:
    from rich.console import Console


class Output(Protocol):
    """Shows reports."""

    def show(self, report: Report) -> None:
        """Write one report."""
        ...


class TextOutput(Output, Protocol):
    """Shows reports among other text for people."""

    def remark(self, text: str) -> None:
        """Write a line about what was shown."""
        ...

    def heading(self, title: str, about: str) -> None:
        """Begin a part."""
        ...

    def call(self, what: str, call: str) -> None:
        """Write a line of Python and what it is for."""
        ...


class JsonOutput:
    """One JSON document on standard output."""

    def show(self, report: object) -> None:
        """Write the fields of a report."""
        print(encode_json(report))


class PipeOutput:
    """Plain text on standard output, every cell whole; remarks may go elsewhere, so that programs do not meet them."""

    def __init__(self, remarks: TextIO) -> None:
        self._remarks = remarks

    def show(self, report: Report) -> None:
        """Write the tables of a report, with an empty line between them."""
        for number, part in enumerate(describe(report)):
            if isinstance(part, str):
                self.remark(part)
            else:
                print("\n" if number else "", end="")
                for line in layout(part):
                    print("".join(text for text, _ in line).rstrip())

    def remark(self, text: str) -> None:
        """Write a line about what was shown."""
        print(printable(text), file=self._remarks)

    def heading(self, title: str, about: str) -> None:
        """Begin a part."""
        print(f"\n== {title}\n{about}")

    def call(self, what: str, call: str) -> None:
        """Write a line of Python and what it is for."""
        print(f"\n{what}\n>>> {call}")


class TerminalOutput:
    """Coloured text, fitted to the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, report: Report) -> None:
        """Write the tables of a report, with an empty line between them, and remarks."""
        for number, part in enumerate(describe(report)):
            if isinstance(part, str):
                self.remark(part)
            else:
                self._console.print("\n" if number else "", end="")
                self._show_grid(part)

    def remark(self, text: str) -> None:
        """Write a line about what was shown."""
        self._print(printable(text), "dim")

    def heading(self, title: str, about: str) -> None:
        """Begin a part."""
        from rich.rule import Rule

        self._console.print()
        self._console.print(Rule(title, align="left", style="cyan"))
        self._print(about)

    def call(self, what: str, call: str) -> None:
        """Write a line of Python and what it is for."""
        self._console.print()
        self._print(what)
        self._print(f">>> {call}", "bold")

    def _show_grid(self, part: Grid) -> None:
        from rich.text import Text

        fitted, widths, left_out = fit_columns(part, self._console.width)
        for line in layout(fitted, widths):
            self._console.print(Text.assemble(*line), soft_wrap=True)
        if left_out:
            self.remark(f"no room for {', '.join(left_out)}")

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(text, style=style, markup=False, highlight=False)


def choose_output(*, as_json: bool) -> Output:
    """JSON if asked for; else text for whatever standard output is, with remarks kept apart in a pipe."""
    return JsonOutput() if as_json else choose_text_output(sys.stderr)


def choose_text_output(remarks: TextIO) -> TextOutput:
    """Text for a terminal if standard output is one; else for a pipe, with its remarks in a place of choice."""
    if not sys.stdout.isatty():
        return PipeOutput(remarks)
    from rich.console import Console

    return TerminalOutput(Console())
