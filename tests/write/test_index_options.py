"""Options that ask for indexes: of which kind, with how many shards, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.source.writer import LakebedWriter, plan_save
from lakebed.write.rows import input as write_input

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
ENABLE = "hoodie.metadata.global.record.level.index.enable"
ENABLE_OLD = "hoodie.metadata.record.index.enable"
ENABLE_PARTITIONED = "hoodie.metadata.record.level.index.enable"
GLOBAL, OLD = (
    "hoodie.metadata.global.record.level.index.{}.filegroup.count",
    "hoodie.metadata.record.index.{}.filegroup.count",
)
EACH, EACH_OLD = (
    "hoodie.metadata.record.level.index.{}.filegroup.count",
    "hoodie.metadata.partitioned.record.index.{}.filegroup.count",
)
ABOUT = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}


def rows(*cities: str, count: int = 20) -> pa.Table:
    keys = [(f"{city}{number}", city, 1) for city in cities for number in range(count)]
    return pa.table([pa.array(column) for column in zip(*keys, strict=True)], schema=SCHEMA)


def create(path: Path, *indexes: str, options: dict[str, str] | None = None) -> lakebed.Table:
    about = {"schema": SCHEMA, "key": "id", "partition_by": "city", "ordering": "ts"}
    return lakebed.create_table(path, **about, table_type="mor", indexes=indexes, options=options)


def save(path: Path, given: pa.Table, options: dict[str, str]) -> None:
    writer = LakebedWriter(plan_save({**ABOUT, **options, "path": str(path)}, SCHEMA, overwrite=False))
    writer.commit([writer.write(iter(given.to_batches()))])


def shards(table: lakebed.Table) -> int:
    return {info.name: info.shards for info in table.indexes.list()}["record_index"]


def kinds(table: lakebed.Table) -> dict[str, str]:
    return {info.name: info.kind for info in table.indexes.list()}


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 10),
        ({GLOBAL.format("min"): "3"}, 3),
        ({OLD.format("min"): "3"}, 3),
        ({GLOBAL.format("max"): "4"}, 4),
        ({OLD.format("max"): "4"}, 4),
        ({OLD.format("min"): "5", GLOBAL.format("min"): "6"}, 6),
        ({GLOBAL.format("min"): "12", GLOBAL.format("max"): "12"}, 12),
        ({EACH.format("min"): "3"}, 10),
    ],
)
def test_a_new_global_index_has_the_shards_that_are_asked_for(
    tmp_path: Path, options: dict[str, str], count: int
) -> None:
    table = create(tmp_path / "t", "record", options=options)
    assert shards(table) == count
    table.upsert(rows("oslo", "lima"))
    assert shards(table) == count
    assert table.lookup(["oslo3"]).num_rows == 1
    save(tmp_path / "s", rows("oslo"), {**options, ENABLE: "true"})
    assert shards(lakebed.open_table(tmp_path / "s")) == count


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 1),
        ({EACH.format("min"): "3"}, 3),
        ({EACH_OLD.format("min"): "3"}, 3),
        ({EACH.format("min"): "16"}, 16),
        ({EACH.format("min"): "3", EACH.format("max"): "3"}, 3),
        ({GLOBAL.format("min"): "3"}, 1),
    ],
)
@pytest.mark.parametrize("is_large", [False, True])
def test_new_data_partitions_have_the_shards_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], count: int, is_large: bool
) -> None:
    if is_large:
        monkeypatch.setattr(write_input, "_READER_BYTES", -1)
    table = create(tmp_path / "t", "record_partitioned", options=options)
    for number, cities in enumerate([("oslo", "lima"), ("oslo", "rome")]):
        given = rows(*cities)
        table.upsert(given.to_reader() if is_large else given)
        assert shards(table) == count * (2 + number)
    later = lakebed.open_table(tmp_path / "t")
    later.upsert(rows("oslo", "bern"))
    assert shards(later) == 3 * count + 1  # As that writer says, which is by default one.
    assert later.indexes.validate("record_index").is_sound
    assert later.lookup(["rome7", "bern0"]).num_rows == 2


def test_limits_that_contradict_each_other_make_no_table(tmp_path: Path) -> None:
    options = {GLOBAL.format("min"): "8", GLOBAL.format("max"): "4"}
    with pytest.raises(InvalidInputError, match="at least 8 shards and at most 4"):
        create(tmp_path / "t", "record", options=options)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("record", "global"),
        ("record_index", "global"),
        ("RECORD_LEVEL", "global"),
        ("GLOBAL_RECORD_LEVEL_INDEX", "global"),
        ("RECORD_LEVEL_INDEX", "partitioned"),
        ("record_partitioned", "partitioned"),
    ],
)
def test_a_record_index_by_any_of_its_names(tmp_path: Path, name: str, kind: str) -> None:
    assert kinds(create(tmp_path / "t", name))["record_index"] == f"record_index ({kind})"
    table = create(tmp_path / "later")
    table.upsert(rows("oslo"))
    assert table.indexes.create("record_index", kind=name).kind == f"record_index ({kind})"
    table.indexes.drop("record_index")
    assert table.indexes.create(name).kind == f"record_index ({kind})"


def test_bloom_filters_by_the_name_of_their_partition(tmp_path: Path) -> None:
    assert "bloom_filters" in kinds(create(tmp_path / "t", "bloom_filters"))


def test_a_name_that_is_none_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no index 'recrod'") as caught:
        create(tmp_path / "t", "recrod")
    assert "record" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"hoodie.index.type": "RECORD_INDEX"}, "global"),
        ({"hoodie.index.type": "RECORD_LEVEL"}, "global"),
        ({"hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX"}, "global"),
        ({"hoodie.index.type": "RECORD_LEVEL_INDEX"}, "partitioned"),
        ({"hoodie.index.type": "RECORD_LEVEL", ENABLE_PARTITIONED: "true"}, "partitioned"),
        ({ENABLE: "true"}, "global"),
        ({ENABLE_OLD: "true"}, "global"),
        ({ENABLE_PARTITIONED: "true"}, "partitioned"),
    ],
)
def test_a_new_table_has_the_index_that_options_ask_for(tmp_path: Path, options: dict[str, str], kind: str) -> None:
    table = create(tmp_path / "t", options=options)
    assert kinds(table)["record_index"] == f"record_index ({kind})"
    table.upsert(rows("oslo"))
    save(tmp_path / "s", rows("oslo"), options)
    assert kinds(lakebed.open_table(tmp_path / "s"))["record_index"] == f"record_index ({kind})"


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"hoodie.index.type": "RECORD_LEVEL"}, "indexes.create('record_index')"),
        ({"hoodie.index.type": "record_index"}, "indexes.create('record_index')"),
        ({"hoodie.index.type": "RECORD_LEVEL_INDEX"}, "indexes.create('record_index', kind='record_partitioned')"),
        ({ENABLE: "true"}, "indexes.create('record_index')"),
        ({ENABLE_OLD: "true"}, "indexes.create('record_index')"),
        ({ENABLE_PARTITIONED: "true"}, "indexes.create('record_index', kind='record_partitioned')"),
        ({"hoodie.metadata.index.bloom.filter.enable": "true"}, "indexes.create('bloom_filters')"),
    ],
)
def test_an_index_that_is_not_there_is_said_how_to_build(tmp_path: Path, options: dict[str, str], call: str) -> None:
    """Building reads all rows, and writers wait as long: no write begins that unasked."""
    path = tmp_path / "t"
    create(path).upsert(rows("oslo"))
    before = sorted(path.rglob("*"))
    table = lakebed.open_table(path, options=options)
    assert table.to_arrow().num_rows == 20  # A read makes do.
    for write in (table.upsert, table.insert, table.bulk_insert, table.overwrite):
        with pytest.raises(InvalidInputError) as caught:
            write(rows("lima"))
        assert call in caught.value.hint
    with pytest.raises(InvalidInputError) as caught:
        plan_save({**ABOUT, **options, "path": str(path)}, SCHEMA, overwrite=False)
    assert call in caught.value.hint
    assert sorted(path.rglob("*")) == before
    eval(call, {"indexes": lakebed.open_table(path).indexes})
    assert table.upsert(rows("lima")).inserted == 20


def test_an_index_type_that_says_more_than_is_so_is_refused(tmp_path: Path) -> None:
    for name, asked in (("record", "RECORD_LEVEL_INDEX"), ("record_partitioned", "GLOBAL_RECORD_LEVEL_INDEX")):
        create(tmp_path / name, name).upsert(rows("oslo"))
        table = lakebed.open_table(tmp_path / name, options={"hoodie.index.type": asked})
        with pytest.raises(InvalidInputError, match=r"hoodie\.index\.type asks for"):
            table.upsert(rows("oslo"))
        for any_kind in ("RECORD_LEVEL", "RECORD_INDEX"):
            options = {"hoodie.index.type": any_kind}
            assert lakebed.open_table(tmp_path / name, options=options).upsert(rows("oslo")).updated == 20


def test_no_index_that_every_table_has_can_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"column\.stats\.enable=false is not supported"):
        create(tmp_path / "t", options={"hoodie.metadata.index.column.stats.enable": "false"})
    with pytest.raises(InvalidInputError, match=r"record\.index\.enable=false is not supported"):
        create(tmp_path / "t", "record", options={ENABLE_OLD: "false"})
    with pytest.raises(InvalidInputError, match="one record index"):
        create(tmp_path / "t", "record", "record_partitioned")
    assert not (tmp_path / "t").exists()
