"""Log files of many rows, whose Parquet blocks compiled code encodes: all readers see them, and Apache Hudi goes on."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from interop.write_peer import STRICT_SKIPPING, index_differences, readers, running_peer
from lakebed.api import create_table, open_table
from lakebed.write.files.log_blocks import LogLot

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("num", pa.int32()),
        ("price", pa.float64()),
        ("weight", pa.float32()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("ok", pa.bool_()),
        ("word", pa.string()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("none", pa.string()),
    ]
)
HUDI = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}


def rows(seed: int, numbers: range, ts: int) -> pa.Table:
    random = Random(seed)
    some = lambda value: None if random.random() < 0.2 else value  # noqa: E731
    return pa.Table.from_pylist([row(random, some, number, ts) for number in numbers], SCHEMA)


def row(random: Random, some: Any, number: int, ts: int) -> dict[str, Any]:
    return {
        "id": f"k{number:06}",
        "region": ("eu", "us", "ap")[number % 3],
        "ts": ts,
        "num": some(random.randrange(-1000, 1000)),
        "price": some(random.random() * 100),
        "weight": some(random.randrange(100) / 4),
        "amount": some(Decimal(random.randrange(-(10**9), 10**9)) / 100),
        "day": some(date(1960, 1, 1) + timedelta(days=random.randrange(40_000))),
        "at": some(
            datetime.combine(date(2026, 1, 1), time(), timezone.utc) + timedelta(microseconds=random.randrange(10**15))
        ),
        "ok": some(random.random() < 0.5),
        "word": some(random.choice(["amber", "birch", "çedar", ""])),
        "text": some("".join(random.choices("abcdefgh ", k=random.randrange(30)))),
        "raw": some(random.randbytes(random.randrange(6))),
        "none": None,
    }


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_all_readers_see_what_compiled_code_has_encoded(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    real = LogLot.encode
    monkeypatch.setattr(LogLot, "encode", lambda self, task, rows: encoded.append(len(rows)) or real(self, task, rows))
    peer, path = running_peer(), tmp_path / "table"
    create_table(
        path,
        schema=SCHEMA,
        key="id",
        partition_by="region",
        ordering="ts",
        table_type="mor",
        indexes=["record", "column_stats"],
    )
    table = open_table(path, options={"hoodie.parquet.compression.codec": codec})
    table.upsert(rows(1, range(6000), 1))
    model = {each["id"]: each for each in rows(1, range(6000), 1).to_pylist()}
    for turn, numbers in enumerate((range(3000, 9000), range(7500)), start=2):
        batch = rows(turn, numbers, turn)
        table.upsert(batch)
        model |= {each["id"]: each for each in batch.to_pylist()}
    assert sum(encoded) == 6000 + 7500
    check(peer, path, model)
    assert not index_differences(path)
    some = rows(9, range(2000, 2500), 9)
    peer.write(path, some, "upsert", HUDI)
    model |= {each["id"]: each for each in some.to_pylist()}
    check(peer, path, model)
    assert not index_differences(path, statistics=False)  # Apache Hudi keeps none of bytes.


def check(peer: Any, path: Path, model: dict[str, dict[str, Any]]) -> None:
    for name, read in readers(peer, path).items():
        found = {each["id"]: each for each in read().select(SCHEMA.names).to_pylist()}
        assert found.keys() == model.keys(), name
        wrong = [key for key in model if plain(found[key]) != plain(model[key])]
        assert not wrong, (name, found[wrong[0]], model[wrong[0]])
    wheres = {"num > 990": lambda row: (row["num"] or 0) > 990, "id = 'k002100'": lambda row: row["id"] == "k002100"}
    answers = peer.read_where(path, STRICT_SKIPPING, [*wheres])
    for (where, is_wanted), answer in zip(wheres.items(), answers, strict=True):
        assert {*answer["id"].to_pylist()} == {key for key, row in model.items() if is_wanted(row)}, where


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in row.items()}
