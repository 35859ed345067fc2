"""Building Bloom filters: those in the footers of base files."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.format.bloom import BloomKind
from lakebed.index.bloom.entries import bloom_entries
from lakebed.index.build import Source, pieces_source
from lakebed.index.data_files import StoredFile, base_files, read_footer
from lakebed.metadata.entries import Entries
from lakebed.table import TableState


def bloom_source(state: TableState, instant: str, file_ids: Sequence[str]) -> Source:
    """The bloom filters in the footers of base files."""

    def entries(stored: StoredFile) -> Entries:
        footer = read_footer(stored)
        if footer.bloom_text is None:
            return Entries.of({})
        blooms = {stored.partition: {stored.file.name: footer.bloom_text}}
        return bloom_entries(blooms, instant=instant, kind=BloomKind(footer.bloom_type))

    return pieces_source(base_files(state), entries, file_ids)
