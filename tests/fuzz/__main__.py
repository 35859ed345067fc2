"""Fuzzes a decoder in child processes: `python -m tests.fuzz --codec hfile --inputs 1000000 --jobs 1 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import time

from .child import NAMES
from .parent import run


def main() -> int:
    """Runs what the command line asks for; 1 if an input was handled wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--codec", choices=tuple(NAMES), required=True)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many inputs are decoded")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes do so")
    parser.add_argument("--seed", type=int, default=1, help="decides, with its number, what an input is")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input, to replay one")
    given = parser.parse_args()
    started = time.monotonic()
    report = run(given.codec, given.seed, given.first, given.inputs, given.jobs, tell=_tell)
    spent = time.monotonic() - started
    _tell(
        f"{given.codec}: {report.inputs} inputs, {report.refused} of them refused, {len(report.failures)} failures,"
        f" {spent:.0f} s, {report.inputs / max(spent, 1e-9):.0f} inputs/s"
    )
    return 1 if report.failures else 0


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
