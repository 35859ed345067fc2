"""The kind `record_index`: global, partitioned, or of a window of partitions; with ordering values or without."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.records import MetadataRecord
from lakebed.index.build import Build, IndexRequest, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.facts import FileFacts
from lakebed.index.kind import IndexKind, Update
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.index.record.build import key_source, plan_key_shards
from lakebed.index.record.check import check_record_index
from lakebed.index.record.ordering import ask_ordering
from lakebed.index.record.probe import RECORD_INDEX as PARTITION
from lakebed.index.record.prune import prune_by_record_index
from lakebed.index.record.unique import check_unique
from lakebed.index.record.writes import plan_record_index
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import Form, NewestWins
from lakebed.metadata.shard_writes import ShardWrite
from lakebed.model.files import FileGroupId
from lakebed.model.index import (
    ORDERING_FIELD,
    ORDERING_IS_CURRENT,
    WINDOW_FIRST,
    WINDOW_NEWEST,
    WINDOW_OUTSIDE,
    EntryOrdering,
    IndexDefinition,
    IndexWindow,
)
from lakebed.options import IndexOptions
from lakebed.table import TableState


def _encode_again(record: MetadataRecord, form: Form) -> bytes | None:
    if not isinstance(record.payload, RecordLocation):
        return None
    return encode_record_index_value(record.payload, has_ordering=bool(form.has_ordering))


def record_index_definition(
    *, is_partitioned: bool, ordering: EntryOrdering | None = None, window: IndexWindow | None = None
) -> IndexDefinition:
    """A record index over the whole table, or one per data partition, of all of them or of those in a window.

    Its entries carry ordering values or not.
    """
    options = {"isPartitioned": str(is_partitioned).lower()}
    if window is not None:
        options |= {WINDOW_FIRST: window.first, WINDOW_NEWEST: str(window.newest), WINDOW_OUTSIDE: window.outside}
    if ordering is not None:
        options |= {ORDERING_FIELD: ordering.field, ORDERING_IS_CURRENT: str(ordering.is_current).lower()}
    return IndexDefinition(PARTITION, PARTITION, options=options, version="V1")


def _record_index_definition(
    state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
) -> IndexDefinition:
    """That of a record index; of one that is `known` what the request and the options leave as it is."""
    asked = options.ordering  # A table without rows may have no schema yet.
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
    shards = 10
    keeps_its_form = True
    wants_keys = True
    merge = NewestWins(None, _encode_again)

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """Entries of keys that came, went or moved."""
        del partition
        return plan_record_index(change, update)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude."""
        return prune_by_record_index(query, slices)

    def check_request(self, state: TableState, request: IndexRequest) -> None:
        """Rows must carry their keys, and a window is one of partitions."""
        config = state.config
        if not config.has_meta_columns:
            raise UnsupportedTableError(
                f"table {config.name} has no meta columns, so its rows do not carry their keys",
                hint="rewrite it with meta columns",
            )
        if request.window is not None and not config.partition_fields:
            raise InvalidInputError(f"table {config.name} is not partitioned", hint="a window is one of partitions")

    def check_new(self, metadata: MetadataTable, facts: Sequence[FileFacts], replaced: Collection[FileGroupId]) -> None:
        """Keys that are new to a file group must not be in another one."""
        check_unique(metadata, facts, replaced)

    def plan_definition(
        self, state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
    ) -> IndexDefinition | None:
        """Global, partitioned or windowed, with ordering values or without."""
        return _record_index_definition(state, request, options, known)

    def plan_build(self, build: Build) -> tuple[Sequence[str], Source]:
        """As many shards as the keys need, and the keys of all rows."""
        assert build.definition is not None
        layout, rows = plan_key_shards(build.state, build.request, build.definition, build.options)
        on_duplicate = build.request.on_duplicate
        source = key_source(build.state, build.scan, layout, rows, build.definition, on_duplicate=on_duplicate)
        return layout.file_ids, source

    def check(self, checked: Checked, tally: Tally) -> None:
        """Every key of every row."""
        check_record_index(checked, tally)


RECORD_INDEX = RecordIndex()
