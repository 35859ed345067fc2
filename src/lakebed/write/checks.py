"""Which tables lakebed writes to, checked before anything is written, and whether its columns stayed as they were."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakebed.errors import InvalidInputError, UnsupportedTableError, WriteConflictError
from lakebed.format.avro.schema import arrow_schema
from lakebed.index.kinds import kind_of
from lakebed.metadata import MetadataTable
from lakebed.model.config import TableConfig
from lakebed.options import INDEX_SWITCHES, WriteOptions
from lakebed.read.merge import merge_rules
from lakebed.table import TableState
from lakebed.transaction.section import Section

_WRITTEN_VERSION = 9


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


def index_names(partitions: Collection[str], *, is_partitioned: bool) -> frozenset[str]:
    """Partitions of the metadata table by the names that indexes have for create_table."""
    names = {"bloom_filters": "bloom", "record_index": "record_partitioned" if is_partitioned else "record"}
    return frozenset(names.get(partition, partition) for partition in partitions)


def check_asked_indexes(config: TableConfig, asked: Mapping[str, bool], present: Collection[str]) -> None:
    """Raises InvalidInputError if options ask for an index that is not `present`, or for none that is."""
    # A table without partitions has none to keep statistics of.
    there = {*present} | (set() if config.partition_fields else {"partition_stats"})
    for key, is_on in asked.items():
        index = INDEX_SWITCHES[key]
        if is_on and index not in there:
            raise InvalidInputError(
                f"the option {key} is true, but table {config.name} has no index {index}",
                hint=f"build it once: {_CREATE.format(_CALLS.get(index, repr(index)))}; or leave the option out",
            )
        if not is_on and index in there:
            raise InvalidInputError(
                f"the option {key} is false, but table {config.name} has the index {index}",
                hint="drop it first, with table.indexes.drop(...), or leave the option out",
            )


_CREATE = "lakebed.open_table(path).indexes.create({})"
_CALLS = {
    "record": "'record_index'",
    "record_partitioned": "'record_index', kind='record_partitioned'",
    "bloom": "'bloom_filters'",
}


def has_record_index(state: TableState) -> bool:
    """Whether keys can be found through the record index."""
    if isinstance(state.metadata, MetadataTable):
        return state.metadata.has("record_index")
    return "record_index" in state.config.metadata_partitions


def has_global_index(state: TableState) -> bool:
    """Whether the record index, if there is one, knows keys of the whole table."""
    definition = state.definitions.get("record_index")
    return definition is None or not definition.is_partitioned


def check_record_index(state: TableState, options: WriteOptions) -> None:
    """Raises InvalidInputError if write options ask for indexes, to find keys with above all, that are not there."""
    config, asked, is_global = state.config, options.index, has_global_index(state)
    if asked.startswith("record") and not has_record_index(state):
        call = _CALLS["record_partitioned" if asked == "record_partitioned" and config.partition_fields else "record"]
        raise InvalidInputError(
            f"table {config.name} has no record index for key lookups",
            hint=f"build it once: {_CREATE.format(call)}; or leave the option hoodie.index.type out",
        )
    if asked == ("record_partitioned" if is_global else "record_global") and config.partition_fields:
        raise InvalidInputError(
            f"the record index of table {config.name} is {'global' if is_global else 'partitioned'}, "
            f"but hoodie.index.type asks for a {'partitioned' if is_global else 'global'} one",
            hint="use hoodie.index.type=RECORD_INDEX for the existing one, or leave the option out",
        )
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    switches = {key: is_on for key, is_on in options.indexes.items() if INDEX_SWITCHES[key] != "files"}
    check_asked_indexes(config, switches, index_names(named, is_partitioned=not is_global))


def check_schema(state: TableState, section: Section) -> None:
    """Refuses to commit when another write changed the table's columns meanwhile: ours would take them back."""
    for instant in section.timeline.commits():
        if state.timeline.completion_of(instant.requested_at) is None:
            declared = state.documents.commit(instant).schema_json
            if declared and arrow_schema(declared, path=str(instant)) != state.data_schema(state.latest):
                raise WriteConflictError(
                    f"{instant.action} {instant.requested_at} changed the table's columns",
                    hint="run the write again: it will use the current columns",
                )


def _check_indexes(state: TableState) -> None:
    """A write must keep every index that the table's config names; one left behind would hide rows."""
    config = state.config
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    for partition in named:
        if not kind_of(partition).is_kept:
            raise _unsupported(
                config, f"has the index {partition}", "drop it first: lakebed cannot keep it up to date yet"
            )
    if named and not isinstance(state.metadata, MetadataTable):
        raise _unsupported(
            config,
            f"has a metadata table that cannot be used: {state.metadata.reason}",
            "open it with its metadata table, or repair that with Apache Hudi",
        )


def _unsupported(config: TableConfig, what: str, hint: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"table {config.name} {what}", hint=hint)
