"""Compares what a filter finds in a table with what DuckDB finds in the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

import lakebed

from .predicates import Predicates, Sides
from .values import Rows, some_rows

PER_TABLE = 100
"""Predicates that are put to one table."""
_WITHOUT = {"hoodie.metadata.enable": "false"}


@dataclass(frozen=True)
class Difference:
    """A predicate for which a table gives other rows than DuckDB, or none at all."""

    seed: int
    reader: str
    ours: str
    theirs: str
    values: tuple[object, ...]
    what: str

    def __str__(self) -> str:
        found = (
            f"seed {self.seed}, {self.reader}: {self.what}",
            f"  where:  {self.ours}",
            f"  duckdb: {self.theirs} with {self.values!r}",
        )
        return "\n".join(found)


def compare(seed: int, count: int, folder: Path) -> Iterator[Difference]:
    """Puts `count` predicates to a table of its own; both follow from the seed."""
    chance = random.Random(seed)
    rows = some_rows(chance, chance.randint(20, 60))
    table = _make_table(chance, rows, folder / str(seed))
    readers = {
        "with statistics": table,
        "without statistics": lakebed.open_table(folder / str(seed), options=_WITHOUT),
    }
    judge = duckdb.connect()
    judge.register("rows", _for_duckdb(rows.table))
    make = Predicates(chance, rows)
    for _ in range(count):
        sides = make.condition()
        expected = _expected(judge, sides)
        for reader, of in readers.items():
            found = _found(of, sides.ours)
            if found != expected:
                yield Difference(seed, reader, sides.ours, sides.theirs, sides.values, _told(found, expected))


def _make_table(chance: random.Random, rows: Rows, path: Path) -> lakebed.Table:
    """The rows in a table of several files and commits, some of them updated since, so that its logs have them."""
    kind = chance.choice(("cow", "mor"))
    indexes = chance.choice(((), ("record",), ("record", "bloom"), ("bloom",), ("record_partitioned",)))
    table = lakebed.create_table(
        path,
        schema=rows.table.schema,
        key="id",
        partition_by=chance.choice((None, "part")),
        table_type=kind,
        indexes=indexes,
        options={"hoodie.datasource.write.partitionpath.urlencode": "true"},
    )
    size = chance.choice((5, 9, 20))
    for start in range(0, rows.table.num_rows, size):
        table.bulk_insert(_changed(chance, rows.table.slice(start, size)))
    table.upsert(rows.table)
    if chance.random() < 0.3:
        table.services.compact() if kind == "mor" else table.services.cluster(order_by=["dbl"])
    return table


def _changed(chance: random.Random, rows: pa.Table) -> pa.Table:
    """The rows as they were before: other values in columns that neither key nor path are made of."""
    order = [*range(rows.num_rows)]
    chance.shuffle(order)
    columns = [rows[name] if name in ("id", "part") else rows[name].take(order) for name in rows.column_names]
    return pa.table(columns, schema=rows.schema)


def _for_duckdb(rows: pa.Table) -> pa.Table:
    """Times without their zone, which is UTC: so DuckDB needs no time zones."""
    at = rows.schema.get_field_index("moment")
    return rows.set_column(at, "moment", rows["moment"].cast(pa.timestamp("us")))


def _expected(judge: duckdb.DuckDBPyConnection, sides: Sides) -> list[str]:
    return sorted(key for (key,) in judge.execute(f"SELECT id FROM rows WHERE {sides.theirs}", sides.values).fetchall())


def _found(table: lakebed.Table, where: str) -> list[str] | str:
    try:
        return sorted(table.to_arrow(columns=["id"], where=where)["id"].to_pylist())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _told(found: list[str] | str, expected: list[str]) -> str:
    if isinstance(found, str):
        return found
    return f"missing {sorted({*expected} - {*found})[:5]!r}, too many {sorted({*found} - {*expected})[:5]!r}"
