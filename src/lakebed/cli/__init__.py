"""The command line: parse, call one function, render what it gives as text or JSON."""

from __future__ import annotations

import io
import logging
import sys


def main() -> None:
    """Run the `lakebed` command and end the process with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # Text of a table may be more than the terminal can show.
    logging.getLogger().addHandler(logging.NullHandler())  # What libraries log is not for a person at a prompt.
    try:
        from lakebed.cli.app import app

        app()
    except KeyboardInterrupt:  # While modules are still loading; later ones are handled by the app itself.
        sys.exit(130)
