"""A process prepares a commit and dies: another one commits it from the file, or says why it cannot."""

from __future__ import annotations

import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from index.distinct_counts import PARTITION, DistinctCounts
from lakebed.commit.prepared import PreparedCommit, StagedKeys
from lakebed.commit.stored import decode_prepared, encode_prepared
from lakebed.errors import (
    CorruptTableError,
    InvalidInputError,
    LakebedError,
    RolledBackError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakebed.index.kinds import added_kind
from lakebed.options import WriteOptions
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, at
from lakebed.write.columnar import ColumnarPlane, PlannedWrite, WrittenFiles
from lakebed.write.recommit import recommit, store_prepared
from lakebed.write.verbs import TableWrites
from lakebed.write.writer import Writer
from services.compaction_tables import check_table, context_of, die, new_table, row, rows, url_of, values

_WRITES = frozenset({"create", "create_all", "replace", "delete", "publish", "open_ticket", "revoke"})
FIRST = {"k0": 1, "k1": 1, "k2": 1, "k3": 1}
UPSERT = {"k0": 2, "k1": 2, "k2": 1, "k3": 1, "k5": 2}
TABLES = pytest.mark.parametrize("table_type", ["cow", "mor"])


class _Died(BaseException):
    """The process that prepared a write is no more."""


class DyingPlane(ColumnarPlane):
    """Stores the prepared commit of a write, and dies."""

    def __init__(self, storage: Storage, name: str, die: Callable[[PreparedCommit], None]) -> None:
        super().__init__(WriteOptions())
        self._storage, self._name, self._die = storage, name, die

    def prepare(self, state: Any, planned: PlannedWrite, written: WrittenFiles, times: Any) -> PreparedCommit:
        """Does not return."""
        prepared = super().prepare(state, planned, written, times)
        store_prepared(self._storage, prepared, self._name)
        self._die(prepared)
        raise _Died


def writes_of(table: lakebed.Table, die: Callable[[PreparedCommit], None]) -> TableWrites:
    """The writes of a process that dies before its commit."""
    context = context_of(table)
    writes = TableWrites(context.handle, context.transactions, WriteOptions())
    plane = DyingPlane(context.handle.storage, context.handle.config.name, die)
    writes._writer = Writer(context.handle, context.transactions, plane)
    return writes


def prepare(table: lakebed.Table, write: Callable[[TableWrites], object]) -> PreparedCommit:
    """What a process prepared that then died, long ago."""
    held: list[PreparedCommit] = []
    writes = writes_of(table, held.append)
    writes._writer._transactions.abandon = lambda attempt: attempt.heartbeat.rest()  # type: ignore[method-assign]
    with pytest.raises(_Died):
        write(writes)
    die(table, held[0].instant)
    return held[0]


def stored(table: lakebed.Table, prepared: PreparedCommit) -> bytes:
    return Path(url_of(table), f".hoodie/.temp/{prepared.instant}/prepared.zip").read_bytes()


def revive(table: lakebed.Table, prepared: PreparedCommit) -> None:
    """Others take the process for alive, and do not roll its write back."""
    Path(url_of(table), ".hoodie/.heartbeat", prepared.instant).touch()


def commit_it(table: lakebed.Table, data: bytes, storage: Storage | None = None) -> str:
    context = context_of(table, storage=storage)
    plane = ColumnarPlane(WriteOptions())
    return recommit(context.handle, context.transactions, plane, data, path="prepared.zip")


def filled(folder: Path, table_type: str, **given: Any) -> lakebed.Table:
    table = new_table(folder, table_type=table_type, **given)
    table.upsert(rows((0, 1), (1, 1), (2, 1), (3, 1)))
    return table


def check_all(table: lakebed.Table) -> None:
    check_table(table)
    for index in table.indexes.list():
        assert table.indexes.validate(index.name).is_sound, index.name
    assert not table.doctor()


@TABLES
def test_another_process_commits_what_a_killed_one_prepared(tmp_path: Path, table_type: str) -> None:
    table = filled(tmp_path, table_type)
    program = (
        "import os, signal, sys; sys.path[:0] = sys.argv[2:];"
        "import lakebed; from commit.test_recommit import writes_of, rows;"
        "table = lakebed.open_table(sys.argv[1]);"
        "writes_of(table, lambda _: os.kill(os.getpid(), signal.SIGKILL)).upsert(rows((0, 2), (1, 2), (5, 2)))"
    )
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", program, url_of(table), str(tests)], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    assert values(table) == FIRST
    (pending,) = table.timeline.pending()
    data = Path(url_of(table), f".hoodie/.temp/{pending.requested_at}/prepared.zip").read_bytes()
    with pytest.raises(WriteConflictError, match="still alive"):
        commit_it(table, data)
    die(table, pending.requested_at)
    completed_at = commit_it(table, data)
    assert table.timeline.completion_of(pending.requested_at) == completed_at
    assert values(table) == UPSERT
    assert not table.timeline.pending()
    check_all(table)


OPERATIONS: dict[str, tuple[Callable[[TableWrites], object], dict[str, int]]] = {
    "upsert": (lambda writes: writes.upsert(rows((0, 2), (1, 2), (5, 2))), UPSERT),
    "delete": (lambda writes: writes.delete(["k0", "k3"]), {"k1": 1, "k2": 1}),
    "insert": (lambda writes: writes.insert(rows((8, 3))), FIRST | {"k8": 3}),
    "overwrite": (lambda writes: writes.overwrite(rows((4, 7)), whole_table=False), {"k1": 1, "k3": 1, "k4": 7}),
    "delete partitions": (lambda writes: writes.delete_partitions(["oslo"]), {"k1": 1, "k3": 1}),
}


@TABLES
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation(tmp_path: Path, table_type: str, operation: str) -> None:
    write, expected = OPERATIONS[operation]
    table = filled(tmp_path, table_type, indexes=("record", "column_stats", "bloom"))
    prepared = prepare(table, write)
    assert values(table) == FIRST
    commit_it(table, stored(table, prepared))
    assert values(table) == expected
    check_all(table)


@TABLES
@pytest.mark.parametrize("kind", ["record", "record_partitioned"])
def test_an_index_that_appeared_meanwhile(tmp_path: Path, table_type: str, kind: str) -> None:
    table = filled(tmp_path, table_type, indexes=())
    prepared = prepare(table, OPERATIONS["overwrite"][0])
    revive(table, prepared)
    table.indexes.create("record_index", kind=kind)
    die(table, prepared.instant)
    commit_it(table, stored(table, prepared))
    assert values(table) == OPERATIONS["overwrite"][1]
    check_all(table)


def test_a_value_is_the_same_after_a_round_trip(tmp_path: Path) -> None:
    table = filled(tmp_path, "mor", indexes=("record", "column_stats", "bloom"))
    prepared = prepare(table, OPERATIONS["overwrite"][0])
    again, name = decode_prepared(encode_prepared(prepared, "trips"), open_storage(url_of(table)), path="p")
    assert name == "trips"
    check_same(prepared, again)
    assert prepared.hidden_keys
    assert any(facts.column_stats for facts in prepared.facts)


def check_same(one: PreparedCommit, other: PreparedCommit) -> None:
    for field in PreparedCommit.__dataclass_fields__:
        mine, theirs = getattr(one, field), getattr(other, field)
        if field == "new_keys":
            mine, theirs = (x if x is None or isinstance(x, StagedKeys) else x() for x in (mine, theirs))
        assert flat(mine) == flat(theirs), field


def flat(value: Any) -> Any:
    """A value that compares by content: keys may be in one array or in several."""
    if isinstance(value, (pa.Array, pa.ChunkedArray, pa.Table)):
        return value.to_pylist()
    if isinstance(value, tuple):
        return [flat(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: flat(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def test_a_write_that_conflicts_by_now_is_rolled_back(tmp_path: Path) -> None:
    table = filled(tmp_path, "cow")
    prepared = prepare(table, OPERATIONS["upsert"][0])
    data = stored(table, prepared)
    revive(table, prepared)
    table.upsert(rows((0, 9)))
    die(table, prepared.instant)
    with pytest.raises(WriteConflictError, match="changed the same data"):
        commit_it(table, data)
    assert values(table) == FIRST | {"k0": 9}
    assert not table.timeline.pending()
    check_all(table)


@TABLES
def test_a_crash_after_any_change(tmp_path: Path, table_type: str) -> None:
    points = crash_points(tmp_path / "whole", table_type)
    assert len(points) > 8
    for point in points:
        table = filled(tmp_path / f"p{point}", table_type)
        prepared = prepare(table, OPERATIONS["upsert"][0])
        data = stored(table, prepared)
        faulty = FaultyStorage(open_storage(url_of(table)), at({point: Fault.CRASH_AFTER}))
        with pytest.raises(Crash):
            commit_it(table, data, faulty)
        assert values(table) in (FIRST, UPSERT), point
        die(table, prepared.instant)
        is_done = values(table) == UPSERT
        with pytest.raises(InvalidInputError, match="already committed") if is_done else nullcontext():
            commit_it(table, data)
        assert values(table) == UPSERT, point
        table.services.rollback_failed_writes()
        check_all(table)


def crash_points(folder: Path, table_type: str) -> list[int]:
    table = filled(folder, table_type)
    prepared = prepare(table, OPERATIONS["upsert"][0])
    storage = FaultyStorage(open_storage(url_of(table)))
    commit_it(table, stored(table, prepared), storage)
    return [traced.call.number for traced in storage.trace if traced.call.verb in _WRITES]


def edited(data: bytes, old: bytes, new: bytes) -> bytes:
    """A prepared commit whose document says something else."""
    sink = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as archive, zipfile.ZipFile(sink, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            changed.writestr(name, content.replace(old, new) if name == "commit.json" else content)
    return sink.getvalue()


BAD: dict[str, tuple[Callable[[bytes], bytes], type[LakebedError], str]] = {
    "truncated": (lambda data: data[:-40], CorruptTableError, "truncated or damaged"),
    "empty": (lambda data: b"", CorruptTableError, "truncated or damaged"),
    "of another version": (
        lambda data: edited(data, b'"version": 1', b'"version": 2'),
        UnsupportedTableError,
        "version 2",
    ),
    "of another table": (lambda data: edited(data, b'"table": "t', b'"table": "x'), InvalidInputError, "not of"),
    "without a field": (lambda data: edited(data, b'"seen"', b'"sawn"'), CorruptTableError, "seen"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_write_nothing(tmp_path: Path, case: str) -> None:
    damage, error, match = BAD[case]
    table = filled(tmp_path, "mor")
    prepared = prepare(table, OPERATIONS["upsert"][0])
    before = snapshot(table)
    with pytest.raises(error, match=match) as raised:
        commit_it(table, damage(stored(table, prepared)))
    assert raised.value.hint
    assert snapshot(table) == before


def test_a_flipped_byte_is_never_a_commit(tmp_path: Path) -> None:
    table = filled(tmp_path, "mor")
    data = stored(table, prepare(table, OPERATIONS["upsert"][0]))
    storage = open_storage(url_of(table))
    whole, _ = decode_prepared(data, storage, path="p")
    for offset, bit in ((offset, 1 << offset % 8) for offset in range(0, len(data), 3)):
        flipped = data[:offset] + bytes([data[offset] ^ bit]) + data[offset + 1 :]
        try:
            found, _ = decode_prepared(flipped, storage, path="p")
        except (CorruptTableError, UnsupportedTableError):
            continue
        check_same(whole, found)  # A byte that says nothing, such as a time stamp of the archive.


def snapshot(table: lakebed.Table) -> dict[str, int]:
    root = Path(url_of(table))
    return {str(path.relative_to(root)): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_one_that_is_committed_is_refused(tmp_path: Path) -> None:
    table = filled(tmp_path, "mor")
    prepared = prepare(table, OPERATIONS["upsert"][0])
    data = stored(table, prepared)
    commit_it(table, data)
    before = snapshot(table)
    with pytest.raises(InvalidInputError, match="already committed"):
        commit_it(table, data)
    changed = {path for path, when in snapshot(table).items() if before.get(path) != when}
    assert not {path for path in changed if "timeline" in path or ".hoodie" not in path}
    assert values(table) == UPSERT


def test_one_whose_files_are_gone_is_refused(tmp_path: Path) -> None:
    table = filled(tmp_path, "mor")
    prepared = prepare(table, OPERATIONS["upsert"][0])
    data = stored(table, prepared)
    Path(url_of(table), prepared.facts[0].stat.path).unlink()
    with pytest.raises(RolledBackError, match="is missing"):
        commit_it(table, data)
    assert values(table) == FIRST
    table.services.rollback_failed_writes()
    with pytest.raises(RolledBackError):
        commit_it(table, data)
    assert values(table) == FIRST
    check_all(table)


def test_the_process_that_was_taken_for_dead_learns_that_its_write_is_committed(tmp_path: Path) -> None:
    table = filled(tmp_path, "mor")
    context = context_of(table)
    held: list[bytes] = []

    class Paused(ColumnarPlane):
        def prepare(self, state: Any, planned: PlannedWrite, written: WrittenFiles, times: Any) -> PreparedCommit:
            prepared = super().prepare(state, planned, written, times)
            held.append(encode_prepared(prepared, context.handle.config.name))
            die(table, prepared.instant)
            commit_it(table, held[0])  # Another process, while this one stands still.
            return prepared

    writes = TableWrites(context.handle, context.transactions, WriteOptions())
    writes._writer = Writer(context.handle, context.transactions, Paused(WriteOptions()))
    result = writes.upsert([row(0, 2), row(1, 2), row(5, 2)])
    assert result.completed_at == table.timeline.commits()[-1].completed_at
    assert values(table) == UPSERT
    assert not table.timeline.pending()
    check_all(table)


def test_what_other_kinds_of_index_gathered_is_stored_too(tmp_path: Path) -> None:
    table = filled(tmp_path, "mor")
    with added_kind(DistinctCounts()):
        table.indexes.create(PARTITION, on="fare")
        prepared = prepare(table, OPERATIONS["upsert"][0])
        assert all(facts.gathered for facts in prepared.facts)
        commit_it(table, stored(table, prepared))
        assert values(table) == UPSERT
        assert table.indexes.validate(PARTITION).is_sound
