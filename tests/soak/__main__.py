"""Kills writers for some minutes and judges what is left: `python -m tests.soak --minutes 5 --writers 2 --seed 1`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from .chaos import Setup, run
from .register import LOCKS, Place
from .s3 import FaultyStore

_SHOWN_OF_A_KIND = 5


def main() -> int:
    """Runs what the command line asks for; 1 if anything was wrong, and then the table and all logs are kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long writers are killed")
    parser.add_argument("--writers", type=int, default=2, help="how many write at a time")
    parser.add_argument("--services", type=int, default=0, help="how many processes run table services, and are killed")
    parser.add_argument("--spark", action="store_true", help="tasks of table services run on Spark")
    parser.add_argument("--seed", type=int, default=1, help="decides who is killed when, and which keys are written")
    parser.add_argument("--table-type", choices=("cow", "mor"), default="cow")
    parser.add_argument("--lock", choices=tuple(LOCKS), default="local")
    parser.add_argument("--folder", type=Path, help="where to keep the table and the logs, whatever the result")
    parser.add_argument("--store", choices=("local", "s3"), default="local", help="s3: a server in this process")
    parser.add_argument("--faulty", type=float, default=0.04, help="the share of requests that S3 answers wrongly")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="lakebed-soak-"))
    store = FaultyStore(given.seed, given.faulty) if given.store == "s3" else None
    place = Place(str(folder / "table"), given.lock) if store is None else Place(store.url, "lease", store.options)
    setup = Setup(
        folder,
        given.minutes * 60,
        given.writers,
        given.seed,
        given.table_type,
        place,
        given.services,
        given.spark,
        store,
    )
    result = run(setup)
    for name, count in sorted(result.counts.items()):
        _say(f"{count:>8}  {name}")
    for kind in dict.fromkeys(map(_kind, result.anomalies)):
        alike = [anomaly for anomaly in result.anomalies if _kind(anomaly) == kind]
        for anomaly in alike[:_SHOWN_OF_A_KIND]:
            _say(anomaly)
        if len(alike) > _SHOWN_OF_A_KIND:
            _say(f"{kind}: {len(alike) - _SHOWN_OF_A_KIND} more")
    _say(f"{len(result.anomalies)} anomalies" + (f"; see {folder}" if result.anomalies or given.folder else ""))
    if not result.anomalies and given.folder is None:
        shutil.rmtree(folder)
    return 1 if result.anomalies else 0


def _kind(anomaly: str) -> str:
    return anomaly.partition(":")[0]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
