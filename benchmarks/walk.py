"""Walks through the code: which modules a call passes through, and how often control turns back up the layers.

Four calls, each warm and in a process of its own: an upsert in process, an upsert on Spark with tasks in its workers, a
filtered read, a compaction; on a merge-on-read table with a record index. A turn is a pair of modules: one calls a
function of the other, which stands above it in the list of import-linter. It is a task that an engine runs, a generator
that is resumed, or another callback. Callbacks between modules of one package are not counted.

With --source PATH/src, the code there is walked too, with its own list of layers.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peer import HERE
from benchmarks.report import Line, print_lines
from benchmarks.settings import Settings
from benchmarks.walk_record import FILE_VARIABLE, Call, Recorder, read_calls

ROWS = 20_000
CITIES = ("athens", "berlin", "lima", "osaka")
_LAYERS_MARK = 'type = "layers"\nlayers = '
_HOOK = "from benchmarks.walk_record import record_in_worker\nrecord_in_worker()\n"
"""What Python runs first in workers of Spark."""
_THRESHOLD = "_DRIVER_BYTES"
"""Whichever module has it: bytes of rows of a DataFrame up to which the driver writes them itself."""

_ENGINE = "lakebed.engine."

Prepared = Callable[[], object]
"""A call that is ready to be made."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A module that calls functions of a module above it."""

    caller: str
    module: str
    functions: tuple[str, ...]
    kind: str
    """What they are: a task, a generator, or a callback."""

    def __str__(self) -> str:
        return f"{self.kind:9} {self.caller} -> {self.module}: {', '.join(self.functions)}"


@dataclass(frozen=True, slots=True)
class Walk:
    """What a call passes through."""

    modules: frozenset[str]
    turns: tuple[Turn, ...]

    @property
    def packages(self) -> int:
        """How many packages, or modules beside them, directly below the root."""
        return len({module.split(".")[1] for module in self.modules if "." in module})

    def __str__(self) -> str:
        kinds = Counter(turn.kind for turn in self.turns)
        counts = ", ".join(f"{kinds[kind]} {kind}s" for kind in ("callback", "task", "generator"))
        return f"{len(self.modules)} modules, {self.packages} packages; {len(self.turns)} turns: {counts}"


def main(settings: Settings) -> None:
    """Prints a table, and then all turns."""
    roots = [HERE.parent, *([settings.base] if settings.base else [])]
    walked = {name: [walk(root, name) for root in roots] for name in WALKS}
    beside = roots[1].name if roots[1:] else ""
    lines = [Line(name, str(walks[0]), beside, str(walks[1]) if beside else "") for name, walks in walked.items()]
    print_lines("walks: modules passed, and turns back up the layers", lines)
    for number, root in enumerate(roots):
        for name, walks in walked.items():
            print(f"\n{name}{f', {root.name}' if number else ''}:")
            print("\n".join(f"  {turn}" for turn in walks[number].turns) or "  no turns")


def walk(root: Path, name: str) -> Walk:
    """One call of a checkout's code, recorded in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join([str(root / "src"), str(HERE.parent)])
        environment = {**os.environ, "PYTHONPATH": path, FILE_VARIABLE: f"{folder}/workers", "TZ": "UTC"}
        command = [sys.executable, "-m", "benchmarks.walk", name, folder]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=folder)
        calls = {Call(**said) for said in json.loads(done.stdout.splitlines()[-1])}
        calls |= read_calls(Path(folder, "workers"))
    return Walk(frozenset(call.module for call in calls), find_turns(calls, read_layers(root / "pyproject.toml")))


def read_layers(path: Path) -> list[str]:
    """The packages of a checkout, the highest first."""
    _, _, rest = path.read_text().partition(_LAYERS_MARK)
    layers: list[str] = ast.literal_eval(rest[: rest.index("]") + 1])
    return layers


def find_turns(calls: set[Call], layers: list[str]) -> tuple[Turn, ...]:
    """Calls up the layers, by pairs of modules."""
    found: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        if call.caller is not None and _rank(call.module, layers) < _rank(call.caller, layers):
            found.setdefault((call.caller, call.module), []).append(call)
    return tuple(
        Turn(*pair, tuple(sorted({call.function for call in some})), _kind(pair[0], some))
        for pair, some in sorted(found.items())
    )


def _kind(caller: str, calls: list[Call]) -> str:
    if all(call.is_generator for call in calls):
        return "generator"
    return "task" if caller.startswith(_ENGINE) else "callback"


def _rank(module: str, layers: list[str]) -> int:
    """Where a module stands; the root itself stands above all."""
    matching = (number for number, layer in enumerate(layers) if f"{module}.".startswith(f"{layer}."))
    return next(matching, -1)


def _rows(name: str, count: int, ts: int) -> pa.Table:
    """Rows whose keys begin with a name."""
    numbers = np.arange(count)
    columns = {
        "uuid": [f"{name}-{number:06d}" for number in numbers],
        "ts": numbers + ts,
        "amount": numbers % 1000 + 0.5,
        "city": [CITIES[number % len(CITIES)] for number in numbers],
    }
    return pa.table(columns)


def _table(path: Path, **given: Any) -> tuple[Any, pa.Table]:
    """A table with base files and log files, and rows for another upsert: updates and inserts."""
    import lakebed

    rows, updates = _rows("a", ROWS, 0), _rows("a", ROWS // 2, ROWS)
    names = {"key": "uuid", "partition_by": "city", "ordering": "ts"}
    table = lakebed.create_table(path, schema=rows.schema, table_type="mor", indexes=("record",), **names)
    table.bulk_insert(rows)
    table.upsert(updates)
    return lakebed.open_table(path, **given), pa.concat_tables([updates, _rows("b", ROWS // 2, 0)])


def _prepare_upsert(path: Path) -> Prepared:
    table, rows = _table(path)
    return lambda: table.upsert(rows)


def _prepare_upsert_on_spark(path: Path) -> Prepared:
    import lakebed

    hook = path.parent / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(_HOOK)
    if str(hook) not in os.environ["PYTHONPATH"]:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(hook), os.environ["PYTHONPATH"]])
    spark = lakebed.local_session("benchmarks", cores=2)
    table, rows = _table(path, spark=spark)
    frame = spark.createDataFrame(rows.to_pandas())
    return lambda: _upsert_by_workers(table, frame)


def _upsert_by_workers(table: Any, frame: Any) -> None:
    """An upsert that is large enough for Spark, whatever its size."""
    homes = [module for module in [*sys.modules.values()] if hasattr(module, _THRESHOLD)]
    if not homes:
        raise RuntimeError(f"no module has {_THRESHOLD}")
    for home in homes:
        setattr(home, _THRESHOLD, -1)
    if table.upsert(frame).jobs < 2:
        raise RuntimeError("the driver wrote the rows itself")


def _prepare_read(path: Path) -> Prepared:
    table, _ = _table(path)
    return lambda: table.to_arrow(columns=["uuid", "amount"], where="city = 'lima' and amount > 900")


def _prepare_compaction(path: Path) -> Prepared:
    table, _ = _table(path)
    return lambda: table.services.compact()


WALKS: dict[str, Callable[[Path], Prepared]] = {
    "upsert in process": _prepare_upsert,
    "upsert on Spark": _prepare_upsert_on_spark,
    "filtered read": _prepare_read,
    "compaction": _prepare_compaction,
}


def record(name: str, folder: Path) -> set[Call]:
    """The calls on the second of two tables: what is loaded on first use was loaded for the first one."""
    recorder = Recorder()
    recorder.install()
    for number in range(2):
        call = WALKS[name](folder / f"table-{number}")
        recorder.is_on = number == 1
        call()
        recorder.is_on = False
    return recorder.calls


if __name__ == "__main__":
    print(json.dumps([asdict(call) for call in record(sys.argv[1], Path(sys.argv[2]))]))
