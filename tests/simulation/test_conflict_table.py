"""The conflict table, cell by cell: what a committing write is told about one that overlapped it.

Both writes begin, the other one completes or leaves its plan, then ours tries to commit. Cells that must not conflict
bind as much as those that must.
"""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from commits import commit_files
from lakebed.errors import WriteConflictError
from lakebed.format.timeline.metadata import encode_compaction_plan
from lakebed.format.timeline.plans import encode_document
from lakebed.model.commit import CommitMetadata, CompactionOperation, CompactionPlan, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.words import Action
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.conflicts import WriteKind, WriteSet, write_set_of
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.transactions import Transactions

from .codecs import REAL
from .faults import NoFaults
from .scheduler import Process, Scheduler, Style
from .schedules import START_MS
from .table import FIRST, Shape, new_table
from .world import LockKind, World

HERE, NEAR, FAR = FileGroupId("p0", "g0"), FileGroupId("p0", "g2"), FileGroupId("p1", "g1")
NOWHERE = FileGroupId("p9", "none")
"""What the plan of a service names where only its commit is to matter."""
APPEND, REWRITE, INSERT = "append", "rewrite", "insert"
COMPACT, CLUSTER, OVERWRITE = "compact", "cluster", "overwrite"
KINDS = (APPEND, REWRITE, INSERT, COMPACT, CLUSTER, OVERWRITE)
COW_KINDS = (REWRITE, INSERT, CLUSTER, OVERWRITE)

SAME_GROUP = {
    *((APPEND, other) for other in (APPEND, REWRITE, CLUSTER, OVERWRITE)),
    *((REWRITE, other) for other in (APPEND, REWRITE, COMPACT, CLUSTER, OVERWRITE)),
    (INSERT, OVERWRITE),
    *((COMPACT, other) for other in (REWRITE, COMPACT, CLUSTER, OVERWRITE)),
    *((CLUSTER, other) for other in (APPEND, REWRITE, COMPACT, CLUSTER, OVERWRITE)),
    *((OVERWRITE, other) for other in KINDS),
}
"""(ours, other) that exclude each other when both are about the same file group. An insert is about none."""
SAME_PARTITION = {pair for pair in product(KINDS, KINDS) if OVERWRITE in pair}
PLANNED = {(ours, other) for ours, other in SAME_GROUP if other in (COMPACT, CLUSTER)}
"""A service that is only planned counts as much as one that is done."""


def _cases() -> list[tuple[str, str, str, str, bool]]:
    found = []
    for table, kinds in (("cow", COW_KINDS), ("mor", KINDS)):
        for ours, other in product(kinds, kinds):
            found.append((table, ours, other, "same group", (ours, other) in SAME_GROUP))
            found.append((table, ours, other, "same partition", (ours, other) in SAME_PARTITION))
            found.append((table, ours, other, "other partition", False))
    return found


PLACES = {"same group": HERE, "same partition": NEAR, "other partition": FAR}


class Bench:
    """Two processes and a table, no faults; calls run one after the other."""

    def __init__(self, table: str) -> None:
        scheduler = Scheduler(Random(1), Style.STICKY, START_MS)
        shape = Shape(table == "cow", False, ("p0", "p1"), 3, 6)
        store = new_table(shape, REAL.encode_commit)
        self.world = World(scheduler, store, LockKind(can_be_lost=True), NoFaults())
        self.is_cow = shape.is_cow
        self.timing = Timing(6.0, 2, 0, section_seconds=1.0)

    def client(self, name: str) -> Transactions:
        return Transactions(self.world.ports(Process(name)), self.timing)

    def run(self, program: object) -> None:
        self.world.scheduler.start(Process("bench"), program)  # type: ignore[arg-type]
        self.world.scheduler.run()
        self.world.scheduler.close()


def _action(bench: Bench, kind: str) -> Action:
    services = {COMPACT: Action.COMPACTION, CLUSTER: Action.CLUSTERING, OVERWRITE: Action.REPLACE_COMMIT}
    return services.get(kind, Action.COMMIT if bench.is_cow else Action.DELTA_COMMIT)


def _plan(kind: str, group: FileGroupId) -> bytes:
    if kind == COMPACT:
        return encode_compaction_plan(CompactionPlan((CompactionOperation(group.partition, group.file_id, FIRST),)))
    if kind == CLUSTER:
        piece = {"partitionPath": group.partition, "fileId": group.file_id}
        plan = {"inputGroups": [{"slices": [piece]}], "strategy": None, "extraMetadata": None}
        return encode_document({"operationType": "CLUSTER", "clusteringPlan": plan}, "HoodieRequestedReplaceMetadata")
    return b""


def _content(kind: str, group: FileGroupId, instant: str) -> CommitMetadata:
    """What the write says that it did."""
    is_new = kind in (INSERT, CLUSTER, OVERWRITE)
    file_id = f"new{instant[-6:]}" if is_new else group.file_id
    name = f".{file_id}_{instant}.log.1_0-0-0" if kind == APPEND else f"{file_id}_0-0-0_{instant}.parquet"
    previous = None if is_new else FIRST
    stat = WriteStat(file_id, f"{group.partition}/{name}", group.partition, previous)
    operation = {CLUSTER: "CLUSTER", OVERWRITE: "INSERT_OVERWRITE", COMPACT: "COMPACT"}.get(kind, "UPSERT")
    replaced = {group.partition: (group.file_id,)} if kind in (CLUSTER, OVERWRITE) else {}
    return CommitMetadata({group.partition: (stat,)}, replaced, operation, compacted=kind == COMPACT)


def _commit(client: Transactions, attempt: Attempt, kind: str, group: FileGroupId) -> None:
    metadata = _content(kind, group, attempt.instant)
    writes = write_set_of(attempt.completed(attempt.instant), metadata)
    commit_files(client, attempt, writes, frozenset({FIRST}), metadata)


@pytest.mark.parametrize(("table", "ours", "other", "place", "conflicts"), _cases())
def test_cell(table: str, ours: str, other: str, place: str, conflicts: bool) -> None:
    """Whichever of the two began first."""
    for ours_first in (True, False):
        bench = Bench(table)
        answers: list[bool] = []

        def program(bench: Bench = bench, first: bool = ours_first, answers: list[bool] = answers) -> None:
            mine, theirs = bench.client("mine"), bench.client("theirs")
            begun = {}
            for client in (mine, theirs) if first else (theirs, mine):
                kind = ours if client is mine else other
                begun[client] = client.begin(_action(bench, kind), _plan(kind, NOWHERE))
                client.declare(begun[client], CommitMetadata())
            _commit(theirs, begun[theirs], other, PLACES[place])
            try:
                _commit(mine, begun[mine], ours, HERE)
                answers.append(False)
            except WriteConflictError:
                answers.append(True)

        bench.run(program)
        assert answers == [conflicts], f"ours began {'first' if ours_first else 'second'}"


@pytest.mark.parametrize("state", ["requested", "inflight"])
@pytest.mark.parametrize(("ours", "other"), list(product(KINDS, (COMPACT, CLUSTER))))
def test_planned_service(ours: str, other: str, state: str) -> None:
    bench = Bench("mor")
    answers: list[bool] = []

    def program() -> None:
        mine, theirs = bench.client("mine"), bench.client("theirs")
        attempt = mine.begin(_action(bench, ours), _plan(ours, NOWHERE))
        mine.declare(attempt, CommitMetadata())
        plan = theirs.begin(_action(bench, other), _plan(other, HERE))
        if state == "inflight":
            theirs.declare(plan, CommitMetadata())
        try:
            _commit(mine, attempt, ours, HERE)
            answers.append(False)
        except WriteConflictError:
            answers.append(True)

    bench.run(program)
    assert answers == [(ours, other) in PLANNED]


@pytest.mark.parametrize("table", ["cow", "mor"])
def test_group_that_an_overlapping_insert_added(table: str) -> None:
    """We began first, saw what the insert added and changed it: our files would sort below those that made it."""
    bench = Bench(table)
    answers: list[bool] = []

    def program() -> None:
        mine, theirs = bench.client("mine"), bench.client("theirs")
        attempt = mine.begin(_action(bench, REWRITE))
        other = theirs.begin(_action(bench, INSERT))
        theirs.declare(other, CommitMetadata())
        _commit(theirs, other, INSERT, HERE)
        storage = mine._ports.storage
        seen = frozenset(i.requested_at for i in load_timeline(storage, load_config(storage)).commits())
        assert other.instant in seen
        mine.declare(attempt, CommitMetadata())
        added = FileGroupId("p0", f"new{other.instant[-6:]}")
        writes = WriteSet(WriteKind.UPSERT, rewritten=frozenset({added}))
        with pytest.raises(WriteConflictError):
            commit_files(mine, attempt, writes, seen, _content(REWRITE, added, attempt.instant))
        answers.append(True)

    bench.run(program)
    assert answers == [True]
