"""The kind `column_stats`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.format.metadata.column_stats import value_type_of
from lakebed.format.metadata.record_kinds import RecordKind
from lakebed.format.metadata.records import MetadataRecord, decode_metadata_record, encode_column_stats_record
from lakebed.format.metadata.schema import stored_schema
from lakebed.index.build import Build, IndexRequest, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.column_stats.entries import check_column_stats, column_stats_entries, column_stats_source, file_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS as PARTITION
from lakebed.index.column_stats.ranges import prune_by_column_stats
from lakebed.index.data_files import StoredFile
from lakebed.index.facts import FileFacts
from lakebed.index.kind import Expected, IndexKind, Update, unsupported
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries
from lakebed.metadata.merging import Form, MergeRule, NewestWins
from lakebed.model.config import TableConfig
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.model.words import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.options import IndexOptions
from lakebed.table import TableState

STATS_COLUMNS_MAX = 32
"""Data columns that get statistics unless others are asked for."""


def encode_current_stats(record: MetadataRecord, form: Form) -> bytes | None:
    """Statistics of an older schema in that of today."""
    if not isinstance(record.payload, ColumnStats):
        return None
    is_partition = record.kind is RecordKind.PARTITION_STATS
    return encode_column_stats_record(record.payload, version=form.version, partition_stats=is_partition)


class ColumnStatistics(IndexKind):
    """Statistics of each column and file, base or log."""

    partition = PARTITION
    words = new_words = ("column_stats",)
    switches: ClassVar[Mapping[str, str]] = {"hoodie.metadata.index.column.stats.enable": "column_stats"}
    is_default = True
    shards = 2
    takes_columns = True
    has_few = True
    merge = NewestWins("ColumnStatsMetadata", encode_current_stats)

    def is_defined(self, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Apache Hudi defines the columns only when it has built the index."""
        return self.partition in definitions

    def is_expected(self, partition: str, expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Files have statistics of all columns."""
        return partition in expected.partitions and has_columns(expected, definitions)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """The statistics of a file."""
        return with_stats(facts, stored, definitions)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Statistics of new files, and those of files that are gone."""
        definition = update.definitions.get(self.partition)
        if definition is None:
            raise unsupported(partition)
        return column_stats_entries(
            change.column_stats, change.deleted, columns=definition.source_fields, version=definition.version
        )

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude."""
        return prune_by_column_stats(query, slices)

    def check_request(self, state: TableState, request: IndexRequest) -> None:
        """The columns must be the table's."""
        known = state.data_schema(state.latest).names if request.columns else []
        for column in request.columns:
            if column not in known:
                raise InvalidInputError(
                    f"table {state.config.name} has no column {column!r}", hint=f"the columns are {', '.join(known)}"
                )

    def plan_definition(
        self, state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
    ) -> IndexDefinition | None:
        """The columns that are asked for, those of before, or the first ones of the table."""
        del options
        schema = state.data_schema(state.latest)
        if known is not None:
            return _of_columns(known, (*schema.names, *META_COLUMNS))
        if request.columns:
            schema = schema.empty_table().select(list(request.columns)).schema
        return column_stats_definition(schema, has_meta_columns=state.config.has_meta_columns)

    def define_new(
        self, config: TableConfig, schema: pa.Schema, word: str, options: IndexOptions
    ) -> IndexDefinition | None:
        """The first columns."""
        del word, options
        return column_stats_definition(schema, has_meta_columns=config.has_meta_columns)

    def derive(self, state: TableState) -> IndexDefinition | None:
        """The columns that entries name."""
        return derive_column_stats(state, self.merge)

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """Every data file."""
        assert build.definition is not None
        return column_stats_source(build.state, build.definition, file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Entries and files."""
        check_column_stats(checked, tally)


COLUMN_STATS = ColumnStatistics()


def has_columns(expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
    """Whether the files of a write have statistics of all columns that the index has."""
    return {*_columns(definitions)} <= {*expected.columns}


def with_stats(facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
    """The facts of a file with statistics of all columns that the index has, read from the file."""
    columns = _columns(definitions)
    return replace(facts, column_stats=file_stats(stored, columns)) if columns else facts


def _columns(definitions: Mapping[str, IndexDefinition]) -> tuple[str, ...]:
    definition = definitions.get(PARTITION)
    return definition.source_fields if definition is not None else ()


def _of_columns(known: IndexDefinition, names: Collection[str]) -> IndexDefinition:
    """A definition without columns that the table does not have any more: it was set back to before they came."""
    return replace(known, source_fields=tuple(n for n in known.source_fields if n.partition(".")[0] in names))


def column_stats_definition(schema: pa.Schema, *, has_meta_columns: bool) -> IndexDefinition:
    """The column statistics that a table with these data columns gets by default."""
    meta = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY) if has_meta_columns else ()
    columns = [field.name for field in schema if value_type_of(field.type) is not None]
    fields = (*meta, *columns[:STATS_COLUMNS_MAX])
    return IndexDefinition(PARTITION, PARTITION, PARTITION, source_fields=fields, version="V2")


def derive_column_stats(state: TableState, rule: MergeRule) -> IndexDefinition:
    """That of the columns that entries name, in the table's order; without entries that of a new table."""
    try:
        schema = state.data_schema(state.latest)
    except InvalidInputError:  # Nothing has been written yet that declares columns.
        schema = pa.schema([])
    default = column_stats_definition(schema, has_meta_columns=state.config.has_meta_columns)
    named = {*_columns_with_stats(state.metadata_with({}), rule)}
    if not named:
        return default
    # In the order of a new table's columns; nested ones, and those that the table has no longer, come last.
    known = dict.fromkeys((*default.source_fields, *schema.names, *sorted(named)))
    return replace(default, source_fields=tuple(name for name in known if name in named))


def _columns_with_stats(metadata: MetadataTable, rule: MergeRule) -> Iterator[str]:
    for file_slice in metadata.slices(PARTITION):
        shard = metadata.shard(PARTITION, file_slice.group.file_id)
        merged = rule.shard(shard, has_base=file_slice.base is not None)
        for value in merged.values.to_pylist():
            payload = decode_metadata_record(value, stored_schema(), path=PARTITION).payload
            if isinstance(payload, ColumnStats) and not payload.is_deleted:
                yield payload.column
