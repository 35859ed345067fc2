"""The SQL that derives columns on Spark says what `derived.py` says in process."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.filter.keys import path_constants
from lakebed.read.spark_columns import path_expression, spark_schema
from read_partition_paths import CONFIGS, PATHS

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("config", CONFIGS, ids=range(len(CONFIGS)))
def test_partition_values_from_paths(spark, config) -> None:
    schema = pa.schema([("region", pa.string()), ("n", pa.int32()), ("d", pa.date32())])
    names = [name for name in config.partition_fields if name in schema.names]
    types = {field.name: field.dataType.simpleString() for field in spark_schema(schema)}
    rows = [(path, "file", 0, None) for path in PATHS]
    frame = spark.createDataFrame(rows, "_hoodie_partition_path string, region string, n int, d date")
    for name in names:
        found = (
            frame.selectExpr(f"{path_expression(name, types[name], config)} as value").toArrow()["value"].to_pylist()
        )
        for path, value in zip(PATHS, found, strict=True):
            constants = path_constants(path, config, schema)
            if name in constants:
                assert value == constants[name][0].as_py(), (path, name)
