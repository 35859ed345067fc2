"""Compactions of lakebed and of Apache Hudi take turns on one table: plans of each are executed by the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.histories import COMMIT_TIME
from interop.test_ping_pong import Game
from interop.write_histories import WriteDesign
from interop.write_peer import index_differences, running_peer
from lakebed.api import create_table
from lakebed.model.words import Action
from lakebed.services.compaction.logs import execute_log_compaction, schedule_log_compaction
from lakebed.services.compaction.plan import LogCompactionOptions
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from services.compaction_tables import context_of

pytestmark = pytest.mark.interop

SERVICES = {"own_compact", "own_log_compact", "own_execute", "compact", "run_compaction", "upsert"}
"""After these turns all readers are asked."""
EVENT_TIME_TURNS = (
    "lakebed update, lakebed delete_keys, lakebed own_compact, hudi update, lakebed own_schedule, lakebed update, "
    "hudi run_compaction, hudi update, hudi schedule_compaction, lakebed update, lakebed own_execute, "
    "lakebed update, hudi delete_rows, lakebed own_log_compact, lakebed mixed, hudi update, lakebed own_log_compact, "
    "hudi compact, lakebed update, lakebed partial, lakebed own_log_compact, lakebed own_compact, hudi upsert"
)
COMMIT_TIME_TURNS = (
    "lakebed update, lakebed delete_keys, lakebed update, lakebed own_log_compact, hudi update, lakebed own_compact, "
    "hudi update, hudi schedule_compaction, lakebed update, lakebed own_execute, hudi upsert"
)


@pytest.mark.parametrize(
    ("design", "turns"),
    [
        (
            WriteDesign(mor=True, partitioned=True, fills_files=False, indexes=("record",)),
            EVENT_TIME_TURNS,
        ),
        (WriteDesign(mor=True, partitioned=False, merge_mode=COMMIT_TIME, indexes=("record",)), COMMIT_TIME_TURNS),
    ],
    ids=["event time", "commit time"],
)
def test_plans_of_both_are_executed_by_both(tmp_path: Path, design: WriteDesign, turns: str) -> None:
    game = ServiceGame(running_peer(), tmp_path / "table", design)
    game.options |= {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}
    create_table(game.path, **design.create_arguments)
    game.play("lakebed", "upsert")
    for turn in turns.split(", "):
        who, what = turn.split()
        game.play(who, what)
        if what in SERVICES:
            game.check()
    game.expect_none(index_differences(game.path))


class ServiceGame(Game):
    """A game in which lakebed compacts, too."""

    def own_schedule(self) -> None:
        assert schedule_compaction(context_of(str(self.path))) is not None

    def own_execute(self) -> None:
        """Executes what anybody has scheduled."""
        context = context_of(str(self.path))
        plans = [i.requested_at for i in context.handle.state().timeline.pending() if i.action is Action.COMPACTION]
        assert plans
        for instant in plans:
            result = execute_compaction(context, instant)
            assert result.counts["file_groups"], result

    def own_compact(self) -> None:
        self.own_schedule()
        self.own_execute()

    def own_log_compact(self) -> None:
        context = context_of(str(self.path))
        instant = schedule_log_compaction(context, LogCompactionOptions(log_files_min=2))
        assert instant is not None
        execute_log_compaction(context, instant)
