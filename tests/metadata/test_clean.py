from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.file_names import decode_data_file_name
from lakebed.metadata.upkeep.clean import plan_clean
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.view import latest_slices


def at(number: int) -> InstantTime:
    return InstantTime(f"{20300101000000000 + number}")


def base(number: int) -> str:
    return f"files-0000-0_1-1-1_{at(number)}.hfile"


def log(number: int) -> str:
    return f".files-0000-0_{at(number)}.log.1_1-1-1"


def files(*names: str) -> list[BaseFile | LogFile]:
    return [file for name in names if (file := decode_data_file_name(name)) is not None]


ALL = files(base(0), log(1), log(2), base(3), log(4), base(6), log(7), log(9))
COMMITS = [at(number) for number in (0, 1, 2, 3, 4, 6, 7)]


def completed(instant: InstantTime) -> InstantTime | None:
    return None if instant == at(9) else InstantTime(f"{int(instant)}")


def test_slices_before_those_that_retained_commits_need_may_go() -> None:
    plan = plan_clean({"files": ALL}, COMMITS, completed, retained=3)
    assert plan is not None
    assert plan.earliest_to_retain == at(4)
    assert plan.files == {"files": (base(0), log(1), log(2))}
    newest = plan_clean({"files": ALL}, COMMITS, completed, retained=1)
    assert newest is not None
    assert newest.files == {"files": (base(0), log(1), log(2), base(3), log(4))}


def test_nothing_may_go_while_there_are_few_commits() -> None:
    assert plan_clean({"files": ALL}, COMMITS, completed) is None
    assert plan_clean({"files": ALL}, COMMITS, completed, retained=5) is None


def test_a_compaction_that_completed_late_is_not_seen_by_earlier_readers() -> None:
    """The base file of instant 3 counts from 5 on: who reads as of 4 needs the slice before it."""
    late = {at(3): at(5)}
    plan = plan_clean({"files": ALL}, COMMITS, lambda t: late.get(t, completed(t)), retained=3)
    assert plan is None


def test_slices_of_pending_plans_stay() -> None:
    plan = plan_clean({"files": ALL}, COMMITS, completed, retained=1, needed=frozenset({log(1)}))
    assert plan is not None
    assert plan.files == {"files": (base(3), log(4))}


@given(
    bases=st.sets(st.integers(0, 20), max_size=5),
    logs=st.sets(st.integers(0, 20), max_size=12),
    delays=st.dictionaries(st.integers(0, 20), st.integers(0, 4)),
    retained=st.integers(1, 6),
)
def test_no_reader_of_a_retained_commit_misses_a_file(
    bases: set[int], logs: set[int], delays: dict[int, int], retained: int
) -> None:
    everything = files(*(base(number) for number in bases), *(log(number) for number in logs - bases))
    completions = {at(n): InstantTime(f"{20300101000000000 + n + delays.get(n, 0)}") for n in bases | logs}
    commits = sorted(completions, key=lambda t: (completions[t], t))
    plan = plan_clean({"files": everything}, commits, completions.get, retained=retained)
    gone = set(plan.files.get("files", ())) if plan else set()
    left = [file for file in everything if file.name not in gone]
    for stand in (completions[commit] for commit in commits[-retained:]):

        def seen(instant: InstantTime, stand: InstantTime = stand) -> InstantTime | None:
            return completions[instant] if completions[instant] <= stand else None

        assert latest_slices({"files": left}, seen, layout=2) == latest_slices({"files": everything}, seen, layout=2)
