"""The kind `bloom_filters`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from lakebed.format.metadata.records import MetadataRecord, encode_bloom_record
from lakebed.index.bloom.build import bloom_source
from lakebed.index.bloom.check import check_bloom_filters
from lakebed.index.bloom.entries import bloom_entries
from lakebed.index.bloom.prune import prune_by_bloom_filters
from lakebed.index.build import Build, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import StoredFile, read_footer
from lakebed.index.facts import FileFacts
from lakebed.index.kind import IndexKind, Update
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.metadata.entries import Entries
from lakebed.metadata.merging import Form, NewestWins
from lakebed.model.files import BaseFile
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import BloomRecord


def encode_again(record: MetadataRecord, form: Form) -> bytes | None:
    """A filter of an older schema in that of today."""
    del form
    return encode_bloom_record(record.payload) if isinstance(record.payload, BloomRecord) else None


class BloomFilters(IndexKind):
    """The Bloom filter of each base file."""

    partition = "bloom_filters"
    words = new_words = ("bloom",)
    other_names: ClassVar[Mapping[str, str]] = {"bloom_filters": "bloom"}
    switches: ClassVar[Mapping[str, str]] = {"hoodie.metadata.index.bloom.filter.enable": "bloom"}
    shards = 4
    has_few = True
    merge = NewestWins("BloomFilterMetadata", encode_again)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """The filter in the footer of a base file."""
        del definitions
        is_base = isinstance(stored.file, BaseFile)
        return replace(facts, bloom_text=read_footer(stored).bloom_text) if is_base else facts

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Filters of new base files, and those of files that are gone."""
        del partition
        return bloom_entries(change.blooms, change.deleted, instant=update.instant)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude."""
        return prune_by_bloom_filters(query, slices)

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """The footers of base files."""
        commits = build.state.timeline.commits()
        return bloom_source(build.state, commits[-1].requested_at if commits else "0" * 17, file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Entries and the filters in footers."""
        check_bloom_filters(checked, tally)


BLOOM_FILTERS = BloomFilters()
