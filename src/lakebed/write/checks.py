"""Checks before a write begins (can lakebed write to the table) and in its commit (are the columns still the same)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from lakebed.errors import InvalidInputError, UnsupportedTableError, WriteConflictError
from lakebed.format.avro.schema import arrow_schema
from lakebed.index.keys import KEY_INDEX, find_key_index, is_global, keys_are_indexed
from lakebed.index.kinds import kind_of
from lakebed.index.names import creating, moot_words, switched_word, words_of
from lakebed.metadata import MetadataTable
from lakebed.model.config import TableConfig
from lakebed.model.instant import InstantTime
from lakebed.options import WriteOptions
from lakebed.read.merge import merge_rules
from lakebed.table import TableState
from lakebed.transaction.section import Section

_WRITTEN_VERSION = 9


def check_writable(state: TableState) -> None:
    """Raises UnsupportedTableError for a table that a write would corrupt."""
    config = state.config
    if config.version != _WRITTEN_VERSION:
        raise UnsupportedTableError(
            f"table {config.name} has version {config.version}; lakebed writes version {_WRITTEN_VERSION}",
            hint="upgrade it with Apache Hudi 1.2: call upgrade_table(table => 't', to_version => 'NINE')",
        )
    if not config.has_meta_columns:
        raise _unsupported(config, "has no meta columns, so its keys cannot be updated", "rewrite it with meta columns")
    if config.drops_partition_columns:
        raise _unsupported(config, "stores partition columns in paths only", "write to it with Apache Hudi")
    if config.base_file_format != "PARQUET":
        raise _unsupported(
            config,
            f"has base files of type {config.base_file_format}",
            "write to it with Apache Hudi: lakebed writes Parquet",
        )
    if config.properties.get("hoodie.table.cdc.enabled", "false").lower() == "true":
        raise _unsupported(
            config,
            "records changes for CDC queries",
            "write to it with Apache Hudi: lakebed does not write change records yet",
        )
    merge_rules(config)
    _check_indexes(state)


def check_asked_indexes(config: TableConfig, asked: Mapping[str, bool], present: Collection[str]) -> None:
    """Raises InvalidInputError if options switch on an index that is not `present`, or switch off one that is."""
    there = {*present} | moot_words(is_partitioned=bool(config.partition_fields))
    for key, is_on in asked.items():
        index = switched_word(key)
        if is_on and index not in there:
            raise InvalidInputError(
                f"the option {key} is true, but table {config.name} has no index {index}",
                hint=f"build it once: {_CREATE.format(creating(index))}; or leave the option out",
            )
        if not is_on and index in there:
            raise InvalidInputError(
                f"the option {key} is false, but table {config.name} has the index {index}",
                hint="drop it first, with table.indexes.drop(...), or leave the option out",
            )


_CREATE = "lakebed.open_table(path).indexes.create({})"


def has_key_index(state: TableState) -> bool:
    """Whether the table has an index of record keys."""
    if isinstance(state.metadata, MetadataTable):
        return find_key_index(state) is not None
    return keys_are_indexed(state.config.metadata_partitions)


def check_options(state: TableState, options: WriteOptions) -> None:
    """Raises InvalidInputError if write options ask for an index that the table does not have."""
    config, asked, is_over_all = state.config, options.index, is_global(state.definitions)
    if asked.startswith("record") and not has_key_index(state):
        call = creating("record_partitioned" if asked == "record_partitioned" and config.partition_fields else "record")
        raise InvalidInputError(
            f"table {config.name} has no record index for key lookups",
            hint=f"build it once: {_CREATE.format(call)}; or leave the option hoodie.index.type out",
        )
    if asked == ("record_partitioned" if is_over_all else "record_global") and config.partition_fields:
        raise InvalidInputError(
            f"the record index of table {config.name} is {'global' if is_over_all else 'partitioned'}, "
            f"but hoodie.index.type asks for a {'partitioned' if is_over_all else 'global'} one",
            hint=f"use hoodie.index.type={KEY_INDEX.upper()} for the existing one, or leave the option out",
        )
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    switches = {key: is_on for key, is_on in options.indexes.items() if switched_word(key) != "files"}
    check_asked_indexes(config, switches, words_of(named, is_partitioned=not is_over_all))


def check_schema(state: TableState, section: Section) -> None:
    """Raises WriteConflictError if another write changed the table's columns since this state."""
    seen = {instant.requested_at for instant in state.timeline.commits()}
    check_columns(state, section, seen, state.data_schema(state.latest))


def check_columns(state: TableState, section: Section, seen: Collection[InstantTime], columns: pa.Schema) -> None:
    """Raises WriteConflictError if a write that is not among `seen` changed the columns, which ours would undo."""
    for instant in section.timeline.commits():
        if instant.requested_at not in seen:
            declared = state.documents.commit(instant).schema_json
            if declared and arrow_schema(declared, path=str(instant)) != columns:
                raise WriteConflictError(
                    f"{instant.action} {instant.requested_at} changed the table's columns",
                    hint="run the write again: it will use the current columns",
                )


def _check_indexes(state: TableState) -> None:
    """A write must update every index of the table; a stale one would hide rows."""
    config = state.config
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    for partition in named:
        if not kind_of(partition).is_kept:
            raise _unsupported(config, f"has the index {partition}", "drop it first: lakebed cannot update it yet")
    if named and not isinstance(state.metadata, MetadataTable):
        raise _unsupported(
            config,
            f"has a metadata table that cannot be used: {state.metadata.reason}",
            "open it with its metadata table, or repair that with Apache Hudi",
        )


def _unsupported(config: TableConfig, what: str, hint: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"table {config.name} {what}", hint=hint)
