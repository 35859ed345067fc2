"""Table configurations for tests of the write path."""

from __future__ import annotations

from lakebed.model.config import TableConfig


def table_config(keys: str = "k", partitions: str = "", generator: str | None = None, **more: str) -> TableConfig:
    """A table's configuration; `more` has further properties."""
    if generator is None:
        parts = len([name for name in partitions.split(",") if name])
        generator = "NON_PARTITION" if not parts else "SIMPLE" if parts == 1 and "," not in keys else "COMPLEX"
    return TableConfig(
        {
            "hoodie.table.name": "t",
            "hoodie.table.type": "COPY_ON_WRITE",
            "hoodie.table.version": "9",
            "hoodie.table.recordkey.fields": keys,
            "hoodie.table.partition.fields": partitions,
            "hoodie.table.keygenerator.type": generator,
            **more,
        }
    )


HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
URL_ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
