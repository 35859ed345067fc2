"""An index kind of the tests' own: how many distinct values columns have in each data file.

It shows that a kind is one value: nothing in `src/` knows it. An entry is a column statistic of the metadata table's
schema, with the number of distinct values in the place of the number of values, and without bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.predicate import wanted_values
from lakebed.format.metadata.column_stats import encode_column_stats_record
from lakebed.format.metadata.keys import column_stats_key, column_stats_prefix
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.index.build import Build, IndexRequest, Source, pieces_source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import StoredFile, read_blocks, stored_files
from lakebed.index.facts import FileFacts
from lakebed.index.kind import IndexKind, Update
from lakebed.index.prune import Kept, NotUsed, Query, Slices, serving
from lakebed.index.wanted import Wanted
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.options import IndexOptions
from lakebed.table import TableState

PARTITION = "distinct_counts"


class DistinctCounts(IndexKind):
    """The number of distinct values, per column and file: a file without any holds no row that equals a value."""

    partition = PARTITION
    words = (PARTITION,)
    shards = 2
    takes_columns = True
    keeps_its_form = True
    has_few = True

    def is_defined(self, definitions: Mapping[str, IndexDefinition]) -> bool:
        return PARTITION in definitions

    def wants(self, partition: str, definitions: Mapping[str, IndexDefinition]) -> Wanted | None:
        definition = definitions.get(partition)
        return Wanted(partition, definition.source_fields, gather) if definition is not None else None

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        counted = gather(read_blocks(stored, definitions[PARTITION].source_fields))
        return replace(facts, gathered={**facts.gathered, PARTITION: counted})

    def plan_definition(
        self, state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
    ) -> IndexDefinition | None:
        return known or IndexDefinition(PARTITION, PARTITION, PARTITION, request.columns, version="V2")

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        assert build.definition is not None
        columns = build.definition.source_fields

        def entries(stored: StoredFile) -> Entries:
            return count_entries({stored.partition: {stored.file.name: gather(read_blocks(stored, columns))}})

        return pieces_source(stored_files(build.state), entries, file_ids)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        columns = update.definitions[partition].source_fields
        gone = [
            column_stats_key(column, folder, name)
            for folder, names in change.deleted.items()
            for name in names
            for column in columns
        ]
        return count_entries(change.gathered.get(partition, {}), gone)

    def check(self, checked: Checked, tally: Tally) -> None:
        columns = checked.metadata.definitions[PARTITION].source_fields
        stored = {
            f"{column} of {file.file.name}": str(count)
            for file in stored_files(checked.state)
            for column, count in json.loads(gather(read_blocks(file, columns))).items()
        }
        found = (payload for _, payload in checked.payloads() if isinstance(payload, ColumnStats))
        tally.compare({f"{each.column} of {each.file_name}": str(each.value_count) for each in found}, stored)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        metadata = serving(query, PARTITION)
        if isinstance(metadata, NotUsed):
            return metadata
        columns = [
            column
            for column in metadata.definitions[PARTITION].source_fields
            if wanted_values(query.predicate, column) is not None
        ]
        if not columns:
            return NotUsed("the filter names no value of its columns")
        empty = [_files_without_values(metadata, column) for column in columns]
        kept = [s for s in slices if not any({p.rpartition("/")[2] for p in s.paths} <= names for names in empty)]
        return Kept(tuple(kept), f"by distinct values of {', '.join(columns)}")


def gather(tables: Sequence[pa.Table]) -> bytes:
    """Counts by column; of one that some block lacks, which is a partial update, nothing is known."""
    columns = set.intersection(*(set(table.column_names) for table in tables)) if tables else set()
    counts = {
        column: pc.count_distinct(pa.chunked_array([c for t in tables for c in t[column].chunks]), "only_valid").as_py()
        for column in sorted(columns)
    }
    return json.dumps(counts).encode()


def count_entries(gathered: Mapping[str, Mapping[str, bytes]], gone: Sequence[str] = ()) -> Entries:
    """An entry per column and file."""
    records = {
        column_stats_key(column, partition, name): encode_column_stats_record(
            ColumnStats(name, column, None, None, count, 0), version="V2"
        )
        for partition, files in gathered.items()
        for name, counts in files.items()
        for column, count in json.loads(counts).items()
    }
    return Entries.of(records, gone)


def _files_without_values(metadata: MetadataTable, column: str) -> set[str]:
    found = set()
    for shard in metadata.shards(PARTITION):
        for layers in shard.scan_prefix(column_stats_prefix(column)).values():
            stats = decode_metadata_record(layers[-1].value, layers[-1].schema, path=layers[-1].path).payload
            if isinstance(stats, ColumnStats) and stats.value_count == 0:
                found.add(stats.file_name)
    return found
