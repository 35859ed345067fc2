"""The index `record_index`: the file group of each record key. Global, partitioned, or for a window of partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.records import MetadataRecord
from lakebed.index.build import Build, IndexRequest, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import StoredFile
from lakebed.index.facts import FileFacts
from lakebed.index.foreign import GroupScans
from lakebed.index.kind import IndexKind, Update
from lakebed.index.layout import Planned, ShardLayout
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.index.record.build import changed_keys, key_source, plan_key_shards
from lakebed.index.record.check import check_record_index, check_unique
from lakebed.index.record.definition import (
    ask_ordering,
    derive_record_index,
    key_marks,
    ordering_numbers,
    record_index_definition,
)
from lakebed.index.record.entries import KeyChanges, ShardSizing, shard_count
from lakebed.index.record.probe import RECORD_INDEX as PARTITION
from lakebed.index.record.prune import prune_by_record_index
from lakebed.index.record.writes import plan_record_index
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import Form, NewestWins
from lakebed.metadata.shard_writes import ShardWrite
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId
from lakebed.model.index import IndexDefinition, IndexWindow
from lakebed.model.words import RECORD_KEY
from lakebed.options import IndexOptions
from lakebed.table import TableState


def _encode_again(record: MetadataRecord, form: Form) -> bytes | None:
    if not isinstance(record.payload, RecordLocation):
        return None
    return encode_record_index_value(record.payload, has_ordering=bool(form.has_ordering))


def _record_index_definition(
    state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
) -> IndexDefinition:
    """The definition of a requested index; for a rebuild, the `known` one with the ordering that options ask for."""
    asked = options.ordering  # A table without rows may have no schema yet, so read it only if needed.
    if known is not None and asked == "off":
        return known
    ordering = None if asked == "off" else ask_ordering(asked, state.config, state.data_schema(state.latest))
    if known is not None:
        return record_index_definition(is_partitioned=known.is_partitioned, ordering=ordering, window=known.window)
    window = None
    if request.window is not None:
        paths = (file_slice.group.partition for file_slice in state.latest_slices)
        window = IndexWindow.of(paths, request.window, request.outside)
    return record_index_definition(is_partitioned=request.kind != "record", ordering=ordering, window=window)


class RecordIndex(IndexKind):
    """The file group of each record key."""

    partition = PARTITION
    words = ("record", "record_partitioned", "record_windowed")
    new_words = ("record", "record_partitioned")
    other_names: ClassVar[Mapping[str, str]] = {
        "record_index": "record",
        "record_level": "record",
        "global_record_level_index": "record",
        "record_level_index": "record_partitioned",
    }
    switches: ClassVar[Mapping[str, str]] = {
        "hoodie.metadata.record.index.enable": "record",
        "hoodie.metadata.global.record.level.index.enable": "record",
        "hoodie.metadata.record.level.index.enable": "record_partitioned",
    }
    shards = 10
    keeps_its_form = True
    wants_keys = True
    is_renewed = True
    merge = NewestWins(None, _encode_again)

    def word(self, partition: str, *, is_partitioned: bool) -> str:
        """The word for a global or a partitioned index."""
        del partition
        return "record_partitioned" if is_partitioned else "record"

    def describe(self, partition: str, definition: IndexDefinition | None) -> str:
        """Its partition, and whether it is global, partitioned or windowed."""
        if definition is not None and definition.window is not None:
            return f"{partition} (from {definition.window.first or 'the first partition'} on)"
        is_partitioned = definition is not None and definition.is_partitioned
        return f"{partition} ({'partitioned' if is_partitioned else 'global'})"

    def marks(self, definition: IndexDefinition, *, kept: bool) -> Mapping[str, str]:
        """Marks for current entries, and for a complete window."""
        return key_marks(definition, kept=kept)

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """Entries of keys that were added, removed or moved."""
        del partition
        return plan_record_index(change, update)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """Keeps the slices that have a wanted key."""
        return prune_by_record_index(query, slices)

    def check_request(self, state: TableState, request: IndexRequest) -> None:
        """Raises if rows do not carry their keys, or a window is requested for an unpartitioned table."""
        config = state.config
        if not config.has_meta_columns:
            raise UnsupportedTableError(
                f"table {config.name} has no meta columns, so its rows do not carry their keys",
                hint="rewrite it with meta columns",
            )
        if request.window is not None and not config.partition_fields:
            raise InvalidInputError(
                f"table {config.name} is not partitioned", hint="leave out `window`, which counts partitions"
            )

    def check_new(self, metadata: MetadataTable, facts: Sequence[FileFacts], replaced: Collection[FileGroupId]) -> None:
        """Raises if a key that is new in a file group is also in another one."""
        check_unique(metadata, facts, replaced)

    def complete_foreign(
        self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition], scans: GroupScans
    ) -> FileFacts:
        """Adds the keys that came into the file group, and those that left it."""
        definition = definitions.get(PARTITION)
        ordering = definition.ordering if definition is not None else None
        group = FileGroupId(stored.partition, stored.file.file_id)
        came, left = changed_keys(scans, group, ordering)
        numbers = None if ordering is None else ordering_numbers(came, ordering)
        return replace(facts, inserted_keys=came[RECORD_KEY].combine_chunks(), deleted_keys=left, ordering=numbers)

    def find_hidden_keys(self, replaced: Iterable[FileGroupId], scans: GroupScans) -> tuple[KeyChanges, ...]:
        """All keys of these file groups."""
        found = ((group, scans.before(group, [RECORD_KEY])) for group in replaced)
        return tuple(
            KeyChanges(group.partition, group.file_id, deleted=rows[RECORD_KEY].combine_chunks())
            for group, rows in found
            if rows is not None
        )

    def plan_definition(
        self, state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
    ) -> IndexDefinition | None:
        """Global, partitioned or windowed, with ordering values or without."""
        return _record_index_definition(state, request, options, known)

    def define_new(
        self, config: TableConfig, schema: pa.Schema, word: str, options: IndexOptions
    ) -> IndexDefinition | None:
        """Global or partitioned, with ordering values or without."""
        ordering = ask_ordering(options.ordering, config, schema)
        return record_index_definition(is_partitioned=word == "record_partitioned", ordering=ordering)

    def new_shards(self, word: str, options: IndexOptions) -> int:
        """0 for a partitioned index: each data partition adds its own."""
        return 0 if word == "record_partitioned" else shard_count(0, ShardSizing(*options.global_sizing))

    def derive(self, state: TableState) -> IndexDefinition | None:
        """Derives the definition from shards and entries; a window is lost."""
        return derive_record_index(state, self.merge)

    def plan_shards(self, build: Build) -> Planned:
        """As many shards as the keys need, and the keys of all rows."""
        definition, on_duplicate = build.definition, build.request.on_duplicate
        assert definition is not None
        layout, rows = plan_key_shards(build, definition)

        def source(layout: ShardLayout) -> Source:
            return key_source(build.state, build.scan, layout, rows, definition, on_duplicate=on_duplicate)

        return Planned(layout, source)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Compares entries with the keys of all rows."""
        check_record_index(checked, tally)


RECORD_INDEX = RecordIndex()
