"""Every real table reads exactly as Apache Hudi reads it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from rows import canonical, spark_rows


@pytest.mark.parametrize("use_metadata", ["true", "false"])
def test_snapshot_is_what_hudi_reads(real_table, use_metadata: str) -> None:
    table = lakebed.open_table(real_table.path, options={"hoodie.metadata.enable": use_metadata})
    columns = [name for name, _ in real_table.schema]
    assert canonical(spark_rows(table.to_arrow(columns=columns))) == canonical(real_table.rows)


def test_schema_is_what_hudi_declares(real_table) -> None:
    table = lakebed.open_table(real_table.path)
    ours = {field.name: _spark_name(field.type) for field in table.schema}
    assert {name: ours[name] for name, _ in real_table.schema} == dict(real_table.schema)


def _spark_name(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return "timestamp" if arrow.tz else "timestamp_ntz"
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"array<{_spark_name(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"map<{_spark_name(arrow.key_type)},{_spark_name(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        return "struct<" + ",".join(f"{field.name}:{_spark_name(field.type)}" for field in arrow) + ">"
    names = {"int64": "bigint", "int32": "int", "bool": "boolean", "float": "float", "date32[day]": "date"}
    return names.get(str(arrow), str(arrow))
