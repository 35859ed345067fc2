"""How commands end: exit code 0 done, 1 failed, 2 wrong use, 130 interrupted; a table's fault gives no traceback."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from lakebed.cli.words import printable
from lakebed.errors import LakebedError


class Commands(TyperGroup):
    """Commands that end in the same ways. Wrong use is told by the parser, before any of them runs."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; what it raises on purpose becomes a message, a hint and exit code 1."""
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
        except BrokenPipeError as error:  # The reader has seen enough, as `head` has after ten lines.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error
        return result


def _show_warning(message: Warning | str, *_where: object, **_how: object) -> None:
    _tell("warning", str(message))


def _tell(kind: str, text: str) -> None:
    style = {"error": typer.colors.RED, "warning": typer.colors.YELLOW}.get(kind, typer.colors.CYAN)
    lines = [printable(line) for line in text.splitlines()]
    typer.echo(typer.style(f"{kind}: ", fg=style) + "\n".join(lines), err=True)
