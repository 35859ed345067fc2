"""The peer's end of the line protocol: a JSON request in, a JSON answer out. Needs no package."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO


def serve(make_peer: Callable[[], object]) -> None:
    """Answers requests, each the name of a method and its arguments, until the input ends.

    The peer is made here, after stdout was taken: a JVM that it starts prints elsewhere.
    """
    answers = take_stdout()
    peer = make_peer()
    for line in sys.stdin:
        request = json.loads(line)
        action = getattr(peer, request.pop("do"))
        try:
            answer = action(**request)
        except Exception as error:
            sys.stderr.write(f"{error!r}\n")
            answer = {"error": str(error).partition("\n")[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def take_stdout() -> TextIO:
    """Stdout for answers alone: what libraries print goes to stderr from here on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def timed(work: Callable[[], object]) -> dict[str, Any]:
    """The answer to a request to do some work: its seconds."""
    started = time.perf_counter()
    work()
    return {"seconds": time.perf_counter() - started}
