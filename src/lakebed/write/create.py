"""Creates a table: the metadata table first, hoodie.properties last, so that it exists completely or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.engine.randomness import new_write_token
from lakebed.errors import InvalidInputError
from lakebed.format.index_definitions import encode_index_definitions
from lakebed.format.properties import table_checksum
from lakebed.format.timeline.metadata import encode_commit
from lakebed.index.extra import first_extra
from lakebed.index.kinds import empty_partitions, kind_of, named_partitions
from lakebed.index.names import default_kinds, new_table_words, other_names, switched_word
from lakebed.metadata.bootstrap import EmptyPartition, bootstrap_empty, metadata_properties
from lakebed.metadata.table import BUILD_OPERATION, FILES
from lakebed.model.commit import CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import Instant
from lakebed.model.words import META_COLUMNS, Action, MergeMode, State, TableType
from lakebed.options import parse_index_options, parse_option, parse_write_options
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, delete_file, replace_file
from lakebed.timeline.config import PROPERTIES, encode_config, has_config
from lakebed.transaction.ports import Ports
from lakebed.transaction.section import METADATA, instant_path
from lakebed.transaction.times import format_time, shift_time, timeline_zone
from lakebed.write.rows.keys import plan_keys, suggest_names
from lakebed.write.rows.partition_paths import plan_paths
from lakebed.write.rows.schema import declared_schema, table_schema

_TYPES = {"cow": TableType.COPY_ON_WRITE, "mor": TableType.MERGE_ON_READ}
_NAME = re.compile(r"[^A-Za-z0-9_]")
_SETTINGS = (
    "hoodie.record.merge.mode",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.table.timeline.timezone",
)
"""Options of create_table that become table properties."""
_OWN_FOLDERS = (".hoodie/metadata", ".hoodie/.index_defs")
"""Folders that a crashed creation may leave behind."""
_ARGUMENTS = {name: f"the argument {name}" for name in ("key", "partition_by", "ordering")}
"""How errors name the arguments of create_table that contain columns."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table to create, as the user describes it."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    table_type: TableType = TableType.COPY_ON_WRITE
    indexes: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_partitioned_index(self) -> bool:
        """Whether to create a partitioned record index."""
        return "record_partitioned" in self.indexes


def parse_spec(
    url: str,
    schema: pa.Schema,
    key: str | Sequence[str],
    partition_by: str | Sequence[str] | None,
    ordering: str | Sequence[str] | None,
    table_type: str,
    indexes: Sequence[str],
    options: Mapping[str, str],
    said_in: Mapping[str, str] = _ARGUMENTS,
) -> TableSpec:
    """Checks the arguments of create_table; `said_in` says how errors name those that contain columns."""
    if table_type.lower() not in _TYPES:
        raise InvalidInputError(f"unknown table type {table_type!r}", hint='use "cow" or "mor"')
    name = options.get("hoodie.table.name") or _NAME.sub("_", url.rstrip("/").rpartition("/")[2]) or "table"
    spec = TableSpec(
        name,
        table_schema(schema),
        _columns(key),
        _columns(partition_by),
        _columns(ordering),
        _TYPES[table_type.lower()],
        _asked_indexes(indexes, options, is_partitioned=bool(_columns(partition_by))),
        {key: parse_option(key, value) if key in _SETTINGS else value for key, value in options.items()},
    )
    _check(spec, said_in)
    config = TableConfig(table_properties(spec, ()))
    plan_keys(config, spec.schema)
    plan_paths(config, spec.schema)
    _definitions(spec)
    return spec


def table_properties(spec: TableSpec, metadata_partitions: Sequence[str]) -> dict[str, str]:
    """The content of hoodie.properties for a new table."""
    properties = {
        "hoodie.table.name": spec.name,
        "hoodie.table.type": str(spec.table_type),
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.format": "native",
        "hoodie.table.recordkey.fields": ",".join(spec.key),
        "hoodie.table.partition.fields": ",".join(spec.partition_by),
        "hoodie.table.keygenerator.type": _key_generator(spec),
        "hoodie.record.merge.mode": str(_merge_mode(spec)),
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.metadata.partitions": ",".join(sorted(metadata_partitions)),
        "hoodie.table.metadata.partitions.inflight": "",
        "hoodie.table.index.defs.path": ".hoodie/.index_defs/index.json",
    }
    if spec.ordering:
        properties["hoodie.table.ordering.fields"] = ",".join(spec.ordering)
    properties |= {key: value for key, value in spec.options.items() if key in _SETTINGS}
    properties["hoodie.table.checksum"] = str(table_checksum(properties))
    properties["hoodie.table.create.schema"] = declared_schema(spec.schema, TableConfig(properties), meta_columns=False)
    return properties


def _columns(given: str | Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _check(spec: TableSpec, said_in: Mapping[str, str]) -> None:
    if not spec.key:
        raise InvalidInputError("a table needs a record key", hint=f"name its columns in {said_in['key']}")
    for role, names in (("key", spec.key), ("partition_by", spec.partition_by), ("ordering", spec.ordering)):
        for name in names:
            if name not in spec.schema.names:
                raise InvalidInputError(
                    f"{said_in[role]} names {name!r}, which is not a column",
                    hint=suggest_names(name, spec.schema.names),
                )
    for name in spec.schema.names:
        if name in META_COLUMNS:
            raise InvalidInputError(f"{name!r} is a meta column", hint="leave it out of the schema; lakebed adds it")
    words = new_table_words()
    for index in spec.indexes:
        if index not in words:
            raise InvalidInputError(f"there is no index {index!r}", hint=f"use one of {', '.join(words)}")
    if {"record", "record_partitioned"} <= {*spec.indexes}:
        raise InvalidInputError(
            "a table has one record index: global or partitioned",
            hint='ask for "record" or for "record_partitioned"',
        )
    if _merge_mode(spec) is MergeMode.EVENT_TIME_ORDERING and not spec.ordering:
        raise InvalidInputError(
            "EVENT_TIME_ORDERING needs a column to order by",
            hint=f"name it in {said_in['ordering']}, or use COMMIT_TIME_ORDERING",
        )


def _merge_mode(spec: TableSpec) -> MergeMode:
    default = MergeMode.EVENT_TIME_ORDERING if spec.ordering else MergeMode.COMMIT_TIME_ORDERING
    return MergeMode(spec.options.get("hoodie.record.merge.mode", default))


def _key_generator(spec: TableSpec) -> str:
    if not spec.partition_by:
        return "NON_PARTITION"
    return "SIMPLE" if len(spec.key) == len(spec.partition_by) == 1 else "COMPLEX"


def create_table_files(ports: Ports, spec: TableSpec) -> None:
    """Creates the table, under its lock. A crash before the end leaves no table; the next try removes leftovers."""
    ports.lock.acquire()
    try:
        check_free(ports.storage)
        _delete_own_folders(ports.storage)
        definitions = _definitions(spec)
        options = parse_index_options(spec.options)
        shards = {name: kind_of(name).new_shards(word, options) for name, word in _words(spec).items()}
        properties = table_properties(spec, tuple(shards))
        extra = first_extra(definitions)
        _create_metadata_table(ports, TableConfig(properties), empty_partitions(shards), extra)
        replace_file(ports.storage, properties["hoodie.table.index.defs.path"], encode_index_definitions(definitions))
        if not create_file(ports.storage, PROPERTIES, encode_config(properties, ports.clock.now_ms())):
            raise _taken(ports.storage)
    finally:
        ports.lock.release()


def remove_unused(ports: Ports) -> None:
    """Deletes a table without any instant, under its lock.

    Processes that opened it meanwhile get an error when they begin to write.
    """
    ports.lock.acquire()
    try:
        if not ports.storage.list(".hoodie/timeline", recursive=True):
            delete_file(ports.storage, PROPERTIES)
            _delete_own_folders(ports.storage)
    finally:
        ports.lock.release()


def _delete_own_folders(storage: Storage) -> None:
    for folder in _OWN_FOLDERS:
        for listed in storage.list(folder, recursive=True):
            delete_file(storage, listed.path)


def _create_metadata_table(
    ports: Ports, config: TableConfig, partitions: Sequence[EmptyPartition], extra: Mapping[str, str]
) -> None:
    zone = timeline_zone(config)
    now = ports.clock.now_ms()
    date = format_time(now, zone)
    built = bootstrap_empty(ports.storage, partitions, token=new_write_token(0), created_ms=now, date=date)
    properties = metadata_properties(config.name)
    create_file(ports.storage, f"{METADATA}{PROPERTIES}", encode_config(properties, now))
    for number, partition in enumerate(built):
        completed_at = shift_time(date, number)
        metadata = CommitMetadata(
            write_stats={partition.partition: partition.stats},
            operation=BUILD_OPERATION,
            extra_metadata=extra,
        )
        for state in (State.REQUESTED, State.INFLIGHT):
            instant = Instant(partition.instant, Action.DELTA_COMMIT, state)
            create_file(ports.storage, instant_path(config, instant, METADATA), b"")
        done = Instant(partition.instant, Action.DELTA_COMMIT, State.COMPLETED, completed_at)
        create_file(ports.storage, instant_path(config, done, METADATA), encode_commit(metadata, replace=False))


def metadata_partitions(spec: TableSpec) -> tuple[str, ...]:
    """Partitions of the metadata table: Apache Hudi's defaults, and the indexes asked for."""
    return tuple(_words(spec))


def _words(spec: TableSpec) -> dict[str, str]:
    """Each partition of the metadata table, with the option word of its index."""
    names = named_partitions()
    defaults = {kind.partition: kind.words[0] for kind in default_kinds(is_partitioned=bool(spec.partition_by))}
    return {**defaults, **{names[word]: word for word in spec.indexes}}


def _definitions(spec: TableSpec) -> dict[str, IndexDefinition]:
    config, options = TableConfig(table_properties(spec, ())), parse_index_options(spec.options)
    found = {name: kind_of(name).define_new(config, spec.schema, word, options) for name, word in _words(spec).items()}
    return {name: definition for name, definition in found.items() if definition is not None}


def _asked_indexes(named: Sequence[str], options: Mapping[str, str], *, is_partitioned: bool) -> tuple[str, ...]:
    """The indexes of a new table beside the default ones: asked for by name, by options, or by the index type."""
    given, words = parse_write_options(options), new_table_words()
    switches = {key: (switched_word(key), is_on) for key, is_on in given.indexes.items()}
    names = (named,) if isinstance(named, str) else named
    asked = [name if name in words else other_names().get(str(name).lower(), name) for name in names]
    asked += [word for word, is_on in switches.values() if is_on and word in words]
    if given.index.startswith("record") and not any(name.startswith("record") for name in asked):
        asked.append("record_partitioned" if given.index == "record_partitioned" and is_partitioned else "record")
    # Except the file listing, whose option says how reads list files.
    always = [k.words[0] for k in default_kinds(is_partitioned=is_partitioned) if k.partition != FILES]
    for key, (word, is_on) in switches.items():
        if not is_on and word in (*asked, *always):
            why = "every new table has it" if word in always else "the index is also asked for"
            raise InvalidInputError(f"the option {key}=false is not supported: {why}", hint="leave the option out")
    return tuple(dict.fromkeys(asked))


def check_free(storage: Storage) -> None:
    """Raises InvalidInputError unless the folder is empty, or contains a partly created table."""
    if has_config(storage):
        raise _taken(storage)
    for listed in storage.list("", recursive=True):
        if not listed.path.startswith(".hoodie/"):
            raise InvalidInputError(
                f"{storage.url} is not empty: it has {listed.path}",
                hint="give an empty folder, or one that does not exist",
            )
    if storage.list(".hoodie/timeline", recursive=True):
        raise InvalidInputError(
            f"{storage.url} has a timeline, but no {PROPERTIES}",
            hint="it may be a table whose configuration was lost: restore that, or delete the folder",
        )


def _taken(storage: Storage) -> InvalidInputError:
    return InvalidInputError(f"a table already exists at {storage.url}", hint="open it: lakebed.open_table(path)")
