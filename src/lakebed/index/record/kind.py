"""The kind `record_index`: global, partitioned, or of a window of partitions; with ordering values or without."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.records import MetadataRecord
from lakebed.index.change import MetadataChange
from lakebed.index.kind import IndexKind, Update
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.index.record.probe import RECORD_INDEX as PARTITION
from lakebed.index.record.prune import prune_by_record_index
from lakebed.index.record.writes import plan_record_index
from lakebed.metadata.merging import Form, NewestWins
from lakebed.metadata.shard_writes import ShardWrite
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


class RecordIndex(IndexKind):
    """The file group of each record key."""

    partition = PARTITION
    words = ("record", "record_partitioned", "record_windowed")
    shards = 10
    merge = NewestWins(None, _encode_again)

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """Entries of keys that came, went or moved."""
        del partition
        return plan_record_index(change, update)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude."""
        return prune_by_record_index(query, slices)


RECORD_INDEX = RecordIndex()
