"""This checkout beside another one (--base PATH), in turns: writes, lookups, compaction, clustering.

Each checkout has a process of its own, which answers one request at a time and is idle in between; both get the same
rows and copies of the same tables, which this checkout writes. What a first round takes is not counted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import clustering, compaction
from benchmarks.append import copy_table
from benchmarks.batches import BENCH, make_batches
from benchmarks.folders import fresh_folder
from benchmarks.lookup_tables import own_table
from benchmarks.peer import HERE, LOG, Peer
from benchmarks.report import Bar, Line, print_lines
from benchmarks.settings import Settings
from benchmarks.write import Contender, Costs, measure
from benchmarks.writers import Spent, Writer
from lakebed.engine.session import find_java_home

ROUNDS = 9
TIMES_MAX = 1.05
OURS, BASE = "lakebed", "base"
_SIDE = HERE / "turns_side.py"
_WARM_UP = "from lakebed.kernels.warm import warm_up; warm_up()"

Sides = Mapping[str, Writer]
"""Both checkouts, by name."""
Ask = Callable[[Writer, int], Spent]
"""Has a side do something once; the number is that of the round."""


def main(settings: Settings) -> None:
    """Prints one table."""
    if settings.base is None:
        raise SystemExit("turns needs --base PATH, a checkout to compare with")
    unknown = {*settings.only} - {*FIGURES}
    if unknown:
        raise SystemExit(f"there are no figures {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    roots = {OURS: HERE.parent, BASE: settings.base}
    settings = replace(settings, rounds=settings.rounds or ROUNDS)
    for root in roots.values():
        _warm_up(root)
    lines: list[Line] = []
    for name in settings.only or FIGURES:
        print(f"  -- {name}", flush=True)
        with running_sides(roots, on_spark="spark" in name) as sides, fresh_folder() as folder:
            lines += FIGURES[name](sides, settings, folder)
        print_lines(f"{name} beside {settings.base}: medians of {settings.rounds} rounds in turns", lines)
        lines.clear()


@contextmanager
def running_sides(roots: Mapping[str, Path], *, on_spark: bool) -> Iterator[Sides]:
    """A process for each checkout; they end with the block."""
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, root in roots.items():
            processes[name] = _start(root, on_spark=on_spark)
        yield {name: Writer(name, Peer(process), process.pid) for name, process in processes.items()}
    finally:
        for process in processes.values():
            with process:  # Closes its input, at which it ends, and waits.
                pass


def _start(root: Path, *, on_spark: bool) -> subprocess.Popen[str]:
    BENCH.mkdir(exist_ok=True)
    with LOG.open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _SIDE.read_text(), *(["--spark"] if on_spark else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_environment(root),
            cwd=BENCH,
        )


def _environment(root: Path) -> dict[str, str]:
    java = find_java_home()
    return {
        **os.environ,
        **({} if java is None else {"JAVA_HOME": str(java)}),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }


def _warm_up(root: Path) -> None:
    """Compiles ahead what a checkout can; one without a warm-up compiles in the rounds that are not counted."""
    BENCH.mkdir(exist_ok=True)
    if (root / "src" / "lakebed" / "kernels" / "warm.py").exists():
        subprocess.run([sys.executable, "-c", _WARM_UP], env=_environment(root), check=True, cwd=BENCH)


def _write(sides: Sides, settings: Settings, _: Path, *, record_index: bool) -> list[Line]:
    settings = replace(settings, record_index=record_index)
    batches, rounds = make_batches(settings.rows, settings.batch_rows), settings.rounds or ROUNDS
    lines = []
    for kind in ("cow", "mor"):  # Each by itself: a write is slower after one of many bytes than after one of few.
        contenders = [Contender(side, kind) for side in sides.values()]
        loads, upserts = measure(contenders, batches, settings, rounds, loads=rounds if kind == "cow" else 1)
        if kind == "cow":
            lines.append(_line("first load, COW", loads[OURS, kind], loads[BASE, kind]))
        lines.append(_line(f"upsert, {kind.upper()}", upserts[OURS, kind], upserts[BASE, kind]))
    return lines


def _lookup(sides: Sides, settings: Settings, _: Path) -> list[Line]:
    asked = {"lookup, warm": "look_up", "first lookup of a process": "look_up_first", "to_arrow by key": "filter"}
    lines = []
    for kind in ("cow", "mor"):
        path, keys = own_table(kind)

        def ask(side: Writer, number: int, *, do: str, path: str = path, keys: list[str] = keys) -> Spent:
            some = keys[number % len(keys) :] if do == "look_up_first" else keys
            return _asked(side, do, path=path, keys=some[: 50 if do == "filter" else None])

        for what, do in asked.items():
            lines.append(_in_turns(f"{kind.upper()}, {what}", sides, partial(ask, do=do), settings))
    return lines


def _compaction(sides: Sides, settings: Settings, folder: Path) -> list[Line]:
    source = compaction.source_table(settings)

    def ask(side: Writer, number: int) -> Spent:
        copy = folder / f"{side.name}-{number}"
        copy_table(source, copy)
        spent = _asked(side, "compact", path=str(copy))
        shutil.rmtree(copy)
        return spent

    return [_in_turns("compaction, plan and execute", sides, ask, settings)]


def _clustering(sides: Sides, settings: Settings, folder: Path) -> list[Line]:
    original = folder / "original"
    clustering.make_table(original, settings)

    def ask(side: Writer, number: int) -> Spent:
        copy = folder / f"{side.name}-{number}"
        shutil.copytree(original, copy)
        spent = _asked(side, "cluster", path=str(copy))
        clustering.check(original, copy)
        shutil.rmtree(copy)
        return spent

    return [_in_turns("clustering, plan and execute", sides, ask, settings)]


FIGURES: dict[str, Callable[[Sides, Settings, Path], list[Line]]] = {
    "write-record-index": partial(_write, record_index=True),
    "write": partial(_write, record_index=False),
    "write-spark-record-index": partial(_write, record_index=True),
    "lookup": _lookup,
    "compaction": _compaction,
    "clustering": _clustering,
}


def _asked(side: Writer, do: str, **arguments: Any) -> Spent:
    answer = side.peer.ask(do, **arguments)
    return Spent(answer["seconds"], answer["cpu"])


def _in_turns(what: str, sides: Sides, ask: Ask, settings: Settings) -> Line:
    """A line of both, who take turns A B, B A, ... after a round that is not counted."""
    spent: dict[str, list[Spent]] = {name: [] for name in sides}
    for number in range((settings.rounds or ROUNDS) + 1):
        for name in sides if number % 2 else reversed([*sides]):
            done = ask(sides[name], number)
            if number:
                spent[name].append(done)
    costs = {name: Costs(tuple(done)) for name, done in spent.items()}
    print(f"  {what}: {costs[OURS]} beside {costs[BASE]}", flush=True)
    return _line(what, costs[OURS], costs[BASE])


def _line(what: str, ours: Costs, base: Costs) -> Line:
    times = ours.wall / base.wall
    cpu = f" (cpu {ours.cpu / base.cpu:.2f}x)" if base.cpu else ""
    return Line(
        what, str(ours), BASE, str(base), f"{times:.2f}x its time{cpu}", Bar(f"<= {TIMES_MAX:g}x", times <= TIMES_MAX)
    )
