"""Writes, cleans, archivings, savepoints and restores in any order, against a plain dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.archive import ArchiveLimits, archive_timeline
from lakebed.services.clean.plan import CleanPolicy, Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.restore import restore
from lakebed.services.savepoint import delete_savepoint, savepoint

from .serviced_tables import CITIES, Modelled, context_of, new_table

NUMBERS = st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), NUMBERS),
        st.tuples(st.just("upsert"), NUMBERS),
        st.tuples(st.just("delete"), NUMBERS),
        st.tuples(st.just("overwrite"), NUMBERS),
        st.tuples(st.just("delete_partition"), st.sampled_from(CITIES)),
        st.tuples(st.just("clean"), st.integers(1, 3)),
        st.tuples(st.just("clean_versions"), st.integers(1, 2)),
        st.tuples(st.just("archive"), st.integers(1, 3)),
        st.tuples(st.just("savepoint"), st.integers(0, 2)),
        st.tuples(st.just("delete_savepoint"), st.integers(0, 2)),
        st.tuples(st.just("restore"), st.integers(0, 2)),
    ),
    min_size=6,
    max_size=14,
)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@settings(
    max_examples=5,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_any_order_leaves_what_the_model_has(tmp_path: Path, table_type: str, steps: list[tuple[str, Any]]) -> None:
    table = new_table(tmp_path, table_type)
    table.upsert(range(4), 0)
    player = Player(table)
    for ts, step in enumerate(steps, 1):
        player.play(ts, *step)
        table.table = lakebed.open_table(table.path)
        table.check_now()
        assert not table.table.timeline.pending()
        assert table.readable() >= player.retained(), step


class Player:
    """Carries steps out, and knows which commits must be readable afterwards."""

    def __init__(self, table: Modelled) -> None:
        self.table = table
        self.saved: set[InstantTime] = set()
        self.window = set(table.past)

    def play(self, ts: int, what: str, detail: Any) -> None:
        context = context_of(self.table.table)
        active = self.active()
        if what in ("upsert", "overwrite"):
            self.window.add(getattr(self.table, what)(detail, ts))
        elif what == "delete":
            self.window.add(self.table.delete(detail))
        elif what == "delete_partition":
            if detail in {file_slice.group.partition for file_slice in self.table.table.files()}:
                self.window.add(self.table.delete_partition(detail))
        elif what == "clean":
            self.clean(Retention(commits=detail))
            self.window &= {*active[-detail:]}
        elif what == "clean_versions":
            self.clean(Retention(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions=detail))
            self.window &= {*active[-1:]}
        elif what == "archive":
            limits = ArchiveLimits(min_commits=detail, max_commits=detail + 1)
            archive_timeline(context, limits, Retention(commits=detail))
            self.window &= {*self.active()}
        elif what == "savepoint" and set(active[-1 - detail : -detail or None]) & self.window:
            self.saved.add(savepoint(context, active[-1 - detail]))
        elif what == "delete_savepoint" and self.saved:
            instant = sorted(self.saved)[detail % len(self.saved)]
            delete_savepoint(context, instant)
            self.saved.discard(instant)
        elif what == "restore" and self.saved:
            self.restore(max(self.saved))

    def clean(self, retention: Retention) -> None:
        instant = schedule_clean(context_of(self.table.table), retention)
        if instant is not None:
            execute_clean(context_of(self.table.table), instant)

    def restore(self, target: InstantTime) -> None:
        restore(context_of(self.table.table), target)
        past = self.table.past
        self.table.rows = {(row["city"], row["id"]): row for row in past[target]}
        for undone in [instant for instant in past if instant > target]:
            del past[undone]
        self.window = {target} | {instant for instant in self.window if instant <= target}

    def active(self) -> list[InstantTime]:
        return [i.requested_at for i in self.table.table.timeline.commits()]

    def retained(self) -> set[InstantTime]:
        saved = {i.requested_at for i in self.table.table.timeline if i.action is Action.SAVEPOINT}
        assert saved == self.saved
        return self.window | self.saved
