"""Which tables lakebed writes to, checked before anything is written, and whether its columns stayed as they were."""

from __future__ import annotations

from lakebed.errors import UnsupportedTableError, WriteConflictError
from lakebed.format.avro.schema import arrow_schema
from lakebed.metadata import MetadataTable
from lakebed.model.config import TableConfig
from lakebed.read.rules import merge_rules
from lakebed.table import TableState
from lakebed.transaction.section import Section

_WRITTEN_VERSION = 9
_KEPT_PARTITIONS = ("files", "column_stats", "partition_stats", "bloom_filters", "record_index")
"""Metadata-table partitions that every write keeps up to date."""


def check_writable(state: TableState) -> None:
    """Raises UnsupportedTableError for a table that a write would leave wrong."""
    config = state.config
    if config.version != _WRITTEN_VERSION:
        raise UnsupportedTableError(
            f"table {config.name} has version {config.version}; lakebed writes version {_WRITTEN_VERSION}",
            hint="upgrade it with Apache Hudi 1.2: call upgrade_table(table => 't', to_version => 'NINE')",
        )
    if not config.has_meta_columns:
        raise _unsupported(config, "has no meta columns, so its keys cannot be updated", "rewrite it with meta columns")
    if config.drops_partition_columns:
        raise _unsupported(config, "keeps partition columns in paths alone", "write to it with Apache Hudi")
    if config.base_file_format != "PARQUET":
        raise _unsupported(config, f"has base files of type {config.base_file_format}", "lakebed writes Parquet")
    if config.properties.get("hoodie.table.cdc.enabled", "false").lower() == "true":
        raise _unsupported(config, "records changes for CDC queries", "lakebed does not write change records yet")
    merge_rules(config)
    _check_indexes(state)


def check_schema(state: TableState, section: Section) -> None:
    """Refuses to commit when another write changed the table's columns meanwhile: ours would take them back."""
    for instant in section.timeline.commits():
        if state.timeline.completion_of(instant.requested_at) is None:
            declared = state.documents.commit(instant).schema_json
            if declared and arrow_schema(declared, path=str(instant)) != state.data_schema(state.latest):
                raise WriteConflictError(
                    f"{instant.action} {instant.requested_at} changed the table's columns",
                    hint="run the write again: it then starts from the columns as they are now",
                )


def _check_indexes(state: TableState) -> None:
    """A write must keep every index that the table's config names; one left behind would hide rows."""
    config = state.config
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    for partition in named:
        if partition not in _KEPT_PARTITIONS:
            raise _unsupported(config, f"has the index {partition}", "lakebed cannot keep it up to date yet: drop it")
    if named and not isinstance(state.metadata, MetadataTable):
        raise _unsupported(
            config,
            f"has a metadata table that cannot be used: {state.metadata.reason}",
            "open it with its metadata table, or repair that with Apache Hudi",
        )


def _unsupported(config: TableConfig, what: str, hint: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"table {config.name} {what}", hint=hint)
