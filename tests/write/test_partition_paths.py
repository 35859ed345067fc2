"""Expected paths were written by Apache Hudi 1.2.0."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.filter.keys import partition_values
from lakebed.model.config import TableConfig
from lakebed.write.rows import partition_paths as module
from lakebed.write.rows.partition_paths import PATHS, partition_paths, plan_paths
from write.configs import HIVE_STYLE, URL_ENCODED, table_config

ODD = {
    "a/b": "a%2Fb",
    "a b": "a b",
    "a=b": "a%3Db",
    "a%2Fb": "a%252Fb",
    "ü中😀": "ü中😀",
    "a:b?c#d": "a%3Ab%3Fc%23d",
    "it's": "it%27s",
    "a\\b": "a%5Cb",
    'q"x*[y]{z}^': "q%22x%2A%5By%5D%7Bz}%5E",
    "a\tb": "a%09b",
    "x.y": "x.y",
    "~a`$&+,;@!()|<>}_-": "~a`$&+,;@!()|<>}_-",
}
PLAIN = [
    "a/b",
    "2024/01/02",
    "a b",
    "a=b",
    "a%2Fb",
    "ü中😀",
    "a?b",
    "a#b",
    "it's",
    "a\\b",
    "[y]",
    "^",
    "a\tb",
    ".x",
    "  ",
]
NONE = "__HIVE_DEFAULT_PARTITION__"


def paths_of(config: TableConfig, columns: dict[str, Any], first_row: int = 0) -> list[str]:
    batch = pa.RecordBatch.from_pydict(columns)
    paths = partition_paths(batch, plan_paths(config, batch.schema), first_row=first_row)
    paths.validate(full=True)
    assert paths.type == PATHS
    assert paths.null_count == 0
    assert len(paths.dictionary) == len(set(paths.dictionary.to_pylist())), "paths are distinct"
    return paths.to_pylist()


@pytest.mark.parametrize(
    ("config", "columns", "expected"),
    [
        (table_config(), {"k": ["x", "y"]}, ["", ""]),
        (table_config("k", "st"), {"st": PLAIN}, PLAIN),
        (table_config("k", "st", **HIVE_STYLE), {"st": PLAIN}, [f"st={text}" for text in PLAIN]),
        (table_config("k", "st", **URL_ENCODED), {"st": list(ODD)}, list(ODD.values())),
        (
            table_config("k", "st", **URL_ENCODED, **HIVE_STYLE),
            {"st": list(ODD)},
            [f"st={text}" for text in ODD.values()],
        ),
        (table_config("k", "a"), {"a": ["a", None, "", "a"]}, ["a", NONE, NONE, "a"]),
        (table_config("k", "a", **URL_ENCODED), {"a": ["a", None, ""]}, ["a", NONE, NONE]),
        (table_config("k", "a", **HIVE_STYLE), {"a": ["a", None, ""]}, ["a=a", f"a={NONE}", f"a={NONE}"]),
        (
            table_config("k", "a,b", **HIVE_STYLE),
            {"a": ["a", None, "", "a", "a"], "b": ["x", "x", "x", None, ""]},
            ["a=a/b=x", f"a={NONE}/b=x", f"a={NONE}/b=x", f"a=a/b={NONE}", f"a=a/b={NONE}"],
        ),
        (
            table_config("k", "a,b"),
            {"a": ["a", None, "", "a", "a"], "b": ["x", "x", "x", None, ""]},
            ["a/x", f"{NONE}/x", f"{NONE}/x", f"a/{NONE}", f"a/{NONE}"],
        ),
        (table_config("k", "s.x", "COMPLEX", **HIVE_STYLE), {"s": [{"x": 5}]}, ["s.x=5"]),
        (table_config("k", "n"), {"n": [7, None, -7000000000]}, ["7", NONE, "-7000000000"]),
        (table_config("k", "b"), {"b": [True, False]}, ["true", "false"]),
        (table_config("k", "f"), {"f": [1.5, 1e10, 1e-5]}, ["1.5", "1.0E10", "1.0E-5"]),
        (table_config("k", "d"), {"d": pa.array([Decimal("1E-10")], pa.decimal128(38, 10))}, ["1E-10"]),
        (table_config("k", "d"), {"d": [date(2024, 1, 2), date(1, 1, 1)]}, ["2024-01-02", "0001-01-01"]),
        (table_config("k", "a"), {"a": pa.array([], pa.string())}, []),
    ],
)
def test_paths_are_those_of_apache_hudi(config: TableConfig, columns: dict[str, Any], expected: list[str]) -> None:
    assert paths_of(config, columns) == expected


# Apache Hudi 1.2.0 loses rows with these values, or writes them outside the table's folder; with a colon it fails.
@pytest.mark.parametrize(
    "value", ["..", "../x", "a/../b", ".", "a/./b", "/abs", "a//b", "a/", ".hoodie", ".hoodie/x", "\0"]
)
def test_values_that_leave_their_folder_are_refused(value: str) -> None:
    with pytest.raises(InvalidInputError, match=r"row 11 is for .*no folder of its own") as error:
        paths_of(table_config("k", "a"), {"a": ["fine", value, value]}, first_row=10)
    assert "urlencode" in error.value.hint


@pytest.mark.parametrize("value", ["..", ".", ".hoodie"])
def test_dots_are_not_encoded_and_refused_even_so(value: str) -> None:
    with pytest.raises(InvalidInputError, match="no folder of its own"):
        paths_of(table_config("k", "a", **URL_ENCODED), {"a": [value]})
    assert paths_of(table_config("k", "a", **HIVE_STYLE), {"a": [value]}) == [f"a={value}"]


def test_a_colon_needs_encoding() -> None:
    for style in ({}, HIVE_STYLE):
        with pytest.raises(InvalidInputError, match=r"row 0 .*colon"):
            paths_of(table_config("k", "a", **style), {"a": ["x:y"]})


def test_a_slash_among_several_columns_needs_encoding() -> None:
    columns = {"a": ["x", "x/y"], "b": ["z", "z"]}
    with pytest.raises(InvalidInputError, match=r"row 1 is for 'x/y'.*looks like several"):
        paths_of(table_config("k", "a,b"), columns)
    assert paths_of(table_config("k", "a,b", **URL_ENCODED), columns) == ["x/z", "x%2Fy/z"]


# Apache Hudi 1.2.0 writes such paths and reads other values back: 1970-01-01 for every time.
@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.int32())])
def test_columns_that_do_not_survive_as_folders_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="partition column 'a'"):
        paths_of(table_config("k", "a"), {"a": pa.nulls(1, kind)})


def test_missing_columns_and_other_conventions_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="lack the partition column 'a'"):
        paths_of(table_config("k", "a"), {"b": [1]})
    slashed = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
    with pytest.raises(UnsupportedTableError, match="slashes"):
        paths_of(table_config("k", "a", **slashed), {"a": ["2024-01-02"]})
    extractor = {
        "hoodie.table.partition_extractor_class": "org.apache.hudi.hive.SlashEncodedDayPartitionValueExtractor"
    }
    with pytest.raises(UnsupportedTableError, match="slashes"):
        paths_of(table_config("k", "a", **extractor), {"a": [date(2024, 1, 2)]})
    assert paths_of(table_config("k", "a", **extractor), {"a": ["2024/01/02"]}) == ["2024/01/02"]
    with pytest.raises(UnsupportedTableError, match="CUSTOM"):
        paths_of(table_config("k", "a:SIMPLE", "CUSTOM"), {"a": ["x"]})


TEXTS = st.text(max_size=6) | st.sampled_from([*ODD, *PLAIN])


@given(
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_the_reader_finds_the_values_in_the_path(fields: int, hive: bool, encoded: bool, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[st.none() | TEXTS] * fields), min_size=1, max_size=6))
    names = [f"p{number}" for number in range(fields)]
    style = {**(HIVE_STYLE if hive else {}), **(URL_ENCODED if encoded else {})}
    config = table_config("k", ",".join(names), "COMPLEX", **style)
    columns = {name: pa.array([row[at] for row in rows], pa.string()) for at, name in enumerate(names)}
    try:
        paths = paths_of(config, columns)
    except InvalidInputError:
        assume(False)
    for path, row in zip(paths, rows, strict=True):
        assert not {"", ".", ".."} & {*path.split("/")}
        expected = {name: None if value in ("", NONE) else value for name, value in zip(names, row, strict=True)}
        assert partition_values(path, config) == expected


@pytest.mark.parametrize("few", [3, 1000])
@given(values=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=40))
def test_values_are_made_distinct_as_arrow_does(few: int, values: list[str]) -> None:
    """Also where they are too many for compiled code, and where they begin in the middle of an array."""
    texts = pa.array(["x", *values], pa.string())[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_PATHS", few)
        found = module._made_distinct(texts)
    found.validate(full=True)
    assert found.equals(texts.dictionary_encode())
