"""Secondary indexes: read, not yet kept by writes."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.format.metadata.records import MetadataRecord, encode_secondary_record
from lakebed.index.change import MetadataChange
from lakebed.index.kind import IndexKind, Update, unsupported
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.index.record.probe import RECORD_INDEX as KEY_INDEX
from lakebed.index.secondary.entries import secondary_index_shards
from lakebed.index.secondary.probe import PREFIX
from lakebed.index.secondary.prune import prune_by_secondary_index
from lakebed.metadata.merging import Form, NewestWins
from lakebed.metadata.shard_writes import ShardWrite
from lakebed.model.metadata import SecondaryRecord


def _encode_again(record: MetadataRecord, form: Form) -> bytes | None:
    del form
    payload = record.payload
    return encode_secondary_record(is_deleted=payload.is_deleted) if isinstance(payload, SecondaryRecord) else None


class SecondaryIndexes(IndexKind):
    """Record keys by the value of another column."""

    partition = PREFIX
    words = ("secondary",)
    is_kept = False
    is_built = False
    rests_on = KEY_INDEX
    merge = NewestWins("SecondaryIndexMetadata", _encode_again)

    @property
    def label(self) -> str:
        """All of them together."""
        return "secondary_index"

    def matches(self, partition: str) -> bool:
        """Each has a name of its own."""
        return partition.startswith(PREFIX)

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """Pairs of value and key that are new, or no longer hold."""
        definition = update.definitions.get(partition)
        if definition is None or (change.added and partition not in change.values):
            raise unsupported(partition)
        if partition not in change.values:
            return ()  # A clean: rows stay as they are.
        shards = secondary_index_shards(change.values[partition], update.groups[partition], version=definition.version)
        return [ShardWrite(partition, file_id, entries) for file_id, entries in shards.items()]

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude."""
        return prune_by_secondary_index(query, slices)


SECONDARY = SecondaryIndexes()
