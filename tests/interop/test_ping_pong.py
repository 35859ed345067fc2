"""Apache Hudi and lakebed take turns on one table: after each turn all readers see what a dict says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from interop.histories import COMMIT_TIME
from interop.test_writes import carry_out
from interop.write_histories import BASE_COLUMNS, Model, WriteDesign, WriteHistory, WriteStep
from interop.write_peer import HudiPeer, differences, index_differences, running_peer
from lakebed.api import create_table, open_table

pytestmark = pytest.mark.interop

SEED = 1
OPERATIONS = {
    "upsert": "upsert",
    "insert": "insert",
    "bulk_insert": "bulk_insert",
    "delete_rows": "delete",
    "overwrite": "insert_overwrite",
    "overwrite_table": "insert_overwrite_table",
}
RECORD_INDEX = {
    "record": {
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.record.index.update.partition.path": "true",
    },
    "record_partitioned": {
        "hoodie.metadata.record.level.index.enable": "true",
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
    },
}
# Who does what: a step of a history, or a table service of Apache Hudi.
COW_TURNS = (
    "hudi upsert, lakebed upsert, hudi delete_rows, lakebed delete_keys, hudi cluster, lakebed mixed, hudi clean, "
    "lakebed overwrite, hudi overwrite, lakebed bulk_insert, hudi insert, lakebed partial, hudi upsert"
)
MOR_TURNS = (
    "lakebed update, hudi update, lakebed delete_keys, hudi compact, lakebed update, hudi delete_rows, "
    "lakebed partial, hudi schedule_compaction, lakebed update, lakebed delete_rows, hudi run_compaction, "
    "hudi cluster, lakebed mixed, hudi clean, lakebed overwrite, hudi upsert"
)
INDEX_TURNS = (
    "lakebed upsert, hudi upsert, lakebed move, hudi move, lakebed update, hudi update, lakebed delete_rows, "
    "hudi upsert, lakebed again, hudi delete_rows, lakebed move, hudi again, lakebed late, hudi mixed, lakebed upsert, "
    "hudi move, lakebed delete_keys, hudi upsert"
)
CREATED_BY_HUDI_TURNS = (
    "lakebed upsert, hudi upsert, lakebed delete_rows, lakebed overwrite, hudi update, hudi upsert, lakebed mixed"
)


@pytest.mark.parametrize(
    ("design", "turns"),
    [
        (WriteDesign(mor=False, partitioned=True), COW_TURNS),
        (WriteDesign(mor=True, partitioned=True, hive_style=True, fills_files=False), MOR_TURNS),
    ],
    ids=lambda value: value.name if isinstance(value, WriteDesign) else "",
)
def test_a_table_of_lakebed(tmp_path: Path, design: WriteDesign, turns: str) -> None:
    game = Game(running_peer(), tmp_path / "table", design)
    create_table(game.path, **design.create_arguments)
    game.play("lakebed", "upsert")
    for turn in turns.split(", "):
        game.play(*turn.split())
        game.check()
    game.expect_none(index_differences(game.path))


@pytest.mark.parametrize(
    "design",
    [
        WriteDesign(mor=False, partitioned=True, hive_style=True),
        WriteDesign(mor=True, partitioned=True, fills_files=False),
        WriteDesign(mor=False, partitioned=False, merge_mode=COMMIT_TIME, indexes=("record",)),
    ],
    ids=lambda design: design.name,
)
def test_a_table_of_apache_hudi(tmp_path: Path, design: WriteDesign) -> None:
    game = Game(running_peer(), tmp_path / "table", design)
    game.play("hudi", "upsert")
    for turn in CREATED_BY_HUDI_TURNS.split(", "):
        game.play(*turn.split())
        game.check()
    game.expect_none(index_differences(game.path))


@pytest.mark.parametrize("maker", ["lakebed", "hudi"])
@pytest.mark.parametrize(
    "design",
    [
        WriteDesign(mor=False, partitioned=True, indexes=("record",)),
        WriteDesign(mor=True, partitioned=True, indexes=("record",)),
        WriteDesign(mor=True, partitioned=True, indexes=("record_partitioned",), log_blocks="parquet"),
    ],
    ids=lambda design: design.name,
)
def test_both_find_keys_by_the_record_index_of_the_other(tmp_path: Path, design: WriteDesign, maker: str) -> None:
    game = Game(running_peer(), tmp_path / "table", design)
    if maker == "lakebed":
        create_table(game.path, **design.create_arguments)
    game.play(maker, "upsert")
    for turn in INDEX_TURNS.split(", "):
        if "move" not in turn or design.has_moves:
            game.play(*turn.split())
            game.check()
            game.expect_none(index_differences(game.path, statistics=False))


class Game:
    """A table, what it must hold, and who did what to it."""

    def __init__(self, peer: HudiPeer, path: Path, design: WriteDesign) -> None:
        self.peer = peer
        self.path = path
        self.design = design
        self.history = WriteHistory(SEED, design)
        self.model = Model(design, pa.schema(BASE_COLUMNS))
        self.options = {**design.hudi_options, "hoodie.table.name": path.name}
        for index in design.indexes:
            self.options |= RECORD_INDEX[index]
        self.log = [f"seed {SEED}, {design}"]

    def play(self, who: str, what: str) -> None:
        """One turn."""
        self.log.append(f"{who} {what}")
        service = getattr(self, what, None)
        try:
            if service is not None:
                service()
                return
            step = self.next_step(what)
            if who == "hudi":
                assert step.rows is not None
                self.peer.write(self.path, step.rows, OPERATIONS[step.action], self.options)
            else:
                carry_out(open_table(self.path, options=self.design.write_options), step)
            self.model.apply(step)
        except Exception as error:
            raise AssertionError(f"{error!r}\n{self.about()}") from error

    def next_step(self, what: str) -> WriteStep:
        """A step of the kind; the first fills the table."""
        if not self.model.rows:
            return self.history.step(self.model)
        step: WriteStep = getattr(self.history, what)(self.model)
        return step

    def compact(self) -> None:
        self.schedule_compaction()
        self.run_compaction()

    def schedule_compaction(self) -> None:
        threshold = "hoodie.compact.inline.max.delta.commits=1"
        self.call(f"run_compaction(op => 'schedule', table => '{self.register()}', options => '{threshold}')")

    def run_compaction(self) -> None:
        self.call(f"run_compaction(op => 'execute', table => '{self.register()}')")

    def cluster(self) -> None:
        self.call(f"run_clustering(table => '{self.register()}', order => 'num')")

    def clean(self) -> None:
        self.call(
            f"run_clean(table => '{self.register()}', clean_policy => 'KEEP_LATEST_COMMITS', retain_commits => 2)"
        )

    def call(self, procedure: str) -> None:
        rows = self.peer.sql(f"call {procedure}")
        self.log.append(f"  {rows}")

    def register(self) -> str:
        """The table's name in the catalog, where it is entered anew: an entry does not follow changes of the schema."""
        self.peer.sql("drop table if exists t", f"create table t using hudi location '{self.path}'")
        return "t"

    def check(self) -> None:
        """Every reader sees the rows of the model."""
        self.expect_none(differences(self.peer, self.path, self.model))

    def expect_none(self, lines: list[str]) -> None:
        """Fails with the lines and the turns so far."""
        assert not lines, "\n".join([*lines, self.about()])

    def about(self) -> str:
        """What one needs to know to look into a failure."""
        return "\n  ".join([str(self.path), *self.log])
