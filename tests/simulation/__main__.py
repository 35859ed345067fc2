"""Runs schedules: `python -m tests.simulation --seed 17` shows one, `--schedules 1000000` runs many."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter

from .schedules import run_blocks, run_seeds

PER_BLOCK = 1000


def main() -> int:
    """Runs what the command line asks for; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this schedule and print its trace")
    parser.add_argument(
        "--schedules", type=int, default=1000, help="how many schedules to run, in blocks of a thousand"
    )
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure; group failures")
    given = parser.parse_args()
    if given.seed is not None:
        return _show(given.seed)
    reached, failed = _run(given)
    for name, count in sorted(reached.items()):
        _say(f"{count:>12}  {name}")
    _summarize(reached, failed)
    return 1 if failed else 0


def _run(given: argparse.Namespace) -> tuple[Counter[str], list[str]]:
    """All blocks, and a line now and then on how far it is."""
    began = time.perf_counter()
    reached: Counter[str] = Counter()
    failed: list[str] = []
    per_block = min(PER_BLOCK, given.schedules)
    for block in run_blocks(given.start, given.schedules // per_block, per_block, given.jobs):
        reached.update(block[0])
        failed += block[1]
        for failure in block[1]:
            _say(failure)
        _report(reached, len(failed), time.perf_counter() - began)
        if failed and not given.keep_going:
            break
    return reached, failed


def _report(reached: Counter[str], failures: int, seconds: float) -> None:
    """How far it is."""
    done = reached["schedules"]
    points = sum(1 for name in reached if re.match(r"C[0-9]+", name))
    cpu = time.process_time()  # Of this process: with several jobs the work is done in others.
    rate = f"{seconds:.0f} s, {1000 * seconds / done:.2f} ms each, {1000 * cpu / done:.2f} of CPU"
    _say(f"{done} schedules, {reached['calls']} calls, {failures} failures, {points} crash points, {rate}")


def _summarize(reached: Counter[str], failed: list[str]) -> None:
    """What counts, in few lines."""
    points = {name: count for name, count in reached.items() if re.match(r"C[0-9]+", name)}
    told = {name: count for name, count in reached.items() if name.startswith("told ")}
    _say(f"{reached['schedules']} schedules, {reached['calls']} calls, {reached['effects checked']} effects checked")
    _say("crash points: " + ", ".join(f"{name} {points[name]}" for name in sorted(points)))
    _say("answers: " + ", ".join(f"{name[5:]} {told[name]}" for name in sorted(told)))
    kinds = Counter(_kind(failure) for failure in failed)
    for kind, count in kinds.most_common():
        seeds = [failure.split(",")[0] for failure in failed if _kind(failure) == kind]
        _say(f"{count:>6} failures: {kind}: {', '.join(seeds[:5])}")
    _say(f"{len(failed)} failures")


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _kind(failure: str) -> str:
    """A failure without what differs from schedule to schedule."""
    return re.sub(r"[0-9]+", "#", failure.partition(": ")[2].partition(": ")[2])[:80]


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
