"""Clusterings of lakebed and of Apache Hudi take turns on one table: plans of each are executed by the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.test_ping_pong import Game
from interop.write_histories import WriteDesign
from interop.write_peer import index_differences, running_peer
from lakebed.api import create_table
from lakebed.model.words import Action
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from services.compaction_tables import context_of

pytestmark = pytest.mark.interop

TURNS = (
    "hudi upsert, lakebed upsert, lakebed own_schedule, hudi run_clustering, lakebed update, hudi upsert, "
    "hudi schedule_clustering, lakebed own_execute, lakebed mixed, hudi update, lakebed own_cluster, hudi delete_rows, "
    "lakebed update, hudi cluster, lakebed delete_keys, hudi upsert"
)


@pytest.mark.parametrize(
    "design",
    [
        WriteDesign(mor=False, partitioned=True, indexes=("record",)),
        WriteDesign(mor=True, partitioned=True, fills_files=False, indexes=("record",)),
    ],
    ids=lambda design: design.name,
)
def test_plans_of_both_are_executed_by_both(tmp_path: Path, design: WriteDesign) -> None:
    game = ClusteringGame(running_peer(), tmp_path / "table", design)
    game.options |= {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false"}
    create_table(game.path, **design.create_arguments)
    game.play("lakebed", "upsert")
    for turn in TURNS.split(", "):
        game.play(*turn.split())
        game.check()
    assert len(game.executed) == 4, game.executed
    game.expect_none(index_differences(game.path))


class ClusteringGame(Game):
    """A game in which lakebed clusters, too; `executed` has the instants of all clusterings."""

    @property
    def executed(self) -> set[str]:
        """Clusterings that have completed."""
        names = (file.name for file in (self.path / ".hoodie/timeline").glob("*.clustering.inflight"))
        return {name.partition(".")[0] for name in names} - {i.requested_at for i in self._plans()}

    def schedule_clustering(self) -> None:
        self.call(f"run_clustering(table => '{self.register()}', op => 'schedule', order => 'num')")
        assert self._plans()

    def run_clustering(self) -> None:
        self.call(f"run_clustering(table => '{self.register()}', op => 'execute', order => 'num')")
        assert not self._plans()

    def own_schedule(self) -> None:
        assert schedule_clustering(context_of(str(self.path)), order_by=["num"]) is not None

    def own_execute(self) -> None:
        """Executes what anybody has scheduled."""
        plans = self._plans()
        assert plans
        for plan in plans:
            execute_clustering(context_of(str(self.path)), plan.requested_at)

    def own_cluster(self) -> None:
        self.own_schedule()
        self.own_execute()

    def _plans(self):
        pending = context_of(str(self.path)).handle.state().timeline.pending()
        return [plan for plan in pending if plan.action is Action.CLUSTERING]
