"""Random operations on random tables, judged by a model in plain Python.

`python -m tests.model_based --seed 7` runs one seed again; `--seeds 2000 --start 1 --jobs 2` runs many.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from .checks import check_each, check_some
from .runner import run_seed


def main() -> int:
    """Runs what the command line asks for; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.model_based", description=__doc__)
    parser.add_argument("--seed", type=int, help="the one seed to run")
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=1, help="the first of them")
    parser.add_argument("--steps", type=int, default=25, help="steps of each seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--all-checks", action="store_true", help="after each step, not one of them chosen at random")
    parser.add_argument("--no-shrink", action="store_true", help="show all steps that led to a failure")
    given = parser.parse_args()
    seeds = range(given.start, given.start + given.seeds) if given.seed is None else [given.seed]
    check = check_each if given.all_checks else check_some
    run = partial(run_seed, steps=given.steps, shrink=not given.no_shrink, check=check)
    failures = 0
    with ProcessPoolExecutor(given.jobs) as pool:
        for number, failure in enumerate(pool.map(run, seeds) if given.jobs > 1 else map(run, seeds), 1):
            if number % 50 == 0:
                sys.stderr.write(f"{number} of {len(seeds)} seeds\n")
            if failure is not None:
                failures += 1
                sys.stdout.write(f"{failure}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{len(seeds)} seeds of {given.steps} steps, {failures} failed\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
