"""Random steps: what is done to a table, as data that can be shown, done again, and left out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .model import DELETED, Model, Row, key_of, rank

ODD = (
    "it's",
    '"q"',
    "a/b",
    "/lead",
    "100%",
    "%41",
    "a b",
    " lead",
    "trail ",
    "a=b",
    "id:1",
    "a:1,b:2",
    "日本語",
    "é",
    "e\u0301",
    "🦆",
    "\ue000",
    "\uffff",
    "\U0010ffff",
    "tab\there",
    "line\nbreak",
    "\x01",
    "\x7f",
    "\\",
    "back\\slash",
    "__HIVE_DEFAULT_PARTITION__",
    "__null__",
    "__empty__",
    "null",
    ".",
    ".dot",
    "_under",
    "#hash",
    "?q&a",
    "*",
    "{x}",
    "[x]",
    "^",
    ",",
    ";",
    "$",
    "l" * 200,
    "0",
    "-1",
    "NaN",
    "\u200b",
    "\u202e",
)
_PARTITIONS = (*(text for text in ODD if text not in ("/lead", ".")), "", None, "..x", "a", "b")
_NUMBERS = (None, 0, 1, -1, 2, 7, 2**31 - 1, -(2**31))
_DOUBLES = (None, 0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 1e300)
_FLOAT_ORDERS = (0.0, -0.0, 1.0, -1.0, 2.5, float("nan"), float("inf"), float("-inf"), 7.0, None)
_INT_ORDERS = (0, 1, 2, 3, -1, -5, 7, 7, 2**40, None)


@dataclass(frozen=True)
class Setup:
    """How a table is created."""

    kind: str
    partitioned: bool
    ordering: str
    """"" for none, "int" or "float" for event time, "commit" for an ordering column that commit time overrules."""
    indexes: tuple[str, ...]
    options: dict[str, str]
    keys: tuple[str, ...]
    partitions: tuple[str | None, ...]

    @property
    def by_event_time(self) -> bool:
        return self.ordering in ("int", "float")


@dataclass(frozen=True)
class Step:
    """One call: its name and arguments."""

    verb: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(f'{name}={value!r}' for name, value in self.args.items())})"


def make_setup(chance: random.Random) -> Setup:
    """A random kind of table, with the keys and partitions that its steps are about."""
    partitioned = chance.random() < 0.6
    encoded = chance.random() < 0.7
    options = {
        "hoodie.datasource.write.partitionpath.urlencode": str(encoded).lower(),
        "hoodie.datasource.write.hive_style_partitioning": chance.choice(("true", "false")),
        "hoodie.logfile.data.block.format": chance.choice(("avro", "parquet")),
        "hoodie.parquet.small.file.limit": chance.choice(("0", "104857600")),
        "hoodie.clean.automatic": chance.choice(("true", "false")),
        "hoodie.clean.trigger.max.commits": chance.choice(("1", "3")),
        "hoodie.clean.commits.retained": chance.choice(("1", "2", "4", "10")),
        "hoodie.keep.min.commits": "5",
        "hoodie.keep.max.commits": chance.choice(("6", "9")),
    }
    kind = chance.choice(("cow", "mor"))
    if kind == "mor" and chance.random() < 0.3:
        options |= {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
    ordering = chance.choice(("", "int", "int", "float", "commit"))
    indexes = chance.choice(
        ((), (), ("record",), ("record",), ("record_partitioned",), ("record", "bloom"), ("bloom",))
    )
    if not partitioned and "record_partitioned" in indexes:
        indexes = ("record",)
    if ordering == "int" and "record" in indexes:
        options["lakebed.record.index.ordering"] = chance.choice(("off", "on", "current"))
    legal = [value for value in _PARTITIONS if _is_legal(value, encoded=encoded)]
    odd_keys = chance.sample(ODD, 6)
    return Setup(
        kind,
        partitioned,
        ordering,
        indexes,
        options,
        keys=(*odd_keys, *(f"k{number}" for number in range(8))),
        partitions=tuple(chance.sample(legal, 3)) if chance.random() < 0.8 else ("a", "a b", None),
    )


def _is_legal(value: str | None, *, encoded: bool) -> bool:
    """Whether a value can be a partition, see `partition_by`."""
    if encoded or not value:
        return True
    return not {":", "\\", "\n"} & {*value} and all(part not in ("", ".", "..") for part in value.split("/"))


class Steps:
    """Makes steps that fit what the model says of a table, from one source of chance."""

    def __init__(self, chance: random.Random, setup: Setup, model: Model) -> None:
        self._chance, self._setup, self._model = chance, setup, model

    def next(self) -> Step:
        """The next step."""
        makers: tuple[tuple[int, Callable[[], Step | None]], ...] = (
            (14, self._upsert),
            (4, self._partial),
            (3, self._marked_deletes),
            (5, self._insert),
            (4, self._delete),
            (2, self._delete_rows),
            (3, self._overwrite),
            (2, self._delete_partitions),
            (3, lambda: Step("compact")),
            (2, lambda: Step("log_compact")),
            (2, self._cluster),
            (2, lambda: Step("clean")),
            (2, lambda: Step("archive")),
            (1, lambda: Step("rollback_failed_writes")),
            (1, lambda: Step("run_services")),
            (1, lambda: Step("schedule", {"service": self._chance.choice(("compaction", "clustering", "clean"))})),
            (2, lambda: Step("savepoint")),
            (1, lambda: Step("delete_savepoint")),
            (2, lambda: Step("restore")),
            (3, lambda: Step("rollback")),
            (2, self._create_index),
            (2, self._rebuild_index),
            (1, self._drop_index),
            (1, lambda: Step("reshard", {"shards": self._chance.choice((1, 2, 5))})),
            (1, self._new_column),
            (1, self._bad_rows),
            (1, lambda: Step("reopen")),
        )
        while True:
            (make,) = self._chance.choices([maker for _, maker in makers], [weight for weight, _ in makers])
            step = make()
            if step is not None:
                return step

    def rows(self, count: int, keys: list[str] | None = None) -> list[Row]:
        """Rows with random keys, all columns of the table, and any ordering values."""
        keys = keys if keys is not None else [self._chance.choice(self._setup.keys) for _ in range(count)]
        return [self._row(key) for key in keys]

    def _row(self, key: str) -> Row:
        row: Row = {
            "id": key,
            "part": self._chance.choice(self._setup.partitions),
            "num": self._chance.choice(_NUMBERS),
            "dbl": self._chance.choice(_DOUBLES),
            "txt": self._chance.choice((None, "", self._chance.choice(ODD), f"t{self._chance.randrange(100)}")),
            "ts": self._chance.choice(_FLOAT_ORDERS if self._setup.ordering == "float" else _INT_ORDERS),
        }
        for name in self._model.columns:
            if name not in row:
                row[name] = self._chance.choice((None, "", "new", "日本"))
        return row

    def _timely(self, rows: list[Row]) -> list[Row]:
        """The rows, none of them older than a delete of its key: of those it depends on files which stay."""
        deletes = self._model.deletes
        for row in rows:
            key = key_of(row)
            if self._setup.by_event_time and key in deletes and rank(row["ts"]) < rank(deletes[key]):
                row["ts"] = deletes[key]
        return rows

    def _upsert(self) -> Step | None:
        rows = self._timely(self.rows(self._chance.choice((0, 1, 1, 3, 6, 12))))
        return Step("upsert", {"rows": rows})

    def _partial(self) -> Step | None:
        rows = self._timely(self.rows(self._chance.choice((1, 2, 5))))
        wanted = {"id", "part", *self._chance.sample(["num", "dbl", "txt"], self._chance.randint(0, 2))}
        wanted |= {"ts"} if self._setup.by_event_time else set()
        for row in rows:
            place = self._model.find(row)
            if self._setup.partitioned and place in self._model.rows:
                row["part"] = place[0]  # A partial update that moves a row is refused.
        return Step("partial", {"rows": [{n: v for n, v in row.items() if n in wanted} for row in rows]})

    def _marked_deletes(self) -> Step | None:
        rows = self._timely(self.rows(self._chance.choice((1, 2, 4))))
        return Step("upsert", {"rows": [{**row, DELETED: self._chance.choice((True, True, False))} for row in rows]})

    def _insert(self) -> Step | None:
        taken = {key for _, key in self._model.rows}
        # A key that is deleted in log files is in base files still, and inserts do not look for it there.
        taken |= self._model.deleted if self._setup.kind == "mor" else set()
        free = [key for key in self._setup.keys if key not in taken]
        keys = self._chance.sample(free, min(len(free), self._chance.choice((1, 2, 4))))
        return Step(self._chance.choice(("insert", "bulk_insert")), {"rows": self._timely(self.rows(0, keys))})

    def _delete(self) -> Step | None:
        return Step("delete", {"keys": [self._chance.choice((*self._setup.keys, "absent")) for _ in range(3)]})

    def _delete_rows(self) -> Step | None:
        rows = [{"id": row["id"], "part": row["part"]} for row in self.rows(3)]
        return Step("delete_rows", {"rows": rows})

    def _overwrite(self) -> Step | None:
        whole = self._chance.random() < 0.3
        rows = self.rows(self._chance.choice((1, 3, 6)))
        if self._model.is_global and not whole:  # Or a key would be in two partitions.
            rows = self._model.combine(rows)
            named = {self._model.partition_of(row) for row in rows}
            taken = {place[1] for place in self._model.rows if place[0] not in named}
            rows = [row for row in rows if key_of(row) not in taken]
        return Step("overwrite", {"rows": rows, "whole": whole}) if rows else None

    def _delete_partitions(self) -> Step | None:
        present = sorted({place[0] for place in self._model.rows}, key=str)
        if not self._setup.partitioned or not present:
            return None
        return Step(
            "delete_partitions", {"partitions": self._chance.sample(present, self._chance.randint(1, len(present)))}
        )

    def _cluster(self) -> Step | None:
        columns = self._chance.choice(([], ["num"], ["txt", "num"], ["dbl"]))
        layout = self._chance.choice(("linear", "z-order", "hilbert")) if columns else "linear"
        return Step("cluster", {"order_by": columns, "layout": layout})

    def _create_index(self) -> Step | None:
        name, kind = self._chance.choice(
            (
                ("record_index", "record"),
                ("record_index", "record"),
                ("record_index", "record_partitioned"),
                ("column_stats", "column_stats"),
                ("partition_stats", "partition_stats"),
                ("bloom_filters", "bloom"),
            )
        )
        return Step("create_index", {"name": name, "kind": kind, "rebuild": False})

    def _rebuild_index(self) -> Step | None:
        name = self._chance.choice(("record_index", "column_stats", "partition_stats", "bloom_filters", "files"))
        return Step("create_index", {"name": name, "kind": None, "rebuild": True})

    def _drop_index(self) -> Step | None:
        name = self._chance.choice(("record_index", "column_stats", "partition_stats", "bloom_filters", "files"))
        return Step("drop_index", {"name": name})

    def _new_column(self) -> Step | None:
        if len(self._model.columns) > 7:
            return None
        name = f"extra{len(self._model.columns)}"
        rows = self._timely(self.rows(2))
        return Step("upsert", {"rows": [{**row, name: "first"} for row in rows]}) if rows else None

    def _bad_rows(self) -> Step | None:
        row = self._row("k0")
        if self._setup.by_event_time:  # A row that is late is left out, whatever is wrong with its partition.
            row["ts"] = max(_INT_ORDERS if self._setup.ordering == "int" else _FLOAT_ORDERS, key=rank)
        bad: list[Row] = [{"id": None}, {"id": ""}]
        if self._setup.partitioned:
            bad.append({"part": "p" * 400})
            is_encoded = self._setup.options["hoodie.datasource.write.partitionpath.urlencode"] == "true"
            bad += [] if is_encoded else [{"part": "two\nlines"}]
            is_hive = self._setup.options["hoodie.datasource.write.hive_style_partitioning"] == "true"
            bad += [] if is_hive else [{"part": ".."}, {"part": "."}, {"part": ".hoodie"}]
        return Step("refused", {"rows": [{**row, **self._chance.choice(bad)}]})
