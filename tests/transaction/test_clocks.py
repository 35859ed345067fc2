"""Clocks that are behind the times on the table: how long a section waits for them, and when it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakebed.errors import LockUnavailableError
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.storage import Storage
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.times import format_time, instant_ms, shift_time, timeline_zone
from lakebed.transaction.transactions import Transactions

from .conftest import ports_of
from .locks.fakes import FakeClock
from .test_transactions import names

SHARED = Timing(skew_ms=200, section_seconds=10)
AHEAD = "20300101000000000"


def put_ahead(storage: Storage) -> None:
    for name in ("commit.requested", "inflight"):
        storage.create(f".hoodie/timeline/{AHEAD}.{name}", b"")
    storage.create(f".hoodie/timeline/{AHEAD}_{shift_time(InstantTime(AHEAD), 5)}.commit", b"")


def open_at(storage: Storage, behind_ms: int) -> tuple[Transactions, FakeClock]:
    """Transactions of a machine whose clock is behind the newest time on the table."""
    put_ahead(storage)
    ports = ports_of(storage)
    with Transactions(ports, Timing()).section() as section:
        zone = timeline_zone(section.config)
    clock = FakeClock(instant_ms(InstantTime(AHEAD), zone) + 5 - behind_ms)
    return Transactions(replace(ports, clock=clock), SHARED), clock


def test_a_clock_that_is_a_little_behind_is_waited_for(storage: Storage) -> None:
    transactions, clock = open_at(storage, behind_ms=3_000)
    attempt = transactions.begin(Action.COMMIT)
    assert attempt.instant == shift_time(InstantTime(AHEAD), 6)
    assert 3.2 < sum(clock.slept) < 3.3


def test_a_clock_that_is_far_behind_gets_an_error_before_anything_is_there(storage: Storage) -> None:
    transactions, clock = open_at(storage, behind_ms=11_000)
    before = names(storage)
    with pytest.raises(LockUnavailableError, match="clock is far behind"):
        transactions.begin(Action.COMMIT)
    assert names(storage) == before
    assert not storage.list(".hoodie/.heartbeat")
    assert not clock.slept


def test_one_host_has_one_clock_and_never_waits(storage: Storage) -> None:
    put_ahead(storage)
    assert Transactions(ports_of(storage), Timing(skew_ms=0)).begin(Action.COMMIT).instant > AHEAD


def test_a_clock_that_is_set_back_meanwhile_is_not_waited_for_without_end(storage: Storage) -> None:
    transactions, clock = open_at(storage, behind_ms=0)
    with transactions.section() as section:
        section.next_time()
        clock.ms -= 3_600_000
    assert 10 <= sum(clock.slept) <= 10.4


def test_times_are_spelt_as_before_and_read_back() -> None:
    zone = None
    for ms in (0, 1_720_000_000_123, 253_402_214_400_000):
        assert instant_ms(format_time(ms, zone), zone) == ms
    assert shift_time(InstantTime("20240229235959999"), 1) == "20240301000000000"
    assert shift_time(InstantTime("20240101000000"), -1) == "20231231235959999"
