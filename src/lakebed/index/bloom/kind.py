"""The kind `bloom_filters`."""

from __future__ import annotations

from lakebed.format.metadata.records import MetadataRecord, encode_bloom_record
from lakebed.index.bloom.entries import bloom_entries
from lakebed.index.change import MetadataChange
from lakebed.index.kind import IndexKind, Update
from lakebed.metadata.entries import Entries
from lakebed.metadata.merging import Form, NewestWins
from lakebed.model.metadata import BloomRecord


def encode_again(record: MetadataRecord, form: Form) -> bytes | None:
    """A filter of an older schema in that of today."""
    del form
    return encode_bloom_record(record.payload) if isinstance(record.payload, BloomRecord) else None


class BloomFilters(IndexKind):
    """The Bloom filter of each base file."""

    partition = "bloom_filters"
    words = ("bloom",)
    shards = 4
    has_few = True
    merge = NewestWins("BloomFilterMetadata", encode_again)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Filters of new base files, and those of files that are gone."""
        del partition
        return bloom_entries(change.blooms, change.deleted, instant=update.instant)


BLOOM_FILTERS = BloomFilters()
