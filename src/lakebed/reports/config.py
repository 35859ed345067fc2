"""The configuration of a table as a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.api import Table


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """What a table's properties mean, and the properties themselves, sorted by key."""

    table: str
    table_type: str
    table_version: int
    timeline_layout: int
    timeline_timezone: str
    base_file_format: str
    key_fields: tuple[str, ...]
    key_generator: str
    partition_fields: tuple[str, ...]
    hive_style_partitioning: bool
    ordering_fields: tuple[str, ...]
    merge_mode: str
    custom_merging: str
    has_meta_columns: bool
    metadata_partitions: tuple[str, ...]
    metadata_partitions_inflight: tuple[str, ...]
    properties: Mapping[str, str]


def config_report(table: Table) -> ConfigReport:
    """The table's properties and what follows from them."""
    config = table.config
    return ConfigReport(
        table=config.name,
        table_type=str(config.table_type),
        table_version=config.version,
        timeline_layout=config.timeline_layout,
        timeline_timezone=config.timeline_timezone,
        base_file_format=config.base_file_format,
        key_fields=config.key_fields,
        key_generator=config.key_generator,
        partition_fields=config.partition_fields,
        hive_style_partitioning=config.hive_style_partitioning,
        ordering_fields=config.ordering_fields,
        merge_mode=str(config.merge_mode),
        custom_merging=config.custom_merging,
        has_meta_columns=config.has_meta_columns,
        metadata_partitions=config.metadata_partitions,
        metadata_partitions_inflight=config.metadata_partitions_inflight,
        properties=dict(sorted(config.properties.items())),
    )
