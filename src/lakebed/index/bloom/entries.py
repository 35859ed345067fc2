"""Entries of the `bloom_filters` partition: the filter of each base file, as its footer has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.format.bloom import BloomKind
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.metadata.keys import bloom_key
from lakebed.format.metadata.records import encode_bloom_record
from lakebed.metadata.entries import Entries
from lakebed.model.files import BaseFile
from lakebed.model.metadata import BloomRecord


def bloom_entries(
    blooms: Mapping[str, Mapping[str, bytes]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    *,
    instant: str,
    kind: BloomKind = BloomKind.DYNAMIC,
) -> Entries:
    """The entries for filters of new base files (texts by name, by partition) and for files that are gone."""
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
