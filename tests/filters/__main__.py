"""Puts random predicates to lakebed and to DuckDB: `python -m tests.filters --predicates 10000 --seed 1`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .judge import PER_TABLE, compare


def main() -> int:
    """Runs what the command line asks for; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.filters", description=__doc__)
    parser.add_argument("--predicates", type=int, default=10_000, help="how many")
    parser.add_argument("--seed", type=int, default=1, help=f"of the first table; each gets {PER_TABLE} predicates")
    given = parser.parse_args()
    differences = 0
    with tempfile.TemporaryDirectory(prefix="lakebed-filters-") as folder:
        for number in range(0, given.predicates, PER_TABLE):
            count = min(PER_TABLE, given.predicates - number)
            for difference in compare(given.seed + number // PER_TABLE, count, Path(folder)):
                differences += 1
                sys.stdout.write(f"{difference}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{given.predicates} predicates, {differences} differences\n")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
