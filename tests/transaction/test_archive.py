from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.clock import SystemClock
from lakebed.errors import CorruptTableError, InvalidInputError, LockUnavailableError
from lakebed.format.properties import encode_properties
from lakebed.format.timeline.archive import encode_history
from lakebed.format.timeline.plans import encode_rollback_plan
from lakebed.metadata.upkeep.maintenance import _compaction_time
from lakebed.model.commit import InstantRef, RollbackPlan
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Storage, Ticket, open_storage
from lakebed.timeline import Archive, Snapshot, load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction import archive as archiving
from lakebed.transaction.archive import archive
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.section import METADATA
from lakebed.transaction.transactions import Transactions

from .conftest import PROPERTIES, ports_of
from .test_executions import Interrupted
from .test_transactions import write


def test_archived_instants_are_known_by_the_history_and_gone_from_the_timeline(
    storage: Storage, transactions: Transactions
) -> None:
    written = [write(transactions, group) for group in "abcdef"]
    config = load_config(storage)
    before = load_timeline(storage, config)
    for _ in range(2):
        with transactions.section() as section:
            archive(section, section.timeline.commits()[:2])
    timeline = load_timeline(storage, config)
    assert [i.requested_at for i in timeline] == written[4:]
    assert {listed.path.rpartition("/")[2][:17] for listed in storage.list(".hoodie/timeline")} == {*written[4:]}
    snapshot = Snapshot(timeline, Archive(storage, config))
    assert [snapshot.completion_of(i.requested_at) for i in before] == [i.completed_at for i in before]
    documents = {a.instant.requested_at: a.metadata for a in Archive(storage, config).instants()}
    assert sorted(documents) == written[:4]
    assert all(documents.values())


def test_an_archiving_that_was_interrupted_before_it_removed_anything_is_taken_up(
    storage: Storage, transactions: Transactions
) -> None:
    written = [write(transactions, group) for group in "abc"]
    kept = {listed.path: storage.get(listed.path) for listed in storage.list(".hoodie/timeline")}
    with transactions.section() as section:
        archive(section, section.timeline.commits()[:2])
    for path, data in kept.items():
        storage.create(path, data)
    with transactions.section() as section:
        archive(section, section.timeline.commits()[:2])
        assert [i.requested_at for i in section.timeline] == written[2:]
    archived = [a.instant for a in Archive(storage, load_config(storage)).instants()]
    assert [i.requested_at for i in archived] == written[:2]
    assert all(i.action is Action.COMMIT for i in archived)


def test_an_instant_that_was_completed_twice_is_gone_as_a_whole(storage: Storage, transactions: Transactions) -> None:
    written = [write(transactions, group) for group in "abc"]
    names = [listed.path for listed in storage.list(".hoodie/timeline") if f"/{written[0]}_" in listed.path]
    storage.create(names[0].replace("_2", "_3"), storage.get(names[0]))
    with transactions.section() as section:
        archive(section, section.timeline.commits()[:1])
    assert {listed.path.rpartition("/")[2][:17] for listed in storage.list(".hoodie/timeline")} == {*written[1:]}


def test_a_write_that_was_archived_before_its_process_could_ask_has_taken_place(
    storage: Storage, transactions: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InProcessLock, "can_be_lost", True)
    for group in "abc":
        write(transactions, group)
    first, second, _ = load_timeline(storage, load_config(storage)).commits()
    with transactions.section() as section:
        archive(section, section.timeline.commits()[:2])
        ticket = Ticket(first.requested_at, "dead")
        assert section.complete(ticket, first, b"") is Outcome.DONE
        assert section.complete(ticket, replace(first, completed_at=second.completed_at), b"") is Outcome.REFUSED


def test_a_compaction_of_the_metadata_table_does_not_take_the_time_of_a_write_that_is_being_undone(
    storage: Storage, transactions: Transactions
) -> None:
    pending, undone, rollback = (InstantTime(f"2026010100000{number}") for number in ("0105", "0104", "0200"))
    plan = encode_rollback_plan(RollbackPlan(InstantRef(undone, "commit"), {}), table_url=storage.url)
    with transactions.section() as section:
        section.add(Instant(pending, Action.COMMIT, State.REQUESTED))
        section.add(Instant(pending, Action.DELTA_COMMIT, State.REQUESTED), root=METADATA)
        assert _compaction_time(section) == undone
        section.add(Instant(rollback, Action.ROLLBACK, State.REQUESTED), plan)
        assert _compaction_time(section) == "20260101000000103"


def test_a_rollback_that_lost_its_plan_to_an_interrupted_archiving_does_not_hold_off_the_metadata_table(
    storage: Storage, transactions: Transactions
) -> None:
    pending, rollback, end = (InstantTime(f"2026010100000{number}") for number in ("0105", "0200", "0201"))
    storage.create(f".hoodie/timeline/{rollback}_{end}.rollback", b"whatever it did")
    with transactions.section() as section:
        section.add(Instant(pending, Action.COMMIT, State.REQUESTED))
        section.add(Instant(pending, Action.DELTA_COMMIT, State.REQUESTED), root=METADATA)
        assert _compaction_time(section) == "20260101000000104"


class DeadError(Exception):
    """A process ends here."""


@pytest.mark.parametrize("dies_at", range(9, 20))
@pytest.mark.parametrize("stands_still_at", range(9, 22))
def test_the_history_is_whole_wherever_one_archiver_stands_still_and_the_next_one_dies(
    tmp_path: Path, stands_still_at: int, dies_at: int
) -> None:
    """Also if both archive the same instants, with a different spelling of the same rows."""
    storage = open_storage(tmp_path / "t")
    storage.create(".hoodie/hoodie.properties", encode_properties(PROPERTIES, comment="test", date="today"))
    written = [write(Transactions(ports_of(storage), Timing()), group) for group in "abc"]

    def archive_some(through: object, spelling: Callable[[bytes], bytes]) -> None:
        lock_of_none = InProcessLock(f"another table {id(through)}", SystemClock(), Patience())
        ports = replace(ports_of(cast(Storage, through)), lock=lock_of_none)
        with (
            suppress(LockUnavailableError, CorruptTableError, DeadError),
            mock.patch.object(archiving, "encode_history", lambda rows: spelling(encode_history(rows))),
            Transactions(ports, Timing()).section() as section,
        ):
            archive(section, section.timeline.commits()[:2])

    def die() -> None:
        raise DeadError

    def second() -> None:
        archive_some(Interrupted(storage, dies_at, die), _spelled_otherwise)

    archive_some(Interrupted(storage, stands_still_at, second), bytes)
    config = load_config(storage)
    known = {i.requested_at for i in load_timeline(storage, config)}
    known |= {archived.instant.requested_at for archived in Archive(storage, config).instants()}
    assert known == {*written}
    for group in "defgh":  # And others can go on with it.
        written.append(write(Transactions(ports_of(storage), Timing()), group))
        archive_some(storage, bytes)
    known = {i.requested_at for i in load_timeline(storage, config)}
    known |= {archived.instant.requested_at for archived in Archive(storage, config).instants()}
    assert known == {*written}


class LosableLock(InProcessLock):
    """A lock that another process may get while this one stands still."""

    can_be_lost = True
    is_lost = False

    def remaining(self) -> float:
        return 0.0 if self.is_lost else super().remaining()


@pytest.mark.parametrize("stands_still_at", range(1, 32))
def test_what_was_taken_back_is_not_archived_by_a_process_that_stood_still(
    tmp_path: Path, stands_still_at: int
) -> None:
    storage = open_storage(tmp_path / "t")
    storage.create(".hoodie/hoodie.properties", encode_properties(PROPERTIES, comment="test", date="today"))
    written = [write(Transactions(ports_of(storage), Timing()), group) for group in "abc"]

    def process(through: object, lock: LosableLock | None = None) -> Transactions:
        lock = lock or LosableLock(f"another table {id(through)}", SystemClock(), Patience())
        return Transactions(replace(ports_of(cast(Storage, through)), lock=lock), Timing())

    taken_back: list[InstantTime | None] = []
    lock = LosableLock("yet another table", SystemClock(), Patience())

    def take_back() -> None:
        lock.is_lost = True
        with suppress(InvalidInputError):  # It was archived before.
            rollbacks = process(storage).rollbacks
            taken_back.append(rollbacks.execute(rollbacks.schedule_completed(written[-1])))

    archiver = process(Interrupted(storage, stands_still_at, take_back), lock)
    with suppress(LockUnavailableError, CorruptTableError), archiver.section() as section:
        archive(section, section.timeline.commits())
    archived = {each.instant.requested_at for each in Archive(storage, load_config(storage)).instants()}
    left = {i.requested_at for i in load_timeline(storage, load_config(storage)) if i.action is Action.COMMIT}
    assert (written[-1] in archived) is not (taken_back == [written[-1]])
    assert {*written} - {*taken_back} == archived | left
    process(storage).rollbacks.run()
    with process(storage).section() as section:
        archive(section, section.timeline.commits())
    again = {each.instant.requested_at for each in Archive(storage, load_config(storage)).instants()}
    assert again >= {*written} - {*taken_back}


def _spelled_otherwise(data: bytes) -> bytes:
    """The same rows in other bytes, as another version of a writer would spell them."""
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)), sink, compression="NONE")
    return sink.getvalue().to_pybytes()
