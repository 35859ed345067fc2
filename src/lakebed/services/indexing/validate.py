"""Compares an index with the data, while writers may continue."""

from __future__ import annotations

from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.index.check import Checked, IndexCheck, Tally
from lakebed.index.kinds import kind_of, named_partitions
from lakebed.metadata import MetadataTable
from lakebed.observe import SILENT, Observer
from lakebed.services.indexing.definitions import defined_state
from lakebed.services.indexing.scans import scan_table
from lakebed.table import TableHandle, TableState

_TRIES = 5
"""Attempts to see table and index without a write in between."""


def validate_index(handle: TableHandle, name: str, *, examples: int = 20, observer: Observer = SILENT) -> IndexCheck:
    """Compares an index with one snapshot of the data; takes no lock and writes nothing."""
    partition = named_partitions().get(name, name)
    state, metadata, problem = _look(handle, partition)
    kind, tally = kind_of(partition), Tally(partition, examples)
    kind.check(Checked(state, metadata, partition, kind.merge, scan_table, observer), tally)
    return tally.result(problem)


def _look(handle: TableHandle, partition: str) -> tuple[TableState, MetadataTable, str | None]:
    """Table and index, read without a write in between, and what is wrong with stored definitions, if anything."""
    for _ in range(_TRIES):
        handle.forget()
        seen = handle.state()
        state, derived, broken = defined_state(seen)
        if broken is not None and partition in (*derived.unknown, *derived.without_window):
            raise broken
        metadata = state.metadata
        if not isinstance(metadata, MetadataTable) or not metadata.has(partition):
            raise InvalidInputError(
                f"table {state.config.name} has no index {partition!r} that is ready",
                hint=f"it has {', '.join(state.config.metadata_partitions) or 'none'}",
            )
        metadata.slices(partition)
        assert state.latest_slices is not None
        if handle.state() is seen:
            return state, metadata, None if broken is None else f"{broken.what}; {broken.hint}"
    raise WriteConflictError(
        f"table {handle.config.name} was written to during every attempt",
        hint="run the call again when there are fewer writes",
    )
