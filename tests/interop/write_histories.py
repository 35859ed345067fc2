"""Random histories of writes from one seed, and a dict that says what a table holds after each of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from interop.histories import COMMIT_TIME, EVENT_TIME, Deck

REGIONS = ("us", "eu", "ap", "sa")
BASE_COLUMNS = (
    pa.field("id", pa.string()),
    pa.field("region", pa.string()),
    pa.field("ts", pa.int64()),
    pa.field("num", pa.int32()),
    pa.field("price", pa.float64()),
    pa.field("amount", pa.decimal128(10, 2)),
    pa.field("day", pa.date32()),
    pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("ok", pa.bool_()),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("place", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])),
)
Key = tuple[str, str]
Row = dict[str, Any]


@dataclass(frozen=True)
class WriteDesign:
    """What a table is like."""

    mor: bool
    partitioned: bool
    hive_style: bool = False
    merge_mode: str = EVENT_TIME
    indexes: tuple[str, ...] = ()
    fills_files: bool = True
    log_blocks: str = "avro"

    @property
    def name(self) -> str:
        """A few words for test ids."""
        parts = [
            "mor" if self.mor else "cow",
            "hive" if self.hive_style else "parts" if self.partitioned else "flat",
            "event" if self.merge_mode == EVENT_TIME else "commit",
            *self.indexes,
            *([] if self.fills_files else ["small"]),
            *([] if self.log_blocks == "avro" else [self.log_blocks]),
        ]
        return "-".join(parts)

    @property
    def has_moves(self) -> bool:
        """Whether a key is in one partition at most, and follows its row to another."""
        return self.partitioned and "record" in self.indexes

    def path_of(self, region: str) -> str:
        """The partition path of a region."""
        return "" if not self.partitioned else f"region={region}" if self.hive_style else region

    @property
    def regions(self) -> tuple[str, ...]:
        """Fewer where every insert makes a file group: readers take their time for each."""
        return REGIONS if self.fills_files else REGIONS[:2]

    @property
    def create_arguments(self) -> dict[str, Any]:
        """Arguments of create_table other than the path."""
        options = {
            "hoodie.record.merge.mode": self.merge_mode,
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
        }
        return {
            "schema": pa.schema(BASE_COLUMNS),
            "key": "id",
            "partition_by": "region" if self.partitioned else None,
            "ordering": "ts" if self.merge_mode == EVENT_TIME else None,
            "table_type": "mor" if self.mor else "cow",
            "indexes": self.indexes,
            "options": {**options, **self.write_options},
        }

    @property
    def write_options(self) -> dict[str, str]:
        """Options of every write."""
        options = {"hoodie.logfile.data.block.format": self.log_blocks}
        return options if self.fills_files else {**options, "hoodie.parquet.small.file.limit": "1"}

    @property
    def hudi_options(self) -> dict[str, str]:
        """What a writer tells Apache Hudi about the table, and no more."""
        keys = "SimpleKeyGenerator" if self.partitioned else "NonpartitionedKeyGenerator"
        options = {
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self.mor else "COPY_ON_WRITE",
            "hoodie.write.record.merge.mode": self.merge_mode,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "region" if self.partitioned else "",
            "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{keys}",
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            **{f"hoodie.{kind}.shuffle.parallelism": "2" for kind in ("upsert", "insert", "bulkinsert", "delete")},
        }
        if self.merge_mode == EVENT_TIME:
            options["hoodie.datasource.write.precombine.field"] = "ts"
        return options


@dataclass(frozen=True)
class WriteStep:
    """One write: `rows` for those that have them, else `keys` as texts or partition paths."""

    action: str
    rows: pa.Table | None = None
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        size = len(self.keys) if self.rows is None else self.rows.num_rows
        return f"{self.action}({size})"


@dataclass
class Model:
    """What the table must hold: its columns, and its rows by partition path and record key."""

    design: WriteDesign
    schema: pa.Schema
    rows: dict[Key, Row] = field(default_factory=dict)

    def copy(self) -> Model:
        """The same, for a rollback to come back to."""
        return Model(self.design, self.schema, copy.deepcopy(self.rows))

    def apply(self, step: WriteStep) -> None:
        """Does what the table's semantics say the step does."""
        if step.rows is not None and not step.action.startswith("delete"):
            self._grow(step.rows.schema)
        getattr(self, f"_{step.action}")(step)

    def key_of(self, row: Row) -> Key:
        return self.design.path_of(row["region"]), row["id"]

    def _upsert(self, step: WriteStep) -> None:
        for row in self._rows(step):
            self._put(row, {**dict.fromkeys(self.schema.names), **row})

    def _partial(self, step: WriteStep) -> None:
        for row in self._rows(step):
            self._put(row, {**self.rows.get(self.key_of(row), dict.fromkeys(self.schema.names)), **row})

    _insert = _upsert
    _bulk_insert = _upsert

    def _overwrite(self, step: WriteStep) -> None:
        paths = {self.key_of(row)[0] for row in self._rows(step)}
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in paths}
        self._upsert(step)

    def _overwrite_table(self, step: WriteStep) -> None:
        self.rows = {}
        self._upsert(step)

    def _delete_keys(self, step: WriteStep) -> None:
        self.rows = {key: row for key, row in self.rows.items() if key[1] not in step.keys}

    def _delete_rows(self, step: WriteStep) -> None:
        for row in self._rows(step):
            self.rows.pop(self.key_of(row), None)

    def _delete_partitions(self, step: WriteStep) -> None:
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in step.keys}

    def _put(self, given: Row, row: Row) -> None:
        place = self._place_of(given)
        old = self.rows.get(place)
        if old is None or self.design.merge_mode == COMMIT_TIME or given["ts"] >= old["ts"]:
            self.rows.pop(place, None)
            self.rows[self.key_of(given)] = row

    def _place_of(self, given: Row) -> Key:
        """Where the row is that a given one is to update."""
        elsewhere = (key for key in self.rows if key[1] == given["id"])
        return next(elsewhere, self.key_of(given)) if self.design.has_moves else self.key_of(given)

    def _grow(self, incoming: pa.Schema) -> None:
        known = [f.with_type(pa.int64()) if _widens(f, incoming) else f for f in self.schema]
        added = [f for f in incoming if f.name not in self.schema.names]
        self.schema = pa.schema([*known, *added])
        for row in self.rows.values():
            row.update(dict.fromkeys(f.name for f in added))

    def _rows(self, step: WriteStep) -> list[Row]:
        assert step.rows is not None
        return step.rows.to_pylist()


def _widens(known: pa.Field, incoming: pa.Schema) -> bool:
    return known.type == pa.int32() and known.name in incoming.names and incoming.field(known.name).type == pa.int64()


STEPS = (
    "upsert",
    "upsert",
    "update",
    "update",
    "late",
    "mixed",
    "delete_keys",
    "delete_rows",
    "insert",
    "bulk_insert",
    "partial",
    "partial_late",
    "overwrite",
    "rollback",
    "upsert",
    "delete_partitions",
    "mixed",
    "new_column",
    "update",
    "widen",
    "overwrite_table",
    "again",
)
ONCE = ("widen", "overwrite_table")


class WriteHistory:
    """Steps for one table, drawn so that updates and deletes hit keys that live."""

    def __init__(self, seed: int, design: WriteDesign) -> None:
        self.random = Random(f"{seed} {design.name}")
        self.design = design
        self.deck = Deck(self.random, STEPS)
        self.clock = 1000
        self.next_key = 0
        self.dead: list[tuple[str, str]] = []
        self.done: set[str] = set()
        # Where a key has both an old row and a partial update among its logs, Apache Hudi completes the update from the
        # old row, which the base file would have beaten, and does not on copy-on-write: keys get one or the other.
        self.apart = design.mor and design.merge_mode == EVENT_TIME
        self.belated: set[str] = set()
        self.patched: set[str] = set()

    def step(self, model: Model) -> WriteStep:
        """The next step for a table that holds what `model` says; `rollback` is for the caller to carry out."""
        if not model.rows:
            return WriteStep("upsert", self.table(model, self.fresh(30)))
        while True:
            name = self.deck.deal()
            if name in ONCE and name in self.done:
                continue
            self.done.add(name)
            make: Callable[[Model], WriteStep] = getattr(self, name)
            return make(model)

    def upsert(self, model: Model) -> WriteStep:
        return WriteStep("upsert", self.table(model, [*self.fresh(6), *self.some(model, 10)]))

    def update(self, model: Model) -> WriteStep:
        return WriteStep("upsert", self.table(model, self.some(model, 8)))

    def late(self, model: Model) -> WriteStep:
        """Rows older than those that the table has."""
        return WriteStep("upsert", self.late_rows(model, 6))

    def mixed(self, model: Model) -> WriteStep:
        """Old and new rows, and some keys twice."""
        old, new = self.late_rows(model, 5), self.table(model, self.some(model, 8))
        twice = self.table(model, [(row["id"], row["region"]) for row in new.to_pylist()[:3]])
        inserts = self.table(model, self.fresh(3))
        return WriteStep("upsert", pa.concat_tables([old, new, twice, inserts]))

    def move(self, model: Model) -> WriteStep:
        """Keys that live, in other regions than theirs: some newer than what the table has, one older."""
        regions = self.design.regions
        keys = [(key, self.random.choice([other for other in regions if other != r])) for key, r in self.some(model, 6)]
        rows = [self.table(model, keys[:5]), self.table(model, keys[5:], late=True), self.table(model, self.fresh(2))]
        return WriteStep("upsert", pa.concat_tables(rows))

    def again(self, model: Model) -> WriteStep:
        """Keys that were deleted."""
        keys = self.random.sample(self.dead, min(4, len(self.dead)))
        live = {key[1] for key in model.rows}
        return WriteStep("upsert", self.table(model, [key for key in keys if key[0] not in live] or self.fresh(2)))

    def insert(self, model: Model) -> WriteStep:
        return WriteStep("insert", self.table(model, self.fresh(7)))

    def bulk_insert(self, model: Model) -> WriteStep:
        return WriteStep("bulk_insert", self.table(model, self.fresh(9)))

    def partial(self, model: Model) -> WriteStep:
        columns = ["id", "region", "ts", *self.random.sample(["num", "price", "amount", "tags", "ok"], 2)]
        keys = self.some(model, 7, but=self.belated if self.apart else ())
        self.patched |= {key for key, _ in keys}
        return WriteStep("partial", self.table(model, [*keys, *self.fresh(2)]).select(columns))

    def partial_late(self, model: Model) -> WriteStep:
        rows = pa.concat_tables([self.late_rows(model, 4), self.table(model, self.fresh(1))])
        return WriteStep("partial", rows.select(["id", "region", "ts", "price"]))

    def delete_keys(self, model: Model) -> WriteStep:
        keys = [key for key, _ in self.some(model, 4)]
        self.bury(model, keys)
        return WriteStep("delete_keys", keys=(*keys, "no such key"))

    def delete_rows(self, model: Model) -> WriteStep:
        """By rows with all columns: what matters is their key and partition."""
        rows = self.table(model, self.some(model, 4))
        self.bury(model, rows["id"].to_pylist())
        return WriteStep("delete_rows", rows)

    def overwrite(self, model: Model) -> WriteStep:
        region = self.random.choice(self.design.regions)
        return WriteStep("overwrite", self.table(model, self.fresh(8, region)))

    def overwrite_table(self, model: Model) -> WriteStep:
        return WriteStep("overwrite_table", self.table(model, self.fresh(20)))

    def delete_partitions(self, model: Model) -> WriteStep:
        paths = sorted({path for path, _ in model.rows})
        if not self.design.partitioned:
            return self.delete_keys(model)
        return WriteStep("delete_partitions", keys=(self.random.choice(paths),))

    def new_column(self, model: Model) -> WriteStep:
        kind = self.random.choice([pa.string(), pa.int32(), pa.float64()])
        name = f"extra{len(model.schema) - len(BASE_COLUMNS)}"
        rows = self.table(model, [*self.some(model, 6), *self.fresh(3)])
        values = [self.value(kind) for _ in range(rows.num_rows)]
        return WriteStep("upsert", rows.append_column(pa.field(name, kind), pa.array(values, kind)))

    def widen(self, model: Model) -> WriteStep:
        rows = self.table(model, [*self.some(model, 5), *self.fresh(3)])
        place = rows.schema.get_field_index("num")
        values = pa.array([self.random.choice([5, None, 2**40, -(2**33)]) for _ in range(rows.num_rows)], pa.int64())
        return WriteStep("upsert", rows.set_column(place, pa.field("num", pa.int64()), values))

    def rollback(self, model: Model) -> WriteStep:
        return WriteStep("rollback")

    def bury(self, model: Model, keys: list[str]) -> None:
        self.dead += [(row["id"], row["region"]) for row in model.rows.values() if row["id"] in keys]

    def fresh(self, count: int, region: str | None = None) -> list[tuple[str, str]]:
        """Keys that were never used, with their regions."""
        first, self.next_key = self.next_key, self.next_key + count
        return [(f"k{i:05d}", region or self.random.choice(self.design.regions)) for i in range(first, first + count)]

    def some(self, model: Model, count: int, but: Collection[str] = ()) -> list[tuple[str, str]]:
        """Keys that live, with their regions."""
        live = sorted((row["id"], row["region"]) for row in model.rows.values() if row["id"] not in but)
        return self.random.sample(live, min(count, len(live)))

    def late_rows(self, model: Model, count: int) -> pa.Table:
        """Rows for keys that live, older than what the table has."""
        keys = self.some(model, count, but=self.patched if self.apart else ())
        self.belated |= {key for key, _ in keys}
        return self.table(model, keys, late=True)

    def table(self, model: Model, keys: list[tuple[str, str]], *, late: bool = False) -> pa.Table:
        """Rows for keys, all columns of the table, newer than any other or older."""
        self.clock += 10
        rows = [
            {
                **{f.name: self.value(f.type) for f in model.schema},
                "id": key,
                "region": region,
                "ts": self.random.randrange(900) if late else self.clock + number % 3,
            }
            for number, (key, region) in enumerate(keys)
        ]
        return pa.Table.from_pylist(rows, model.schema)

    def value(self, kind: pa.DataType) -> Any:
        """A value of a type, at times null."""
        if self.random.random() < 0.12:
            return None
        return _VALUES[kind.id](self.random)


_EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)
_VALUES: dict[int, Callable[[Random], Any]] = {
    pa.string().id: lambda random: random.choice(["red", "green", "", "é€", "a,b:c", "x" * 40]),
    pa.int32().id: lambda random: random.randrange(-100, 100),
    pa.int64().id: lambda random: random.choice([1, -1]) * random.randrange(2**50),
    pa.float64().id: lambda random: random.choice([0.0, -1.5, 1e300, random.random()]),
    pa.decimal128(10, 2).id: lambda random: Decimal(random.randrange(-(10**9), 10**9)).scaleb(-2),
    pa.date32().id: lambda random: date(1969, 12, 25) + timedelta(days=random.randrange(30_000)),
    pa.timestamp("us").id: lambda random: _EPOCH + timedelta(microseconds=random.randrange(10**12)),
    pa.bool_().id: lambda random: random.random() < 0.5,
    pa.list_(pa.string()).id: lambda random: [random.choice(["a", "b", ""]) for _ in range(random.randrange(3))],
    pa.struct([]).id: lambda random: {"x": random.randrange(9), "y": random.choice(["p", "q", None])},
}
