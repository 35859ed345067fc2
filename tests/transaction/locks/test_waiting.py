from __future__ import annotations

from lakebed.transaction.locks.waiting import Patience
from transaction.locks.fakes import FakeClock


def test_pauses_grow_up_to_the_longest() -> None:
    clock = FakeClock()
    assert not Patience(wait_s=4, pause_s=1).wait(lambda: False, clock)
    assert clock.slept[:7] == [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]
    assert set(clock.slept[7:]) == {1}
    assert 4 <= sum(clock.slept) < 5.1


def test_there_is_one_attempt_without_patience() -> None:
    clock = FakeClock()
    assert Patience(wait_s=0).wait(lambda: True, clock)
    assert not Patience(wait_s=0).wait(lambda: False, clock)
    assert clock.slept == []


def test_a_clock_that_is_set_back_does_not_prolong_the_wait() -> None:
    clock = FakeClock()

    def set_back() -> None:
        clock.ms -= 3_600_000

    clock.on_sleep = set_back
    assert not Patience(wait_s=4, pause_s=1).wait(lambda: False, clock)
    assert sum(clock.slept) < 5.1


def test_attempts_that_take_time_count() -> None:
    clock = FakeClock()

    def slow() -> bool:
        clock.ms += 1000
        return False

    assert not Patience(wait_s=4, pause_s=1).wait(slow, clock)
    assert len(clock.slept) == 4
