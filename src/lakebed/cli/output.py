"""Output of reports: JSON, text fitted to a terminal, or untruncated text in a pipe."""

from __future__ import annotations

import sys
from typing import Protocol, TextIO

from lakebed.cli.grid import layout
from lakebed.cli.text import describe
from lakebed.cli.words import printable
from lakebed.reports.report import Report, encode_json


class Output(Protocol):
    """Shows reports."""

    def show(self, report: Report) -> None:
        """Write one report."""
        ...


class TextOutput(Output, Protocol):
    """Shows reports among other text for people."""

    def remark(self, text: str) -> None:
        """Write a remark on the report."""
        ...

    def heading(self, title: str, about: str) -> None:
        """Begin a section."""
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
    """Plain text on standard output, untruncated; remarks go to a stream of their own."""

    def __init__(self, remarks: TextIO) -> None:
        self._remarks = remarks

    def show(self, report: Report) -> None:
        """Write the tables of a report, separated by empty lines."""
        for number, part in enumerate(describe(report)):
            if isinstance(part, str):
                self.remark(part)
            else:
                print("\n" if number else "", end="")
                for line in layout(part):
                    print("".join(text for text, _ in line).rstrip())

    def remark(self, text: str) -> None:
        """Write a remark on the report."""
        print(printable(text), file=self._remarks)

    def heading(self, title: str, about: str) -> None:
        """Begin a section."""
        print(f"\n== {title}\n{about}")

    def call(self, what: str, call: str) -> None:
        """Write a line of Python and what it is for."""
        print(f"\n{what}\n>>> {call}")


def choose_output(*, as_json: bool) -> Output:
    """JSON if asked for; else text for a terminal or a pipe, with remarks on standard error in a pipe."""
    return JsonOutput() if as_json else choose_text_output(sys.stderr)


def choose_text_output(remarks: TextIO) -> TextOutput:
    """Text for a terminal if standard output is one; else for a pipe, with remarks written to `remarks`."""
    if not sys.stdout.isatty():
        return PipeOutput(remarks)
    # Deferred: only a terminal needs rich.
    from rich.console import Console

    from lakebed.cli.terminal import TerminalOutput

    return TerminalOutput(Console())
