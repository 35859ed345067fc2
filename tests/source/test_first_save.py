"""The first save to a path: it makes a table and writes to it, or leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.source import writer as save_writer
from lakebed.source.writer import LakebedWriter, plan_save
from lakebed.write import create

KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
ORDERING = "hoodie.table.ordering.fields"
OPTIONS = {"hoodie.table.name": "trips", KEY: "id", PARTITION: "city"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
    ]
)


def rows(*keys: str | None, city: str = "oslo") -> pa.Table:
    made = [{"id": key, "city": city, "n": number, "tags": ["a"]} for number, key in enumerate(keys)]
    return pa.Table.from_pylist(made, pa.schema([field.with_nullable(field.name == "id") for field in SCHEMA]))


def save(path: Path, given: pa.Table, options: Mapping[str, str] | None = None) -> None:
    """A save as Spark does it: what was staged is dropped if the commit fails."""
    asked = {**OPTIONS, **(options or {}), "path": str(path)}
    writer = LakebedWriter(plan_save(asked, given.schema, overwrite=False))
    try:
        writer.commit([writer.write(iter(given.to_batches()))])
    except BaseException:
        writer.abort([])
        raise


def files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def keys_in(path: Path) -> list[str]:
    return sorted(lakebed.open_table(path).to_arrow(columns=["id"])["id"].to_pylist())


REFUSED: dict[str, tuple[pa.Table, dict[str, str], str]] = {
    "null key": (rows("a", None), {}, "row 1 has no key: column 'id' is null or empty"),
    "empty key": (rows("a", ""), {}, "row 1 has no key"),
    "partition that climbs out": (rows("a", city=".."), {}, r"\.\."),
    "no such key": (rows("a"), {KEY: "uuid"}, f"the option {KEY} names 'uuid', which is not a column"),
    "no such partition": (rows("a"), {PARTITION: "town"}, f"the option {PARTITION} names 'town'"),
    "no such ordering": (rows("a"), {ORDERING: "ts"}, f"the option {ORDERING} names 'ts'"),
    "key of lists": (rows("a"), {KEY: "tags"}, "the key column 'tags' is of type"),
    "no ordering": (rows("a"), {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}, "needs a column to order by"),
    "unsupported option": (rows("a"), {"hoodie.table.cdc.enabled": "true"}, "cdc.enabled=true is not supported"),
    "option of services": (rows("a"), {"hoodie.clean.policy": "SOMETIMES"}, "hoodie.clean.policy"),
    "bad operation": (rows("a"), {"hoodie.datasource.write.operation": "bootstrap"}, "bootstrap is not supported"),
    "two record indexes": (
        rows("a"),
        {"hoodie.metadata.record.index.enable": "true", "hoodie.metadata.record.level.index.enable": "true"},
        "record index",
    ),
    "lock": (rows("a"), {"hoodie.write.lock.provider": "com.acme.Lock"}, "com.acme.Lock is not supported"),
    "type": (rows("a").append_column("t", pa.array([1], pa.time64("us"))), {}, "column 't'"),
    "name": (rows("a").append_column("1t", pa.array([1])), {}, "1t"),
}


@pytest.mark.parametrize(("given", "options", "says"), REFUSED.values(), ids=REFUSED)
def test_a_first_save_that_is_refused_leaves_nothing(tmp_path: Path, given: pa.Table, options, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as error:
        save(tmp_path, given, options)
    assert files(tmp_path) == []
    assert "table trips" not in str(error.value), "there is none yet"
    save(tmp_path, rows("a", "b"), {PARTITION: "n", KEY: "city,id"})
    assert keys_in(tmp_path) == ["a", "b"]


@pytest.mark.parametrize(
    ("option", "given", "near"),
    [(KEY, "ID", "id"), (PARTITION, "City", "city"), (ORDERING, "N", "n"), (KEY, "ids", "id")],
)
def test_the_nearest_column_is_named(tmp_path: Path, option: str, given: str, near: str) -> None:
    with pytest.raises(InvalidInputError, match=f"the option {option} names '{given}', which is not a column") as error:
        save(tmp_path, rows("a"), {option: given})
    assert error.value.hint.startswith(f"did you mean {near!r}?")
    assert "id, city, n, tags" in error.value.hint


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        (
            {PARTITION: "", "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator"},
            "keygenerator.class is SIMPLE, but the other options make it NON_PARTITION",
            "leave the option out",
        ),
        ({"hoodie.metadata.enable": "false"}, "new tables have the index files", "leave the option out"),
        (
            {"hoodie.metadata.record.index.enable": "true", "hoodie.metadata.record.level.index.enable": "true"},
            "a table has one record index",
            "ask for",
        ),
        ({"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}, "order by", f"the option {ORDERING}"),
        ({KEY: ""}, "needs a record key", KEY),
    ],
)
def test_hints_for_a_new_table_name_options(tmp_path: Path, options: dict[str, str], says: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as error:
        save(tmp_path, rows("a"), options)
    assert hint in error.value.hint
    assert "table trips" not in str(error.value)
    assert files(tmp_path) == []


def test_a_folder_with_something_else_is_refused_before_rows_are_staged(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match=r"is not empty: it has notes\.txt"):
        plan_save({**OPTIONS, "path": str(tmp_path)}, SCHEMA, overwrite=False)
    assert files(tmp_path) == ["notes.txt"]


def test_columns_are_nullable_whatever_spark_calls_them(tmp_path: Path) -> None:
    """Literals, ranges and the like are never null in one frame; the next one may read the same column from a file."""
    given = pa.Table.from_pylist(rows("a").to_pylist(), SCHEMA)
    save(tmp_path, given)
    table = lakebed.open_table(tmp_path)
    assert all(field.nullable for field in table.schema)
    assert table.schema.field("tags").type.value_field.nullable
    save(tmp_path, pa.Table.from_pylist([{"id": "b", "city": "oslo", "n": None, "tags": [None]}], nullable(SCHEMA)))
    save(tmp_path, given)
    assert table.to_arrow(columns=["n", "tags"]).sort_by("n").to_pydict() == {"n": [0, None], "tags": [["a"], [None]]}
    assert all(field.nullable for field in table.schema)
    own = lakebed.create_table(tmp_path / "own", schema=SCHEMA, key="id")
    assert [field.nullable for field in own.schema][-4:] == [False] * 4, "this schema the user has made"


def nullable(schema: pa.Schema) -> pa.Schema:
    kinds = [pa.list_(pa.string()) if pa.types.is_list(field.type) else field.type for field in schema]
    return pa.schema([pa.field(field.name, kind) for field, kind in zip(schema, kinds, strict=True)])


STEPS = ("bootstrap_empty", "metadata_properties", "encode_commit", "encode_index_definitions", "encode_config")


@pytest.mark.parametrize("step", STEPS)
def test_a_table_that_was_half_made_is_made_anew(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash in the middle, as the power failing: nobody tidies up. The next try may want another table."""

    def crash(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(create, step, crash)
        broken.setattr(save_writer, "remove_unused", lambda *_: None, raising=False)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, rows("a"))
    assert not (tmp_path / ".hoodie/hoodie.properties").exists()
    save(tmp_path, rows("b"), {KEY: "id,n", "hoodie.metadata.record.index.enable": "true"})
    assert keys_in(tmp_path) == ["b"]
    table = lakebed.open_table(tmp_path)
    assert table.config.key_fields == ("id", "n")
    assert not [finding for finding in table.doctor() if finding.blocks]


def test_an_interrupt_between_table_and_rows_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(save_writer, "take_over", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, rows("a"))
    assert [name for name in files(tmp_path) if not name.startswith(".hoodie/.locks/")] == []
    save(tmp_path, rows("b"), {KEY: "n"})
    assert keys_in(tmp_path) == ["b"]


def test_a_table_that_others_use_already_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that make it at once, one is interrupted; the other has written meanwhile."""

    def interrupt(*_: object, **__: object) -> Any:
        lakebed.open_table(tmp_path).upsert(rows("other"))
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(save_writer, "take_over", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, rows("a"))
    assert keys_in(tmp_path) == ["other"]


def test_a_table_that_another_save_took_away_again_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when this save looked, and is gone when it writes: the save that had made it has failed."""
    lakebed.create_table(
        tmp_path, schema=nullable(SCHEMA), key="id", partition_by="city", options={"hoodie.table.name": "trips"}
    )
    original, seen = save_writer.take_over, []

    def take_over(*given: Any) -> Any:
        if not seen:
            (tmp_path / ".hoodie/hoodie.properties").unlink()
        seen.append(given)
        return original(*given)

    monkeypatch.setattr(save_writer, "take_over", take_over)
    save(tmp_path, rows("a"))
    assert len(seen) == 2
    assert keys_in(tmp_path) == ["a"]


def save_in_process(path: str, key: str) -> str:
    try:
        save(Path(path), rows(key))
    except lakebed.WriteConflictError:  # Both made new files for the same keys' partition: told, and run again.
        save(Path(path), rows(key))
    return key


def test_processes_that_make_a_table_at_once(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        saved = list(pool.map(save_in_process, [str(tmp_path)] * 3, "abc"))
    assert keys_in(tmp_path) == saved == ["a", "b", "c"]


@pytest.mark.parametrize(
    "options",
    [
        {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": "earliest"},
        {"hoodie.schema.on.read.enable": "true"},
        {"hoodie.clean.policy": "SOMETIMES"},
        {"hoodie.table.cdc.enabled": "true"},
        {"hoodie.write.lock.provider": "com.acme.Lock"},
    ],
)
def test_create_table_checks_all_options_first(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        lakebed.create_table(tmp_path / "t", schema=SCHEMA, key="id", options=options)
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()
