from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.view import latest_slices


def at(n: int) -> InstantTime:
    return InstantTime(f"2026010100000{n:04d}")


def base(n: int, file_id: str = "f", token: str = "0-0-0") -> BaseFile:
    return BaseFile(f"{file_id}_{token}_{at(n)}.parquet", file_id, token, at(n), ".parquet")


def log(n: int, file_id: str = "f", version: int = 1) -> LogFile:
    return LogFile(f".{file_id}_{at(n)}.log.{version}_0-0-0", file_id, at(n), version, "0-0-0")


def latest(files, completions: dict[int, int], *, layout: int = 2, replaced: frozenset[FileGroupId] = frozenset()):
    known = {at(requested): at(completed) for requested, completed in completions.items()}
    return latest_slices({"p": files}, known.get, layout=layout, replaced=replaced)


def test_a_log_that_completes_after_the_compaction_was_requested_lies_on_it() -> None:
    files = [base(10), log(11), log(20), base(16), log(15)]
    (found,) = latest(files, {10: 12, 11: 13, 15: 18, 16: 23, 20: 26})
    assert found.base == base(16)
    assert found.logs == (log(15), log(20))  # 15 was requested before, but completed after, the compaction's request


def test_uncommitted_files_do_not_count() -> None:
    (found,) = latest([base(1), base(5), log(6)], {1: 2})
    assert found == FileSlice(FileGroupId("p", "f"), at(1), base(1), ())


def test_a_group_of_logs_alone_is_a_slice() -> None:
    (found,) = latest([log(4), log(3)], {3: 5, 4: 6})
    assert found == FileSlice(FileGroupId("p", "f"), at(3), None, (log(3), log(4)))


def test_logs_of_one_instant_are_in_the_order_of_their_versions() -> None:
    (found,) = latest([log(4, version=10), log(4, version=9), log(3)], {3: 5, 4: 6})
    assert found.logs == (log(3), log(4, version=9), log(4, version=10))


def test_replaced_groups_are_hidden() -> None:
    assert latest([base(1)], {1: 2}, replaced=frozenset({FileGroupId("p", "f")})) == ()


def test_layout_1_goes_by_the_base_instant_in_the_name() -> None:
    (found,) = latest([base(10), log(10), log(10, version=2), base(20), log(20), log(30)], {10: 10, 20: 20}, layout=1)
    assert found.base == base(20)
    assert found.logs == (log(20), log(30))  # 30: the base instant of a compaction that is still pending


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.booleans(), st.booleans()), max_size=20))
def test_no_committed_log_is_lost_between_slices(writes: list[tuple[int, int, bool, bool]]) -> None:
    """Every committed log lies on the newest base, or completed before that base was requested (so is inside it)."""
    unique = {requested: (took, is_base, ok) for requested, took, is_base, ok in writes}
    files = [base(n) if is_base else log(n) for n, (_, is_base, _) in unique.items()]
    completions = {n: n + took for n, (took, _, ok) in unique.items() if ok}
    found = latest(files, completions)
    committed = [n for n in unique if n in completions]
    if not committed:
        assert found == ()
        return
    (only,) = found
    bases = [n for n in committed if unique[n][1]]
    newest = max(bases, default=-1)
    assert (only.base is None) == (not bases)
    expected = {log(n).name for n in committed if not unique[n][1] and completions[n] >= newest}
    assert {entry.name for entry in only.logs} == expected
