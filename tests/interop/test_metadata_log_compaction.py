"""Log compactions of the metadata table by lakebed and by Apache Hudi, on tables that both go on writing to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from interop.test_ping_pong import Game
from interop.write_histories import WriteDesign
from interop.write_peer import WITH_METADATA, difference, index_differences, running_peer
from lakebed.api import create_table
from lakebed.errors import StorageUnavailableError
from lakebed.format.timeline.metadata import decode_commit
from lakebed.metadata.upkeep import maintenance

pytestmark = pytest.mark.interop

MERGED = {
    "hoodie.metadata.log.compaction.enable": "true",
    "hoodie.metadata.log.compaction.blocks.threshold": "2",
}
OPTIMIZED = {**WITH_METADATA, "hoodie.metadata.optimized.log.blocks.scan.enable": "true"}
"""Apache Hudi then leaves out what was merged; else it reads all blocks, those that stand for others last."""
LAKEBED_TURNS = (
    "lakebed update, lakebed move, lakebed delete_keys, hudi upsert, lakebed move, lakebed mixed, lakebed delete_rows, "
    "hudi move, lakebed upsert, lakebed move, lakebed clean, lakebed update, hudi upsert"
)
BOTH_TURNS = (
    "hudi update, hudi move, lakebed move, lakebed delete_keys, hudi delete_rows, hudi upsert, lakebed move, "
    "lakebed upsert, hudi move, lakebed mixed, lakebed update"
)


class MergingDesign(WriteDesign):
    """A table whose metadata table is log-compacted by every writer of lakebed."""

    @property
    def write_options(self) -> dict[str, str]:
        return {**super().write_options, **MERGED}


class MergingGame(Game):
    """A game in which Apache Hudi reads in both of its ways."""

    def check(self) -> None:
        super().check()
        self.expect_none(difference(self.peer.read(self.path, OPTIMIZED), self.model))

    @property
    def merges(self) -> Counter[str]:
        """Log compactions that completed, by who carried them out."""
        timeline = self.path / ".hoodie/metadata/.hoodie/timeline"
        found: Counter[str] = Counter()
        for plan in timeline.glob("*.logcompaction.requested"):
            for done in timeline.glob(f"{plan.name[:17]}_*.deltacommit"):
                stats = decode_commit(done.read_bytes(), path=done.name).stats
                times = (stat.extra.get("runtimeStats") for stat in stats)
                found["hudi" if any(times) else "lakebed"] += 1
        return found


def design(*, mor: bool) -> MergingDesign:
    return MergingDesign(mor=mor, partitioned=True, fills_files=False, indexes=("record",))


@pytest.mark.parametrize("mor", [True, False], ids=["mor", "cow"])
def test_apache_hudi_reads_and_writes_what_lakebed_merged(tmp_path: Path, mor: bool) -> None:
    game = MergingGame(running_peer(), tmp_path / "table", design(mor=mor))
    create_table(game.path, **game.design.create_arguments)
    game.play("lakebed", "upsert")
    for turn in LAKEBED_TURNS.split(", "):
        game.play(*turn.split())
        if turn.startswith("hudi") or turn == "lakebed delete_keys":
            game.check()
    assert game.merges["lakebed"] >= 3
    game.expect_none(index_differences(game.path, statistics=False))


def test_both_merge_log_files_of_the_other(tmp_path: Path) -> None:
    game = MergingGame(running_peer(), tmp_path / "table", design(mor=True))
    game.options |= MERGED
    game.play("hudi", "upsert")
    for turn in BOTH_TURNS.split(", "):
        game.play(*turn.split())
        game.check()
    assert game.merges["lakebed"] >= 1
    assert game.merges["hudi"] >= 1
    game.expect_none(index_differences(game.path, statistics=False))


def test_apache_hudi_carries_out_what_lakebed_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    game = MergingGame(running_peer(), tmp_path / "table", design(mor=True))
    create_table(game.path, **game.design.create_arguments)

    def die(*_: object) -> None:
        raise StorageUnavailableError("gone", hint="none")

    with monkeypatch.context() as broken:
        broken.setattr(maintenance, "_begin_attempt", die)
        game.play("lakebed", "upsert")
        game.play("lakebed", "update")
    assert list((game.path / ".hoodie/metadata/.hoodie/timeline").glob("*.logcompaction.requested"))
    assert game.merges.total() == 0
    game.check()
    game.play("hudi", "upsert")
    assert game.merges == {"hudi": 1}
    game.check()
    game.play("lakebed", "update")
    game.check()
    game.expect_none(index_differences(game.path, statistics=False))
