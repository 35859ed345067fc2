from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.model.files import BaseFile, FileGroupId, LogFile
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.clean.plan import (
    NEVER,
    CleanPolicy,
    CleanScope,
    Retention,
    earliest_to_retain,
    parse_retention,
    removable_files,
)
from lakebed.view import latest_slices


def at(number: int) -> InstantTime:
    return InstantTime(f"{20300101000000000 + number}")


def commit(number: int, delay: int = 0) -> Instant:
    return Instant(at(number), Action.COMMIT, State.COMPLETED, at(number + delay))


def base(number: int, group: str = "g") -> str:
    return f"{group}_1-1-1_{at(number)}.parquet"


def log(number: int, group: str = "g") -> str:
    return f".{group}_{at(number)}.log.1_1-1-1"


def files(*names: str) -> list[BaseFile | LogFile]:
    return [file for name in names if (file := decode_data_file_name(name)) is not None]


def test_hudi_spellings_old_and_new() -> None:
    assert parse_retention({}) == Retention()
    assert parse_retention({"hoodie.clean.commits.retained": "4"}) == Retention(commits=4)
    assert parse_retention({"hoodie.cleaner.hours.retained": "5"}) == Retention(
        policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours=5
    )
    both = {"hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.cleaner.fileversions.retained": "2"}
    assert parse_retention({**both, "hoodie.cleaner.commits.retained": "7"}) == Retention(
        policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions=2, commits=7
    )
    assert not parse_retention({"hoodie.clean.incremental.enabled": "false"}).incremental


@pytest.mark.parametrize(
    "option",
    [
        ("hoodie.clean.policy", "KEEP_ALL"),
        ("hoodie.clean.commits.retained", "0"),
        ("hoodie.cleaner.hours.retained", "-1"),
        ("hoodie.clean.fileversions.retained", "many"),
        ("hoodie.clean.incremental.enabled", "perhaps"),
    ],
)
def test_what_makes_no_sense_is_refused(option: tuple[str, str]) -> None:
    with pytest.raises(InvalidInputError, match="use "):
        parse_retention(dict([option]))


def test_the_earliest_commit_completed_before_any_write_that_is_under_way() -> None:
    commits = [commit(number) for number in (1, 3, 5, 7, 9)]
    two = Retention(commits=2)
    assert earliest_to_retain(two, commits, now=at(10)) == commits[3]
    assert earliest_to_retain(two, commits, now=at(10), before=at(6)) == commits[2]
    assert earliest_to_retain(two, commits, now=at(10), before=at(5)) == commits[1]
    assert earliest_to_retain(two, commits, now=at(10), before=at(1)) is None
    assert earliest_to_retain(Retention(commits=5), commits, now=at(10)) is None


def test_hours_count_from_now() -> None:
    commits = [commit(number) for number in (1, 3, 5)]
    hours = Retention(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours=1)
    assert earliest_to_retain(hours, commits, now=at(10)) == commits[0]
    later = InstantTime("20300101010000004")
    assert earliest_to_retain(hours, commits, now=later) == commits[2]
    assert earliest_to_retain(hours, commits, now=InstantTime("20300102000000000")) == commits[2]
    assert earliest_to_retain(hours, [], now=later) is None


def test_a_slice_with_a_needed_file_stays_whole() -> None:
    everything = files(base(1), log(2), base(3), log(4), base(5), base(6))
    scope = CleanScope(NEVER, lambda time: time, needed={log(2)})
    assert removable_files("p", everything, scope) == (base(3), log(4), base(5))


@given(
    bases=st.sets(st.integers(0, 20), max_size=5),
    logs=st.sets(st.integers(0, 20), max_size=12),
    delays=st.dictionaries(st.integers(0, 20), st.integers(0, 4)),
    replaced=st.none() | st.integers(0, 24),
    before=st.integers(0, 26),
    versions=st.integers(1, 3),
)
def test_whoever_sees_what_completed_before_misses_no_file(
    bases: set[int], logs: set[int], delays: dict[int, int], replaced: int | None, before: int, versions: int
) -> None:
    everything = files(*(base(number) for number in bases), *(log(number) for number in logs - bases))
    completions = {at(n): at(n + delays.get(n, 0)) for n in bases | logs}
    group = FileGroupId("p", "g")
    hidden_at = {} if replaced is None else {group: at(replaced)}
    scope = CleanScope(at(before), completions.get, hidden_at, versions=versions)
    gone = set(removable_files("p", everything, scope))
    left = [file for file in everything if file.name not in gone]
    # A reader saw at least all that had completed strictly before; it stands at the last of these, or later.
    stands = [at(n) for n in range(before - 1, 30)]
    for stand in stands:

        def seen(instant: InstantTime, stand: InstantTime = stand) -> InstantTime | None:
            return completions[instant] if completions[instant] <= stand else None

        hidden = frozenset(g for g, when in hidden_at.items() if when <= stand)
        asked = {"layout": 2, "replaced": hidden}
        assert latest_slices({"p": left}, seen, **asked) == latest_slices({"p": everything}, seen, **asked)
