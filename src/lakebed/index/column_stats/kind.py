"""The index `column_stats`: min, max and null counts of each column and file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.format.metadata.column_stats import value_type_of
from lakebed.format.metadata.datum import RecordKind, stored_schema
from lakebed.format.metadata.records import MetadataRecord, decode_metadata_record, encode_column_stats_record
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
from lakebed.metadata.merging import Form, MergeRule, NewestWins, merged_shards
from lakebed.model.config import TableConfig
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.model.words import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.options import IndexOptions
from lakebed.table import TableState

STATS_COLUMNS_MAX = 32
"""Maximum number of data columns that get statistics by default."""


def encode_current_stats(record: MetadataRecord, form: Form) -> bytes | None:
    """Statistics of an older schema, encoded in the current one; None for other records."""
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
        """Whether its columns are known: Apache Hudi defines them only once the index is built."""
        return self.partition in definitions

    def is_expected(self, partition: str, expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Whether files have statistics of all columns."""
        return partition in expected.partitions and has_columns(expected, definitions)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """Adds the statistics of a file, read from it."""
        return with_stats(facts, stored, definitions)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Adds statistics of new files and removes those of deleted ones."""
        definition = update.definitions.get(self.partition)
        if definition is None:
            raise unsupported(partition)
        return column_stats_entries(
            change.column_stats, change.deleted, columns=definition.source_fields, version=definition.version
        )

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """Keeps slices of which some file may have a matching row."""
        return prune_by_column_stats(query, slices)

    def check_request(self, state: TableState, request: IndexRequest) -> None:
        """Raises if the table lacks a column."""
        known = state.data_schema(state.latest).names if request.columns else []
        for column in request.columns:
            if column not in known:
                raise InvalidInputError(
                    f"table {state.config.name} has no column {column!r}", hint=f"the columns are {', '.join(known)}"
                )

    def plan_definition(
        self, state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
    ) -> IndexDefinition | None:
        """The columns requested, those of the former index, or the first ones of the table."""
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
        """The first columns of the table."""
        del word, options
        return column_stats_definition(schema, has_meta_columns=config.has_meta_columns)

    def derive(self, state: TableState) -> IndexDefinition | None:
        """The columns that entries name."""
        return derive_column_stats(state, self.merge)

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """Reads every data file."""
        assert build.definition is not None
        return column_stats_source(build.state, build.definition, file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Compares entries with files."""
        check_column_stats(checked, tally)


COLUMN_STATS = ColumnStatistics()


def has_columns(expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
    """Whether the files of a write have statistics of all indexed columns."""
    return {*_columns(definitions)} <= {*expected.columns}


def with_stats(facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
    """The facts of a file with statistics of all indexed columns, read from the file."""
    columns = _columns(definitions)
    return replace(facts, column_stats=file_stats(stored, columns)) if columns else facts


def _columns(definitions: Mapping[str, IndexDefinition]) -> tuple[str, ...]:
    definition = definitions.get(PARTITION)
    return definition.source_fields if definition is not None else ()


def _of_columns(known: IndexDefinition, names: Collection[str]) -> IndexDefinition:
    """The definition without columns that the table no longer has: a restore may have removed them."""
    return replace(known, source_fields=tuple(n for n in known.source_fields if n.partition(".")[0] in names))


def column_stats_definition(schema: pa.Schema, *, has_meta_columns: bool) -> IndexDefinition:
    """The default definition for a table with these data columns."""
    meta = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY) if has_meta_columns else ()
    columns = [field.name for field in schema if value_type_of(field.type) is not None]
    fields = (*meta, *columns[:STATS_COLUMNS_MAX])
    return IndexDefinition(PARTITION, PARTITION, PARTITION, source_fields=fields, version="V2")


def derive_column_stats(state: TableState, rule: MergeRule) -> IndexDefinition:
    """The definition with the columns that entries name, in the table's order; without entries, that of a new table."""
    try:
        schema = state.data_schema(state.latest)
    except InvalidInputError:  # No write has declared columns yet.
        schema = pa.schema([])
    default = column_stats_definition(schema, has_meta_columns=state.config.has_meta_columns)
    named = {*_columns_with_stats(state.metadata_with({}), rule)}
    if not named:
        return default
    # In the order of a new table; nested columns, and columns that the table no longer has, come last.
    known = dict.fromkeys((*default.source_fields, *schema.names, *sorted(named)))
    return replace(default, source_fields=tuple(name for name in known if name in named))


def _columns_with_stats(metadata: MetadataTable, rule: MergeRule) -> Iterator[str]:
    for merged in merged_shards(metadata, PARTITION, rule):
        for value in merged.values.to_pylist():
            payload = decode_metadata_record(value, stored_schema(), path=PARTITION).payload
            if isinstance(payload, ColumnStats) and not payload.is_deleted:
                yield payload.column
