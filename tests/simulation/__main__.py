"""Runs schedules: `python -m tests.simulation --seed 17` shows one, `--schedules 1000000` runs many."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter

from .schedules import Result, run_seeds


def main() -> int:
    """Runs what the command line asks for; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this schedule and print its trace")
    parser.add_argument("--schedules", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure; group failures")
    given = parser.parse_args()
    if given.seed is not None:
        return _show(given.seed)
    began = time.perf_counter()
    reached, failed = run_seeds(range(given.start, given.start + given.schedules), stop_at_failure=not given.keep_going)
    seconds = time.perf_counter() - began
    for name, count in sorted(reached.items()):
        _say(f"{count:>10}  {name}")
    _say(f"{reached['schedules'] / seconds:.0f} schedules per second")
    kinds = Counter(_kind(result) for result in failed)
    for kind, count in kinds.most_common():
        _say(f"{count:>6} failures: {kind}")
    seen: set[str] = set()
    for result in failed:
        kind = _kind(result)
        if kind not in seen:
            seen.add(kind)
            _say(result.describe())
    return 1 if failed else 0


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")


def _kind(result: Result) -> str:
    """A failure without what differs from schedule to schedule."""
    return re.sub(r"[0-9]+", "#", (result.failure or "").partition(":")[2])[:80]


def _show(seed: int) -> int:
    _, failed = run_seeds([seed])
    if not failed:
        _say(f"seed {seed}: nothing wrong")
        return 0
    [result] = failed
    for moment, process, verb, path, fault in result.world.trace:
        _say(
            f"{moment - 1_720_000_000_000:>9} {process:<10} {verb:<12} {path}{f'   <- {fault.value}' if fault else ''}"
        )
    _say(result.setup)
    _say(result.describe())
    return 1


if __name__ == "__main__":
    sys.exit(main())
