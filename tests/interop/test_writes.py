"""What lakebed writes, Apache Hudi, hudi-rs and lakebed read as a dict says, after every kind of write.

LAKEBED_SEEDS (default 1) are the seeds, LAKEBED_COMMITS (default 30) the commits of each history; rows are compared
after every LAKEBED_EVERY-th (default 5).
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from interop.histories import COMMIT_TIME
from interop.peer import SEEDS
from interop.write_histories import BASE_COLUMNS, Model, WriteDesign, WriteHistory, WriteStep
from interop.write_peer import (
    STRICT_SKIPPING,
    HudiPeer,
    difference,
    differences,
    index_differences,
    running_peer,
)
from lakebed.api import Table, create_table, open_table
from lakebed.errors import InvalidInputError
from lakebed.write.writer import WriteResult

pytestmark = pytest.mark.interop

COMMITS = int(os.environ.get("LAKEBED_COMMITS", "30"))
EVERY = int(os.environ.get("LAKEBED_EVERY", "5"))
DESIGNS = (
    WriteDesign(mor=False, partitioned=True, hive_style=True),
    WriteDesign(mor=False, partitioned=False, merge_mode=COMMIT_TIME, indexes=("record",)),
    WriteDesign(mor=True, partitioned=True, fills_files=False),
    WriteDesign(mor=True, partitioned=True, hive_style=True, merge_mode=COMMIT_TIME, indexes=("record", "bloom")),
    WriteDesign(mor=True, partitioned=False, fills_files=False, log_blocks="parquet"),
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_all_readers_agree_after_every_commit(tmp_path: Path, design: WriteDesign, seed: int) -> None:
    run = Run(running_peer(), tmp_path / "table", design, seed)
    while run.commits < COMMITS:
        run.take_step()
        if run.commits % EVERY == 0 or run.commits == COMMITS:
            run.check_rows()
    run.check_indexes()
    run.check_filters()


class Run:
    """A table, its history, and the model of it."""

    def __init__(self, peer: HudiPeer, path: Path, design: WriteDesign, seed: int) -> None:
        self.peer = peer
        self.path = path
        create_table(path, **design.create_arguments)
        self.table: Table = open_table(path, options=design.write_options)
        self.history = WriteHistory(seed, design)
        self.model = Model(design, pa.schema(BASE_COLUMNS))
        self.before = self.model.copy()
        self.newest: str | None = None
        self.commits = 0
        self.log = [f"seed {seed}, {design}"]

    def take_step(self) -> None:
        """The next write, on the table and on the model."""
        step = self.history.step(self.model)
        if step.action == "rollback":
            self.roll_back()
            return
        self.before = self.model.copy()
        self.model.apply(step)
        try:
            result = carry_out(self.table, step)
        except Exception as error:
            raise AssertionError(f"{step} failed: {error!r}\n{self.about()}") from error
        self.newest = result.instant
        self.commits += 1
        self.log.append(f"{self.commits}: {step} {result.instant}")

    def roll_back(self) -> None:
        """Undoes the newest write, once, unless it is in a base file of the metadata table, where it cannot be."""
        if self.newest is None:
            return
        try:
            self.table.rollback(self.newest)
        except InvalidInputError as error:
            if "compacted into the metadata table" not in str(error):
                raise
            self.log.append("rollback refused")
            return
        self.model, self.newest = self.before, None
        self.log.append("rollback")

    def check_rows(self) -> None:
        """Every reader sees the rows of the model."""
        self.expect_none(differences(self.peer, self.path, self.model))

    def check_indexes(self) -> None:
        """The metadata table says what storage and the rows say."""
        self.expect_none(index_differences(self.path))

    def check_filters(self) -> None:
        """Apache Hudi's data skipping, by the statistics that we wrote, leaves out no row."""
        filters = {
            "ts > 1200": lambda row: row["ts"] > 1200,
            "num < 0": lambda row: row["num"] is not None and row["num"] < 0,
            "num is null": lambda row: row["num"] is None,
            "price = -1.5": lambda row: row["price"] == -1.5,
            "region = 'eu' and id > 'k00050'": lambda row: row["region"] == "eu" and row["id"] > "k00050",
            "id = 'k00100'": lambda row: row["id"] == "k00100",
            "day < '1990-01-01'": lambda row: row["day"] is not None and str(row["day"]) < "1990-01-01",
            "amount > 0 and ok": lambda row: row["amount"] is not None and row["amount"] > 0 and bool(row["ok"]),
        }
        answers = self.peer.read_where(self.path, STRICT_SKIPPING, [*filters])
        for (where, is_wanted), rows in zip(filters.items(), answers, strict=True):
            self.expect_none([f"{where}: {line}" for line in difference(rows, self.model, is_wanted)])

    def expect_none(self, lines: list[str]) -> None:
        """Fails with the lines and the history."""
        assert not lines, "\n".join([*lines, self.about()])

    def about(self) -> str:
        """What one needs to know to look into a failure."""
        return "\n  ".join([str(self.path), *self.log])


def carry_out(table: Table, step: WriteStep) -> WriteResult:
    """A step, by the method that users call."""
    if step.action == "delete_keys":
        return table.delete(list(step.keys))
    if step.action == "delete_rows":
        return table.delete(step.rows)
    if step.action == "delete_partitions":
        return table.delete_partitions(step.keys)
    if step.action == "partial":
        return table.upsert(step.rows, partial=True)
    if step.action in ("overwrite", "overwrite_table"):
        return table.overwrite(step.rows, whole_table=step.action == "overwrite_table")
    write = {"upsert": table.upsert, "insert": table.insert, "bulk_insert": table.bulk_insert}[step.action]
    return write(step.rows)
