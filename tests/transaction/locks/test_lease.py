from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTableError, LakebedError, LockUnavailableError, StorageUnavailableError
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Call, Fault, FaultyStorage, Plan, at, no_faults, on
from lakebed.transaction.locks.lease import DRIFT_MS, LOCK_FILE, Lease, StorageLease, decode_lease, encode_lease
from lakebed.transaction.locks.waiting import Patience
from storage.fake_s3 import Fake, start
from transaction.locks.fakes import FakeBackground, FakeClock, HiddenRetry, LateWrite, tokens
from transaction.locks.turns import all_schedules, take_turns

ONCE = Patience(wait_s=0)
LEASE_S = 300
_NAMES = itertools.count()


class World:
    """A store and a clock that all share, and locks on them."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = storage or open_storage(f"memory://lease-{next(_NAMES)}")
        self.clock = FakeClock()
        self.background = FakeBackground()

    def lock(self, name: str = "a", plan: Plan = no_faults, patience: Patience = ONCE) -> StorageLease:
        return self.lock_on(FaultyStorage(self.storage, plan), name, patience)

    def lock_on(self, storage: Storage, name: str = "a", patience: Patience = ONCE) -> StorageLease:
        return StorageLease(storage, self.clock, self.background, tokens(name), lease_s=LEASE_S, patience=patience)

    def lease(self) -> Lease:
        return decode_lease(self.storage.get(LOCK_FILE))


@pytest.fixture(scope="module")
def s3() -> Iterator[Fake]:
    fake, server = start()
    yield fake
    server.shutdown()
    server.server_close()


@pytest.fixture(params=["memory", "local", "s3"])
def world(request: pytest.FixtureRequest, s3: Fake, tmp_path: Path) -> World:
    if request.param == "s3":
        s3.reset()
        return World(open_storage("s3://bucket/orders", s3.options))
    return World(open_storage(tmp_path) if request.param == "local" else None)


def test_it_excludes_until_it_is_released(world: World) -> None:
    first, second = world.lock("a"), world.lock("b")
    assert first.remaining() == 0
    first.acquire()
    assert world.lease() == Lease("a1", world.clock.ms + LEASE_S * 1000)
    with pytest.raises(LockUnavailableError) as caught:
        second.acquire()
    assert caught.value.retryable
    assert LOCK_FILE in caught.value.hint
    first.release()
    assert first.remaining() == 0
    assert world.lease().expired
    second.acquire()
    assert world.lease().owner == "b2"
    assert second.can_be_lost


def test_a_lock_that_apache_hudi_holds_is_respected_and_one_it_gave_up_is_taken(world: World) -> None:
    until = world.clock.ms + 1000
    world.storage.create(LOCK_FILE, b'{"expired":false,"validUntil":%d,"owner":"d9b2-uuid"}' % until)
    with pytest.raises(LockUnavailableError):
        world.lock().acquire()
    world.storage.replace(LOCK_FILE, b'{"expired":true,"validUntil":%d,"owner":"d9b2-uuid"}' % until)
    world.lock().acquire()
    assert world.lease().owner == "a1"


def test_waiting_ends_when_the_other_releases(world: World) -> None:
    first, second = world.lock("a"), world.lock("b", patience=Patience(wait_s=10))
    first.acquire()
    world.clock.on_sleep = lambda: first.release() if len(world.clock.slept) == 5 else None
    second.acquire()
    assert second.remaining() > 0
    assert sum(world.clock.slept) < 1


def test_waiting_ends_after_the_time_given(world: World) -> None:
    world.lock("a").acquire()
    with pytest.raises(LockUnavailableError, match="within 10 s"):
        world.lock("b", patience=Patience(wait_s=10)).acquire()
    assert 10 <= sum(world.clock.slept) < 12
    assert max(world.clock.slept) == 1


def test_a_lease_that_ran_out_is_taken_over_after_the_drift_and_not_before(world: World) -> None:
    first, second = world.lock("a"), world.lock("b")
    first.acquire()
    world.clock.ms += LEASE_S * 1000 - DRIFT_MS - 1
    assert first.remaining() == 0.001
    world.clock.ms += 1
    assert first.remaining() == 0
    world.clock.ms += 2 * DRIFT_MS
    with pytest.raises(LockUnavailableError):
        second.acquire()
    world.clock.ms += 1
    second.acquire()
    assert second.remaining() == LEASE_S - DRIFT_MS / 1000


def test_renewals_keep_the_lock(world: World) -> None:
    first, second = world.lock("a"), world.lock("b")
    first.acquire()
    assert [seconds for seconds, _ in world.background.tasks] == [LEASE_S / 10]
    for _ in range(20):
        world.clock.ms += LEASE_S * 100
        world.background.run()
        assert first.remaining() == LEASE_S - DRIFT_MS / 1000
    with pytest.raises(LockUnavailableError):
        second.acquire()
    first.release()
    assert not world.background.tasks
    second.acquire()


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.REFUSE])
def test_a_renewal_that_is_not_confirmed_gives_no_time(world: World, fault: Fault) -> None:
    lock = world.lock("a", on("replace", fault))
    lock.acquire()
    world.clock.ms += 30_000
    world.background.run()
    assert lock.remaining() == LEASE_S - 30 - DRIFT_MS / 1000
    world.clock.ms += 30_000
    world.background.run()
    assert lock.remaining() == LEASE_S - DRIFT_MS / 1000


def test_a_lease_that_ran_out_and_nobody_took_is_renewed(world: World) -> None:
    lock = world.lock()
    lock.acquire()
    world.clock.ms += LEASE_S * 2000
    assert lock.remaining() == 0
    world.background.run()
    assert lock.remaining() > 0


def test_a_lock_that_was_lost_is_not_renewed_nor_released_for_its_new_owner(world: World) -> None:
    first, second = world.lock("a"), world.lock("b")
    first.acquire()
    world.clock.ms += LEASE_S * 1000 + DRIFT_MS + 1
    second.acquire()
    taken = world.lease()
    world.background.run()
    assert first.remaining() == 0
    assert len(world.background.tasks) == 1
    first.release()
    assert world.lease() == Lease("b1", taken.valid_until_ms)
    assert second.remaining() > 0


def test_a_lock_that_another_took_too_early_is_known_to_be_lost_at_the_next_renewal(world: World) -> None:
    lock = world.lock()
    lock.acquire()
    world.storage.replace(LOCK_FILE, encode_lease(Lease("x", world.clock.ms + 1)))
    assert lock.remaining() > 0
    world.background.run()
    assert lock.remaining() == 0
    assert not world.background.tasks


def test_a_renewal_after_the_release_does_not_bring_the_lock_back(world: World) -> None:
    lock = world.lock()
    lock.acquire()
    (late,) = [action for _, action in world.background.tasks]
    lock.release()
    assert late() is False
    assert world.lease().expired
    assert lock.remaining() == 0


@pytest.mark.parametrize("free", [True, False], ids=["create", "replace"])
def test_a_write_whose_reply_is_lost_is_settled_by_reading_back(world: World, free: bool) -> None:
    if not free:
        world.storage.create(LOCK_FILE, encode_lease(Lease("x", 0, True)))
    verb = "create" if free else "replace"
    world.lock("a", on(verb, Fault.LOST_AFTER)).acquire()
    assert world.lease().owner == "a1"
    world.clock.ms += LEASE_S * 2000
    with pytest.raises(LockUnavailableError):
        world.lock("b", on("replace", Fault.LOST_BEFORE)).acquire()
    assert world.lease().owner == "a1"


def test_a_ghost_is_released_and_does_not_count(world: World) -> None:
    lock = world.lock_on(HiddenRetry(world.storage))
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    assert lock.remaining() == 0
    assert world.lease() == Lease("a1", world.clock.ms + LEASE_S * 1000, True)
    lock.acquire()
    assert lock.remaining() > 0


def test_a_write_that_comes_through_late_is_a_ghost_to_the_next_acquire(world: World) -> None:
    storage = LateWrite(world.storage)
    lock = world.lock_on(storage, patience=ONCE)
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    assert storage.pending is not None
    storage.pending()
    assert world.lease() == Lease("a1", world.lease().valid_until_ms)
    with pytest.raises(LockUnavailableError):
        world.lock("b").acquire()
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    assert world.lease().expired
    lock.acquire()
    assert world.lease().owner == "a3"


def test_a_release_that_cannot_be_written_is_made_up_for_by_the_next_acquire(world: World) -> None:
    lock = world.lock("a", lambda call: Fault.UNAVAILABLE if 3 <= call.number < 8 else None, Patience(wait_s=1))
    lock.acquire()
    lock.release()
    assert not world.lease().expired
    assert lock.remaining() == 0
    lock.acquire()
    assert world.lease().owner == "a2"


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.REFUSE])
def test_a_release_is_tried_again(world: World, fault: Fault) -> None:
    lock = world.lock("a", on("replace", fault))
    lock.acquire()
    lock.release()
    assert world.lease().expired


def test_a_store_that_never_answers_is_the_cause_of_the_error(world: World) -> None:
    with pytest.raises(LockUnavailableError) as caught:
        world.lock("a", at(dict.fromkeys(range(1, 99), Fault.UNAVAILABLE)), Patience(wait_s=5)).acquire()
    assert isinstance(caught.value.__cause__, StorageUnavailableError)


def test_a_store_that_answers_after_the_lease_gives_no_lock(world: World) -> None:
    def slow(call: Call) -> None:
        world.clock.ms += LEASE_S * 1000 if call.verb == "create" else 0

    lock = world.lock("a", slow)
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    assert world.lease().expired
    assert not world.background.tasks


def test_an_interruption_leaves_nothing_held(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        raise KeyboardInterrupt

    lock = world.lock()
    monkeypatch.setattr(world.background, "every", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert lock.remaining() == 0
    assert world.lease().expired
    monkeypatch.undo()
    lock.acquire()


def test_a_lock_file_that_cannot_be_read_is_reported(world: World) -> None:
    world.storage.create(LOCK_FILE, b"{")
    with pytest.raises(CorruptTableError, match=r"table_lock\.json"):
        world.lock().acquire()


def test_a_lock_shared_by_threads_is_not_taken_for_a_ghost(world: World) -> None:
    lock = world.lock()
    lock.acquire()
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    assert lock.remaining() > 0
    world.clock.ms += LEASE_S * 2000
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    lock.release()
    lock.acquire()


class Contest:
    """Contenders on one store, each of whose storage calls is a step, and how often two held the lock at once."""

    def __init__(self, faults: Plan = no_faults) -> None:
        self.world = World()
        self.locks: list[StorageLease] = []
        self.entered = 0
        self._faults = faults

    def contender(self, name: str, patience: Patience = ONCE) -> Callable[[Callable[[], None]], None]:
        """Acquires, stays inside for a step, releases."""

        def act(pause: Callable[[], None]) -> None:
            def plan(call: Call) -> Fault | None:
                pause()
                return self._faults(call)

            lock = self.world.lock(name, plan, patience)
            self.locks.append(lock)
            try:
                lock.acquire()
            except LakebedError:
                return
            self.entered += 1
            pause()
            lock.release()

        return act

    def holder(self, name: str) -> Callable[[Callable[[], None]], None]:
        """Has the lock from the start, and releases it."""

        def step() -> None:
            """No other is there yet to come in between."""

        lock = self.world.lock(name, lambda call: step())
        self.locks.append(lock)
        lock.acquire()

        def act(pause: Callable[[], None]) -> None:
            nonlocal step
            step = pause
            lock.release()

        return act

    def renewer(self, pause: Callable[[], None]) -> None:
        """Renews what is held when it comes to it, as a thread of its own: also in the middle of a release."""
        for _ in range(20):
            for _, action in tuple(self.world.background.tasks):
                action()
            pause()

    def time_jump(self, pause: Callable[[], None]) -> None:
        """All contenders are paused for longer than the lease."""
        self.world.clock.ms += LEASE_S * 1000 + DRIFT_MS + 1

    def check(self) -> None:
        assert sum(lock.remaining() > 0 for lock in self.locks) <= 1

    def check_end(self) -> None:
        """Whatever happened, the lock is to be had once the lease ran out."""
        self.world.clock.ms += LEASE_S * 1000 + DRIFT_MS + 1
        self.world.lock("late").acquire()


def test_two_never_hold_it_in_any_order_of_steps() -> None:
    schedules = wins = 0
    for choose in all_schedules():
        contest = Contest()
        take_turns([contest.contender("a"), contest.contender("b")], choose, contest.check)
        assert contest.entered
        schedules += 1
        wins += contest.entered
    assert schedules > 50
    assert schedules < wins < 2 * schedules


def test_two_never_hold_it_when_the_lease_runs_out_at_any_moment() -> None:
    for choose in all_schedules():
        contest = Contest()
        take_turns([contest.holder("a"), contest.contender("b"), contest.time_jump], choose, contest.check)
        contest.check_end()


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.floats(0, 0.3))
def test_two_never_hold_it_whatever_goes_wrong(seed: int, rate: float) -> None:
    dice = random.Random(seed)
    kinds = [Fault.UNAVAILABLE, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.REFUSE, Fault.TRUNCATE]

    def faults(call: Call) -> Fault | None:
        possible = [kind for kind in kinds if kind in call.possible]
        return dice.choice(possible) if dice.random() < rate else None

    contest = Contest(faults)
    patient = Patience(wait_s=3, pause_s=1)
    actors = [contest.contender(name, patient) for name in "abc"]
    take_turns([*actors, contest.renewer, contest.renewer, contest.time_jump], dice.randrange, contest.check)
    contest.check_end()
