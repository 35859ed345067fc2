"""Does steps to a table and to its model alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.errors import InvalidInputError, LakebedError, UnsupportedTableError, WriteConflictError

from .model import DELETED, Model, Row, key_of, rank
from .steps import Setup, Step

_TYPES = {
    "id": pa.string(),
    "part": pa.string(),
    "num": pa.int32(),
    "dbl": pa.float64(),
    "txt": pa.string(),
    DELETED: pa.bool_(),
}
COLUMNS = ("id", "part", "num", "dbl", "txt", "ts")


@dataclass
class World:
    """A table and its model. `refused` counts calls that were refused as they should be."""

    path: Path
    setup: Setup
    chance: random.Random
    table: lakebed.Table
    model: Model
    refused: int = 0

    @classmethod
    def create(cls, path: Path, setup: Setup, chance: random.Random) -> World:
        options = dict(setup.options)
        if setup.ordering == "commit":
            options["hoodie.record.merge.mode"] = "COMMIT_TIME_ORDERING"
        table = lakebed.create_table(
            path,
            schema=pa.schema([pa.field(name, _type(name, setup)) for name in COLUMNS]),
            key="id",
            partition_by="part" if setup.partitioned else None,
            ordering="ts" if setup.ordering else None,
            table_type=setup.kind,
            indexes=setup.indexes,
            options=options,
        )
        world = cls(path, setup, chance, table, Model(setup.partitioned, setup.by_event_time, list(COLUMNS)))
        world.look_at_indexes()
        return world

    @property
    def options(self) -> dict[str, str]:
        """Options for another handle: those of the creation are the table's own."""
        of_creation = ("hoodie.datasource.write.", "lakebed.record", "hoodie.record.merge")
        return {key: value for key, value in self.setup.options.items() if not key.startswith(of_creation)}

    @property
    def has_long_partitions(self) -> bool:
        """Whether partitions may be refused because names of index files that are made of them are too long."""
        return self.setup.partitioned and any(len(value or "") > 100 for value in self.setup.partitions)

    def indexes(self) -> dict[str, Any]:
        """The indexes that are ready, by name."""
        return {index.name: index for index in self.table.indexes.list() if index.state == "ready"}

    def look_at_indexes(self) -> None:
        """Whether there is a record index over the whole table: then a key is in one partition at most."""
        record = self.indexes().get("record_index")
        self.model.had_record_index |= record is not None
        self.model.is_global = record is not None and "partitioned" not in record.kind

    def allows(self, step: Step) -> bool:
        """Whether a step fits the table as it is: steps before it may have been left out."""
        rows: Sequence[Row] = step.args.get("rows", ())
        model = self.model
        if step.verb in ("upsert", "insert", "bulk_insert", "overwrite") and any(
            name not in row for row in rows for name in model.columns
        ):
            return False
        if step.verb in ("insert", "bulk_insert"):
            taken = {key for _, key in model.rows} | (model.deleted if self.setup.kind == "mor" else set())
            return not any(key_of(row) in taken for row in rows)
        if step.verb in ("upsert", "partial") and model.by_event_time:
            return all(rank(row["ts"]) >= rank(model.deletes.get(key_of(row))) for row in rows)
        if step.verb == "overwrite" and model.is_global and not step.args["whole"]:
            rows = model.combine(rows)
            named = {model.partition_of(row) for row in rows}
            return {place[1] for place in model.rows if place[0] not in named}.isdisjoint(map(key_of, rows))
        if step.verb == "partial" and model.is_global:
            return all(model.find(row) in ((model.partition_of(row), key_of(row)),) for row in rows)
        if step.verb == "delete_partitions":
            return {*step.args["partitions"]} <= {place[0] for place in model.rows}
        return True

    def do(self, step: Step) -> None:
        """Does a step; an error that is not a refusal which the model knows of passes."""
        before = {instant for instant, _ in self.model.history}
        _DO[step.verb](self, **step.args)
        known = before | {instant for instant, _ in self.model.history}
        self.model.completed(
            instant.requested_at for instant in self.table.timeline.commits() if instant.requested_at not in known
        )

    def write(self, call: Callable[[], Any], change: Callable[[str], None]) -> Any:
        """A write, and what it does to the model; while a plan for the same files waits, it may be refused."""
        try:
            result = call()
        except WriteConflictError:
            if not any(str(i.action) in ("clustering", "compaction") for i in self.table.timeline.pending()):
                raise
            self.refused += 1
            return None
        except InvalidInputError as error:
            if "too long" not in error.what or not self.has_long_partitions:
                raise
            self.refused += 1
            return None
        change(result.instant)
        return result

    def arrow(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as an Arrow table, with the table's columns if there are no rows."""
        names = list(dict.fromkeys(name for row in rows for name in row)) or self.model.columns
        return pa.Table.from_pylist(list(rows), pa.schema([(name, _type(name, self.setup)) for name in names]))

    # What steps do.

    def upsert(self, rows: Sequence[Row]) -> None:
        before = {**self.model.rows}
        result = self.write(
            lambda: self.table.upsert(self.arrow(rows)), lambda instant: self.model.upsert(rows, instant)
        )
        after = self.model.rows
        if result is not None and self.setup.kind == "cow" and not self.model.moved:
            counted = (result.inserted, result.updated, result.deleted)
            changed = [place for place in after.keys() & before.keys() if after[place] is not before[place]]
            expected = (len(after.keys() - before.keys()), len(changed), len(before.keys() - after.keys()))
            assert counted == expected, f"counts are {counted}, not {expected}"

    def partial(self, rows: Sequence[Row]) -> None:
        self.write(
            lambda: self.table.upsert(self.arrow(rows), partial=True) if rows else self.table.upsert(self.arrow(rows)),
            lambda instant: self.model.upsert(rows, instant),
        )

    def insert(self, rows: Sequence[Row]) -> None:
        self.write(lambda: self.table.insert(self.arrow(rows)), lambda instant: self.model.insert(rows, instant))

    def bulk_insert(self, rows: Sequence[Row]) -> None:
        self.write(lambda: self.table.bulk_insert(self.arrow(rows)), lambda instant: self.model.insert(rows, instant))

    def overwrite(self, rows: Sequence[Row], whole: bool) -> None:
        self.write(
            lambda: self.table.overwrite(self.arrow(rows), whole_table=whole),
            lambda instant: self.model.overwrite(rows, instant, whole=whole),
        )

    def delete(self, keys: Sequence[str]) -> None:
        self.write(lambda: self.table.delete(list(keys)), lambda _: self.model.delete(keys))

    def delete_rows(self, rows: Sequence[Row]) -> None:
        self.write(lambda: self.table.delete(self.arrow(rows)), lambda _: self.model.delete_rows(rows))

    def delete_partitions(self, partitions: Sequence[str | None]) -> None:
        stored = self.table.to_arrow(columns=["part", "_hoodie_partition_path"]).to_pylist()
        paths = {row["part"]: row["_hoodie_partition_path"] for row in stored}
        self.write(
            lambda: self.table.delete_partitions([paths[partition] for partition in partitions]),
            lambda _: self.model.delete_partitions(partitions),
        )

    def refused_rows(self, rows: Sequence[Row]) -> None:
        try:
            self.table.upsert(self.arrow(rows))
        except LakebedError:
            self.refused += 1
        else:
            raise AssertionError("rows were taken that no table can hold")

    def service(self, call: Callable[[], object], *refusals: type[LakebedError]) -> None:
        try:
            call()
        except refusals:
            self.refused += 1

    def compact(self) -> None:
        self.service(self.table.services.compact)

    def log_compact(self) -> None:
        self.service(self.table.services.log_compact)

    def cluster(self, order_by: Sequence[str], layout: str) -> None:
        self.service(lambda: self.table.services.cluster(list(order_by), layout=layout))

    def clean(self) -> None:
        self.service(self.table.services.clean)

    def archive(self) -> None:
        self.service(self.table.services.archive)

    def rollback_failed_writes(self) -> None:
        assert self.table.services.rollback_failed_writes() == ()

    def run_services(self) -> None:
        for done in self.table.services.run():
            assert not done.problem, str(done)

    def schedule(self, service: str) -> None:
        self.table.services.schedule(service)

    def savepoint(self) -> None:
        if self.model.history:
            self.model.savepoints.append(self.table.savepoint())
        else:
            self.expect_refusal(self.table.savepoint)

    def delete_savepoint(self) -> None:
        if self.model.savepoints:
            self.table.delete_savepoint(self.model.savepoints[-1])
            instant = self.model.savepoints[-1]
            self.model.savepoints = [each for each in self.model.savepoints if each != instant]

    def restore(self) -> None:
        if not self.model.savepoints:
            return
        instant = max(self.model.savepoints)
        times = [each for each, _ in self.model.history]
        try:
            self.table.restore(instant)
        except WriteConflictError:
            assert any(self.table.timeline.pending()), "a restore was refused though nothing is pending"
            self.refused += 1
            return
        self.model.undo_after(times.index(instant) + 1)
        self.look_at_indexes()

    def rollback(self) -> None:
        if len(self.model.history) > 1:
            self.expect_refusal(lambda: self.table.rollback(self.model.history[-2][0]))
        if not self.model.history:
            return
        try:
            self.table.rollback(self.model.history[-1][0])
        except InvalidInputError:
            self.refused += 1
            return
        self.model.undo_after(len(self.model.history) - 1)

    def create_index(self, name: str, kind: str | None, rebuild: bool) -> None:
        before = self.indexes()
        try:
            self.table.indexes.create(name, kind=kind, rebuild=rebuild)
        except (InvalidInputError, UnsupportedTableError):
            if not self.may_refuse(name, kind, rebuild, before):
                raise
            assert {*self.indexes()} == {*before}, "an index that was refused changed what there is"
            self.refused += 1
        self.look_at_indexes()

    def may_refuse(self, name: str, kind: str | None, rebuild: bool, before: dict[str, Any]) -> bool:
        """Whether there is a reason not to build an index."""
        keys = [key for _, key in self.model.rows]
        is_there = name in before and not rebuild
        stays_partitioned = kind is None and name in before and "partitioned" in before[name].kind
        is_global = name == "record_index" and kind != "record_partitioned" and not stays_partitioned
        repeats = is_global and len({*keys}) < len(keys)
        parted = not self.setup.partitioned and (name == "partition_stats" or kind == "record_partitioned")
        needs = name == "partition_stats" and "column_stats" not in before
        needs |= name != "files" and "files" not in before
        empty = not self.model.history
        too_long = name == "record_index" and self.has_long_partitions
        return is_there or repeats or parted or needs or empty or too_long

    def drop_index(self, name: str) -> None:
        before = self.indexes()
        try:
            self.table.indexes.drop(name)
        except InvalidInputError:
            needed = name == "files" or (name == "column_stats" and "partition_stats" in before)
            assert needed or name not in before, f"{name} was not dropped"
            self.refused += 1
        else:
            assert name not in self.indexes(), f"{name} is there though it was dropped"
        self.look_at_indexes()

    def reshard(self, shards: int) -> None:
        if "record_index" in self.indexes():
            self.table.indexes.reshard("record_index", shards=shards)
        else:
            self.expect_refusal(lambda: self.table.indexes.reshard("record_index", shards=shards))

    def reopen(self) -> None:
        self.table = lakebed.open_table(self.path, options=self.options)

    def expect_refusal(self, call: Callable[[], object]) -> None:
        try:
            call()
        except LakebedError:
            self.refused += 1
        else:
            raise AssertionError("it was not refused")


def _type(name: str, setup: Setup) -> pa.DataType:
    if name == "ts":
        return pa.float64() if setup.ordering == "float" else pa.int64()
    return _TYPES.get(name, pa.string())


_DO: dict[str, Callable[..., None]] = {
    "refused": World.refused_rows,
    **{
        name: getattr(World, name)
        for name in (
            "upsert",
            "partial",
            "insert",
            "bulk_insert",
            "overwrite",
            "delete",
            "delete_rows",
            "delete_partitions",
            "compact",
            "log_compact",
            "cluster",
            "clean",
            "archive",
            "rollback_failed_writes",
            "run_services",
            "schedule",
            "savepoint",
            "delete_savepoint",
            "restore",
            "rollback",
            "create_index",
            "drop_index",
            "reshard",
            "reopen",
        )
    },
}
