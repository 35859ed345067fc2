"""Random histories of writes with compactions in between: rows are those of a dictionary, indexes those of the rows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.errors import WriteConflictError
from lakebed.model.words import Action
from lakebed.services.compaction.logs import execute_log_compaction, schedule_log_compaction
from lakebed.services.compaction.plan import LogCompactionOptions
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from services.compaction_tables import check_table, context_of, new_table, rows, values

KEYS = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("upsert"), st.dictionaries(KEYS, st.integers(0, 9), min_size=1, max_size=4)),
    st.tuples(st.just("upsert"), st.dictionaries(KEYS, st.integers(0, 9), min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.sets(KEYS, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["compaction", "logcompaction", "execute"]), st.none()),
)
TWO = LogCompactionOptions(log_files_min=2)


class History:
    """A table, and the dictionary that it must equal."""

    def __init__(self, table: lakebed.Table, *, by_event_time: bool) -> None:
        self.table = table
        self.model: dict[str, int] = {}
        self.by_event_time = by_event_time
        self.seen: list[tuple[str, dict[str, int]]] = []

    def upsert(self, changes: dict[int, int]) -> None:
        result = self.table.upsert(rows(*changes.items()))
        for number, ts in changes.items():
            key = f"k{number}"
            if not self.by_event_time or ts >= self.model.get(key, ts):
                self.model[key] = ts
        self.seen.append((result.completed_at, dict(self.model)))

    def delete(self, numbers: set[int]) -> None:
        result = self.table.delete([f"k{number}" for number in numbers])
        for number in numbers:
            self.model.pop(f"k{number}", None)
        self.seen.append((result.completed_at, dict(self.model)))

    def compaction(self, _: Any) -> None:
        schedule_compaction(context_of(self.table))

    def logcompaction(self, _: Any) -> None:
        schedule_log_compaction(context_of(self.table), TWO)

    def execute(self, _: Any) -> None:
        """Executes the newest plan first: the order must not matter."""
        services = {Action.COMPACTION: execute_compaction, Action.LOG_COMPACTION: execute_log_compaction}
        for plan in reversed(self.table.timeline.pending()):
            services[plan.action](context_of(self.table), plan.requested_at)


@pytest.mark.parametrize(
    ("ordering", "indexes"), [("ts", ("record", "column_stats")), (None, ("bloom", "column_stats"))]
)
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, min_size=3, max_size=9))
@example(
    steps=[
        ("upsert", {0: 1, 1: 1, 2: 1}),
        ("upsert", {0: 2}),
        ("delete", {2}),
        ("logcompaction", None),
        ("upsert", {0: 3, 2: 0}),
        ("execute", None),
        ("compaction", None),
        ("upsert", {0: 4}),
        ("delete", {1}),
        ("execute", None),
        ("upsert", {1: 0, 3: 3}),
    ]
)
def test_rows_and_indexes_are_those_of_the_model(
    tmp_path: Path, ordering: str | None, indexes: tuple[str, ...], steps: list[tuple[str, Any]]
) -> None:
    history = History(new_table(tmp_path, ordering=ordering, indexes=indexes), by_event_time=ordering is not None)
    for name, argument in [*steps, ("execute", None)]:
        with suppress(WriteConflictError):  # A write that would rewrite what a plan has: it had no effect.
            getattr(history, name)(argument)
        assert values(history.table) == history.model
    check_table(history.table)
    assert not history.table.timeline.pending()
    for completed_at, model in history.seen:
        then = history.table.to_arrow(columns=["id", "ts"], as_of=completed_at).to_pylist()
        assert {each["id"]: each["ts"] for each in then} == model, "what was there before a compaction is there still"
