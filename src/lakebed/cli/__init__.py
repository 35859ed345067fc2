"""The command line: parse arguments, call one function, render its result as text or JSON."""

from __future__ import annotations

import io
import logging
import sys


def main() -> None:
    """Run the `lakebed` command and end the process with its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # Tables may contain characters that the terminal cannot encode.
    logging.getLogger().addHandler(logging.NullHandler())  # Log messages of libraries do not belong on the terminal.
    try:
        from lakebed.cli.app import app  # Deferred, so that Ctrl-C during loading is handled here.

        app()
    except KeyboardInterrupt:  # Once loaded, the app handles Ctrl-C itself.
        sys.exit(130)
