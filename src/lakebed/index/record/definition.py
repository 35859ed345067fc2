"""What index.json says of a record index."""

from __future__ import annotations

from lakebed.index.record.probe import RECORD_INDEX
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
    return IndexDefinition(RECORD_INDEX, RECORD_INDEX, options=options, version="V1")
