"""A compaction may die at any call to the store: readers notice nothing, and the next process executes the plan."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import lakebed
from lakebed.engine.engines import InProcess
from lakebed.errors import LakebedError
from lakebed.model.instant import InstantTime
from lakebed.services.compaction.logs import execute_log_compaction, schedule_log_compaction
from lakebed.services.compaction.plan import LogCompactionOptions
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from lakebed.services.values import ServiceContext
from lakebed.storage import open_storage
from lakebed.storage.faults import ANY_WRITE, Crash, Fault, FaultyStorage, at, seeded
from services.compaction_tables import check_table, context_of, die, new_table, rows, url_of, values

EXPECTED = {"k0": 3, "k1": 2, "k2": 1, "k5": 4}
_WRITES = frozenset({"create", "replace", "delete", "publish", "open_ticket", "revoke"})


@dataclass(frozen=True)
class Service:
    schedule: Callable[[ServiceContext], InstantTime | None]
    execute: Callable[[ServiceContext, InstantTime], object]
    suffix: str

    def run(self, table: lakebed.Table, storage: FaultyStorage) -> None:
        """One process that plans and executes; its tasks run one after the other."""
        context = context_of(table, storage=storage, engine=InProcess(1))
        instant = self.schedule(context)
        assert instant is not None
        self.execute(context, instant)

    def finish(self, table: lakebed.Table) -> None:
        """What the next process does, after what is left of the last one has been dead for a while."""
        pending = [i.requested_at for i in table.timeline.pending() if "compaction" in i.action]
        for instant in pending:
            die(table, instant)
        instant = pending[0] if pending else self.schedule(context_of(table))
        if instant is not None:
            self.execute(context_of(table), instant)

    def check(self, table: lakebed.Table) -> None:
        """It took place, once, and no file is left of what did not."""
        assert values(table) == EXPECTED
        assert not table.timeline.pending()
        known = {path for each in table.files() for path in each.paths}
        made = {each for path in known if (each := path) and self.made(path, table)}
        on_disk = {
            str(path.relative_to(url_of(table)))
            for path in Path(url_of(table)).rglob(f"*{self.suffix}*")
            if ".hoodie" not in path.parts and self.made(str(path.relative_to(url_of(table))), table)
        }
        assert on_disk == made
        assert len(made) == 2
        check_table(table)

    def made(self, path: str, table: lakebed.Table) -> bool:
        done = max(i.requested_at for i in table.timeline.commits())
        return done in path


COMPACTION = Service(schedule_compaction, execute_compaction, ".parquet")
LOG_COMPACTION = Service(
    lambda context: schedule_log_compaction(context, LogCompactionOptions(log_files_min=2)),
    execute_log_compaction,
    ".log.",
)
SERVICES = pytest.mark.parametrize("service", [COMPACTION, LOG_COMPACTION], ids=["compaction", "log compaction"])


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = new_table(tmp_path_factory.mktemp("crashes"))
    table.upsert(rows((0, 1), (1, 1), (2, 1), (3, 1)))
    table.upsert(rows((0, 2), (1, 2), (5, 4)))
    table.upsert(rows((0, 3), (1, 1)))
    table.delete(["k3"])
    assert values(table) == EXPECTED
    return Path(url_of(table))


def a_copy(history: Path, folder: Path) -> lakebed.Table:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(history, folder)
    return lakebed.open_table(folder)


def crash_points(table: lakebed.Table, service: Service) -> list[int]:
    """The calls that change something; between two of them a crash leaves the same."""
    storage = FaultyStorage(open_storage(url_of(table)))
    service.run(table, storage)
    service.check(table)
    return [traced.call.number for traced in storage.trace if traced.call.verb in _WRITES]


@SERVICES
def test_a_crash_after_any_change(history: Path, tmp_path: Path, service: Service) -> None:
    points = crash_points(a_copy(history, tmp_path / "whole"), service)
    assert len(points) > 20
    for point in points:
        table = a_copy(history, tmp_path / "crashed")
        with pytest.raises(Crash):
            service.run(table, FaultyStorage(open_storage(url_of(table)), at({point: Fault.CRASH_AFTER})))
        assert values(table) == EXPECTED, point
        service.finish(table)
        service.check(table)


@SERVICES
@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_fails_and_forgets(history: Path, tmp_path: Path, service: Service, seed: int) -> None:
    table = a_copy(history, tmp_path / "failing")
    kinds = ANY_WRITE - {Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.REFUSE}
    with suppress(LakebedError):
        service.run(table, FaultyStorage(open_storage(url_of(table)), seeded(seed, rate=0.03, kinds=kinds)))
    assert values(table) == EXPECTED
    service.finish(table)
    service.check(table)
