"""Who waits for whom in an object store: for a holder that may be paused, and for nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest

import lakebed
from lakebed.clock import SystemClock
from lakebed.errors import WriteConflictError
from lakebed.model.words import Action
from lakebed.storage import Storage, Ticket, open_storage
from lakebed.table.transactions import open_ports, open_transactions
from lakebed.transaction.head import Head, load_head, swap_head
from lakebed.transaction.transactions import Transactions
from storage.fake_s3 import Fake, start

URL = "s3://bucket/t"


@pytest.fixture
def s3() -> Iterator[Fake]:
    fake, server = start()
    yield fake
    server.shutdown()
    server.server_close()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long calls waited for tickets to end; none does."""
    waits: list[float] = []
    monkeypatch.setattr("lakebed.storage.objects.time", SimpleNamespace(sleep=waits.append))
    return waits


def rows(first: int = 0) -> pa.Table:
    return pa.table({"id": [f"k{n}" for n in range(first, first + 3)], "ts": [first] * 3})


def new_table(s3: Fake, **options: object) -> lakebed.Table:
    return lakebed.create_table(URL, schema=rows().schema, key="id", ordering="ts", options=s3.options, **options)


def open_s3(s3: Fake) -> tuple[Storage, Transactions]:
    storage = open_storage(URL, s3.options)
    return storage, open_transactions(open_ports(storage, {}), heartbeat_ms=60_000, heartbeat_misses=2)


def test_a_write_waits_for_no_ticket(s3: Fake, slept: list[float]) -> None:
    table = new_table(s3, table_type="mor", indexes=["record"])
    table.upsert(rows())
    table.upsert(rows(1))
    table.delete(["k1"])
    assert slept == []


def test_services_wait_for_no_ticket(s3: Fake, slept: list[float]) -> None:
    table = new_table(s3, table_type="mor", indexes=["record"])
    for first in range(3):
        table.upsert(rows(first))
    assert table.services.compact() is not None
    assert table.services.cluster(order_by=["ts"]) is not None
    table.savepoint()
    table.indexes.create("bloom_filters")
    assert slept == []


def test_writers_that_take_turns_wait_for_no_ticket(s3: Fake, slept: list[float]) -> None:
    new_table(s3)
    one, other = open_s3(s3)[1], open_s3(s3)[1]
    attempts = [each.begin(Action.COMMIT) for each in (one, other, one, other)]
    for attempt, each in zip(attempts, (one, other, one, other), strict=True):
        each.abandon(attempt)
    assert slept == []


def test_the_loser_of_a_conflict_waits_for_no_ticket(s3: Fake, slept: list[float]) -> None:
    new_table(s3)
    table, other = (lakebed.open_table(URL, options=s3.options) for _ in range(2))
    table.upsert(rows())
    run = table._handle.state_at

    def overtaken(*arguments: object, **named: object) -> object:
        table._handle.state_at = run  # type: ignore[method-assign]
        other.upsert(rows())
        return run(*arguments, **named)  # type: ignore[arg-type]

    table._handle.state_at = overtaken  # type: ignore[assignment, method-assign]
    with pytest.raises(WriteConflictError):
        table.upsert(rows(1))
    assert slept == []


def test_a_section_that_ends_closes_the_head(s3: Fake, slept: list[float]) -> None:
    new_table(s3).upsert(rows())
    storage, transactions = open_s3(s3)
    with transactions.section():
        assert load_head(storage)[0].open is None


def test_who_takes_the_lock_from_a_paused_holder_waits_for_its_requests(s3: Fake, slept: list[float]) -> None:
    new_table(s3).upsert(rows())
    storage, transactions = open_s3(s3)
    attempt = transactions.begin(Action.COMMIT)
    with transactions.section():
        head, etag = load_head(storage)
        assert swap_head(storage, Head(head.epoch + 1, attempt.instant), etag)  # It goes to sleep in its section.
    with open_s3(s3)[1].section():
        assert storage.find_tickets(attempt.instant) == ()
    assert slept == [5.0]


def test_a_late_end_does_not_close_the_head_of_another_holder(s3: Fake, slept: list[float]) -> None:
    new_table(s3)
    storage, transactions = open_s3(s3)
    attempt = transactions.begin(Action.COMMIT)
    with transactions.section(opens=attempt):
        head, etag = load_head(storage)
        assert swap_head(storage, Head(head.epoch + 1, attempt.instant), etag)  # By who took the same instant over.
    transactions._ports.background.drain()
    assert load_head(storage)[0].open == attempt.instant


def test_skew_is_not_waited_for_on_the_way_of_the_caller(
    s3: Fake, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: threads.append(threading.current_thread().name))
    new_table(s3)
    transactions = open_s3(s3)[1]
    with transactions.section() as section:
        section.next_time()
    transactions._ports.background.drain()
    assert threads
    assert set(threads) == {"lakebed-later"}


def test_an_interrupted_publish_is_waited_for(s3: Fake, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(s3)
    storage = table._handle.storage
    publish = type(storage).publish

    def interrupted(self: Storage, ticket: Ticket, final: str, data: bytes) -> object:
        if final.endswith(".commit") and "metadata" not in final:
            raise KeyboardInterrupt
        return publish(self, ticket, final, data)  # type: ignore[arg-type]

    monkeypatch.setattr(type(storage), "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.upsert(rows())
    assert slept == [5.0]
    assert table.to_arrow().num_rows == 0


def test_where_no_thread_can_be_started_the_lock_is_given_back_at_once(
    s3: Fake, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table(s3)
    transactions = open_s3(s3)[1]

    def refuse(self: threading.Thread) -> None:
        if self.name == "lakebed-later":
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start_thread(self)

    start_thread = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with transactions.section() as section:
        section.next_time()
    assert transactions.ports.lock.remaining() == 0
