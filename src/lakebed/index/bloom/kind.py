"""The index `bloom_filters`: the Bloom filter of each base file, copied from its footer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np

from lakebed.engine.engines import map_bounded
from lakebed.format.bloom import BloomFilter, BloomKind, decode_bloom
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.metadata.keys import bloom_key
from lakebed.format.metadata.records import MetadataRecord, decode_bloom_record, encode_bloom_record
from lakebed.index.build import Build, Source, pieces_source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import StoredFile, base_files, read_footer
from lakebed.index.facts import FileFacts
from lakebed.index.kind import IndexKind, Update
from lakebed.index.prune import Kept, NotUsed, Query, Slices, counted, masked, serving, wanted_keys
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries
from lakebed.metadata.merging import Form, NewestWins
from lakebed.model.files import BaseFile
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import BloomRecord
from lakebed.observe import Meter

_PARTITION = "bloom_filters"


def encode_current_filter(record: MetadataRecord, form: Form) -> bytes | None:
    """A filter of an older schema, encoded in the current one; None for other records."""
    del form
    return encode_bloom_record(record.payload) if isinstance(record.payload, BloomRecord) else None


class BloomFilters(IndexKind):
    """The Bloom filter of each base file."""

    partition = _PARTITION
    words = new_words = ("bloom",)
    other_names: ClassVar[Mapping[str, str]] = {"bloom_filters": "bloom"}
    switches: ClassVar[Mapping[str, str]] = {"hoodie.metadata.index.bloom.filter.enable": "bloom"}
    shards = 4
    has_few = True
    merge = NewestWins("BloomFilterMetadata", encode_current_filter)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """Adds the filter in the footer of a base file."""
        del definitions
        is_base = isinstance(stored.file, BaseFile)
        return replace(facts, bloom_text=read_footer(stored).bloom_text) if is_base else facts

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Adds the filters of new base files and removes those of deleted ones."""
        del partition
        return bloom_entries(change.blooms, change.deleted, instant=update.instant)

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """Keeps slices that have log files, or whose filter may contain a wanted key."""
        keys = wanted_keys(query)
        if isinstance(keys, NotUsed):
            return keys
        metadata = serving(query, _PARTITION)
        if isinstance(metadata, NotUsed):
            return metadata
        plain = [(s.group.partition, s.base.name) for s in slices if s.base is not None and not s.logs]
        blooms = find_blooms(metadata, plain)
        kept = [
            s.base is None
            or bool(s.logs)
            or s.base.name not in blooms
            or any(map(blooms[s.base.name].might_contain, keys))
            for s in slices
        ]
        reason = f"tried {counted(len(keys), 'key')} on {counted(len(blooms), 'filter')}"
        return Kept(masked(slices, np.array(kept, bool)), reason)

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """Reads the footers of base files."""
        commits = build.state.timeline.commits()
        instant = commits[-1].requested_at if commits else "0" * 17
        return pieces_source(base_files(build.state), partial(_footer_entries, instant=instant), file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Compares entries with footers. Keys of entries are hashes, so an extra entry is reported by its key."""
        files = base_files(checked.state)
        meter = Meter(_PARTITION, len(files), checked.observer)
        names, stored = {}, {}
        for each, footer in zip(files, map_bounded(files, read_footer), strict=True):
            meter.step()
            if footer.bloom_text is not None:
                key = bloom_key(each.partition, each.file.name)
                names[key], stored[each.path] = each.path, str(hash(footer.bloom_text))
        indexed = {
            names.get(key, key): str(hash(payload.bloom))
            for key, payload in checked.payloads()
            if isinstance(payload, BloomRecord) and not payload.is_deleted
        }
        tally.compare(indexed, stored)


BLOOM_FILTERS = BloomFilters()


def bloom_entries(
    blooms: Mapping[str, Mapping[str, bytes]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    *,
    instant: str,
    kind: BloomKind = BloomKind.DYNAMIC,
) -> Entries:
    """Entries for the filters of new base files (texts by partition and name) and for deleted files."""
    records = {
        bloom_key(partition, name): encode_bloom_record(BloomRecord(kind.value, instant, text))
        for partition, texts in blooms.items()
        for name, text in texts.items()
    }
    deletes = [
        bloom_key(partition, name)
        for partition, names in (deleted or {}).items()
        for name in names
        if isinstance(decode_data_file_name(name), BaseFile)
    ]
    return Entries.of(records, deletes)


def _footer_entries(stored: StoredFile, *, instant: str) -> Entries:
    footer = read_footer(stored)
    if footer.bloom_text is None:
        return Entries.of({})
    blooms = {stored.partition: {stored.file.name: footer.bloom_text}}
    return bloom_entries(blooms, instant=instant, kind=BloomKind(footer.bloom_type))


def find_blooms(metadata: MetadataTable, files: Iterable[tuple[str, str]]) -> dict[str, BloomFilter]:
    """Bloom filters by file name, for base files given as (partition path, file name); unknown files are left out."""
    names = {bloom_key(partition, name): name for partition, name in files}
    found = {}
    for key, layers in metadata.find_many(_PARTITION, names).items():
        record = decode_bloom_record(layers[-1].value, layers[-1].schema, path=layers[-1].path)
        if not record.is_deleted:
            found[names[key]] = decode_bloom(record.bloom, record.type_code, path=layers[-1].path)
    return found
