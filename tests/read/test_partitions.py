from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.filter.keys import partition_values, typed_partition_values
from lakebed.model.config import TableConfig


def config(fields: str, **properties: str) -> TableConfig:
    base = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9"}
    spelled = {f"hoodie.datasource.write.{key}": value for key, value in properties.items()}
    return TableConfig(
        {**base, "hoodie.table.partition.fields": fields, "hoodie.table.keygenerator.type": "COMPLEX", **spelled}
    )


HIVE = {"hive_style_partitioning": "true"}
ENCODED = {"partitionpath.urlencode": "true"}


@pytest.mark.parametrize(
    ("path", "fields", "properties", "expected"),
    [
        ("us", "region", {}, {"region": "us"}),
        ("region=us", "region", HIVE, {"region": "us"}),
        ("2024/01/02", "day", {}, {"day": "2024/01/02"}),
        ("us/n1", "region,name", {}, {"region": "us", "name": "n1"}),
        ("region=us/name=n1", "region,name", HIVE, {"region": "us", "name": "n1"}),
        ("a%2Fb%20c", "region", ENCODED, {"region": "a/b c"}),
        ("a%2Fb", "region", {}, {"region": "a%2Fb"}),
        ("__HIVE_DEFAULT_PARTITION__", "region", {}, {"region": None}),
        ("default", "region", {}, {"region": "default"}),
        ("us/n1/extra", "region,name", {}, {}),
        ("", "", {}, {}),
    ],
)
def test_values_in_paths(path: str, fields: str, properties: dict[str, str], expected: dict[str, str | None]) -> None:
    assert partition_values(path, config(fields, **properties)) == expected


def test_values_in_the_columns_type() -> None:
    schema = pa.schema([("d", pa.date32()), ("n", pa.int32()), ("x", pa.float64())])
    values = typed_partition_values(["2024-01-02/7/0.5", "2024-01-03/8/1.5"], config("d,n,x"), schema)
    assert values["n"].to_pylist() == [7, 8]
    assert [str(day) for day in values["d"].to_pylist()] == ["2024-01-02", "2024-01-03"]
    assert "x" not in values  # Floats have several spellings: nothing is concluded from them.


def test_text_that_does_not_convert_tells_nothing() -> None:
    assert typed_partition_values(["soon"], config("d"), pa.schema([("d", pa.date32())])) == {}


def test_formatted_paths_tell_nothing() -> None:
    formatted = TableConfig({**config("ts").properties, "hoodie.table.keygenerator.type": "TIMESTAMP"})
    assert typed_partition_values(["2024"], formatted, pa.schema([("ts", pa.int64())])) == {}
