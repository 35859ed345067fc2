"""Whether the ordering values in the record index are known to be those that the rows have now.

An entry's value is the one that the row had when the entry was written, so a lower bound. Where every update logs an
entry, too, it is the row's own value, but only as long as nobody writes who does not do so: another engine, or a writer
that began before the index was built. So each delta commit of the metadata table says that entries are current, if it
keeps them so and the one before it said it. One that is silent ends the chain, until the index is built anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.metadata.table import MetadataTable
from lakebed.model.index import WINDOW_KEPT, EntryOrdering, IndexDefinition

_CURRENT: Mapping[str, str] = {"lakebed.entries.current": "true"}
"""What the extra metadata of a delta commit has that keeps entries current."""


def are_current(metadata: MetadataTable, ordering: EntryOrdering) -> bool:
    """Whether entries with a value have the value of their row, in the table as this look at it finds it."""
    newest = metadata.newest_delta_commit() if ordering.is_current else None
    return newest is not None and newest.extra_metadata.items() >= _CURRENT.items()


def key_marks(definition: IndexDefinition, *, kept: bool) -> dict[str, str]:
    """What a delta commit says of the index: its entries are current, and it has all keys of its window."""
    ordering = definition.ordering
    return {
        **(_CURRENT if kept and ordering is not None and ordering.is_current else {}),
        **(WINDOW_KEPT if definition.window is not None else {}),
    }
