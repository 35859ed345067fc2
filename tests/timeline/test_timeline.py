from __future__ import annotations

from itertools import permutations

from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.timeline import Timeline


def at(n: int) -> InstantTime:
    return InstantTime(f"202601010000000{n:02d}")


def done(requested: int, completed: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(at(requested), action, State.COMPLETED, at(completed))


def pending(requested: int, action: Action = Action.COMMIT, state: State = State.REQUESTED) -> Instant:
    return Instant(at(requested), action, state)


def test_completed_instants_stand_in_completion_order() -> None:
    timeline = Timeline.of([done(1, 9), done(2, 3), done(4, 5)])
    assert [i.requested_at for i in timeline] == [at(2), at(4), at(1)]


def test_an_instant_counts_once_in_its_furthest_state() -> None:
    files = [pending(1), pending(1, state=State.INFLIGHT), done(1, 2), pending(3), pending(3, state=State.INFLIGHT)]
    for order in permutations(files):
        timeline = Timeline.of(order)
        assert timeline.completed() == (done(1, 2),)
        assert timeline.pending() == (pending(3, state=State.INFLIGHT),)


def test_a_service_completes_under_the_name_of_a_write() -> None:
    timeline = Timeline.of([pending(1, Action.COMPACTION), done(1, 2, Action.COMMIT), pending(3, Action.CLUSTERING)])
    assert timeline.pending() == (pending(3, Action.CLUSTERING),)


def test_a_savepoint_shares_the_time_of_its_commit() -> None:
    timeline = Timeline.of([done(1, 2), done(1, 5, Action.SAVEPOINT)])
    assert len(timeline.completed()) == 2
    assert timeline.completion_of(at(1)) == at(2)


def test_until_is_a_prefix_in_completion_order() -> None:
    timeline = Timeline.of([done(1, 9), done(2, 3), pending(4)])
    assert timeline.until(at(5)).instants == (done(2, 3),)
    assert timeline.until(at(5)).completion_of(at(1)) is None


def test_log_compactions_are_told_from_writes_by_their_plans() -> None:
    merge = [pending(3, Action.LOG_COMPACTION), done(3, 4, Action.DELTA_COMMIT)]
    timeline = Timeline.of([done(1, 2, Action.DELTA_COMMIT), *merge, pending(5, Action.LOG_COMPACTION)])
    assert timeline.log_compactions == {at(3)}
    assert timeline.pending() == (pending(5, Action.LOG_COMPACTION),)
