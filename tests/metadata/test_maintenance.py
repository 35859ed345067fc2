from __future__ import annotations

from lakebed.metadata.maintenance import archivable
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State


def _commit(requested: int, completed: int) -> Instant:
    times = (InstantTime(f"{20260101000000000 + time}") for time in (requested, completed))
    requested_at, completed_at = times
    return Instant(requested_at, Action.DELTA_COMMIT, State.COMPLETED, completed_at)


NEVER = InstantTime("9" * 17)


def test_the_oldest_instants_are_archived_once_there_are_many() -> None:
    commits = [_commit(10 * number, 10 * number + 5) for number in range(60)]
    assert archivable(commits[:44], NEVER) == []
    assert archivable(commits[:45], NEVER) == commits[:15]
    assert archivable(commits, commits[20].completed_at or NEVER) == commits[:20]


def test_an_instant_that_took_long_keeps_those_that_were_requested_after_it() -> None:
    """Its requested time is the first on the active timeline: what is archived is looked for before it."""
    slow = _commit(105, 405)
    commits = sorted([slow, *(_commit(10 * number, 10 * number + 5) for number in range(60))], key=_completion)
    gone = archivable(commits, NEVER)
    assert slow not in gone
    assert gone == [commit for commit in commits if commit.requested_at < slow.requested_at]


def _completion(instant: Instant) -> str:
    return instant.completed_at or ""
