"""Partition paths and configurations that both ways of reading must understand alike."""

from __future__ import annotations

from lakebed.model.config import TableConfig


def _config(fields: str, **properties: str) -> TableConfig:
    base = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.version": "9"}
    spelled = {f"hoodie.datasource.write.{key}": value for key, value in properties.items()}
    return TableConfig(
        {**base, "hoodie.table.partition.fields": fields, "hoodie.table.keygenerator.type": "COMPLEX", **spelled}
    )


_HIVE = {"hive_style_partitioning": "true"}
_ENCODED = {"partitionpath.urlencode": "true"}
CONFIGS = [
    _config(fields, **properties)
    for fields in ("region", "n", "d", "region,n")
    for properties in ({}, _HIVE, _ENCODED, {**_HIVE, **_ENCODED})
]
PATHS = (
    "us",
    "region=us",
    "7",
    "n=7",
    "2024-01-02",
    "d=2024-01-02",
    "us/7",
    "region=us/n=7",
    "a%2Fb%20c+d",
    "region=a%2Fb%20c+d",
    "__HIVE_DEFAULT_PARTITION__",
    "region=__HIVE_DEFAULT_PARTITION__/n=7",
    "it's",
    "ü中",
    "a/b/c",
)
