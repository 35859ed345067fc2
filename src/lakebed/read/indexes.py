"""The indexes of a table: what there is, and whether it agrees with the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakebed.metadata import MetadataTable
from lakebed.table import TableState


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One index of a table. `state` is "ready" or "building"; `shards` and `bytes` describe its files."""

    name: str
    kind: str
    columns: tuple[str, ...]
    state: str
    shards: int
    bytes: int


class Indexes:
    """The indexes in a table's metadata table."""

    def __init__(self, state: TableState) -> None:
        self._state = state

    def list(self) -> tuple[IndexInfo, ...]:
        """Every index, ready or being built."""
        return tuple(self._iterate())

    def _iterate(self) -> Iterator[IndexInfo]:
        metadata = self._state.metadata
        if not isinstance(metadata, MetadataTable):
            return
        for name in sorted(self._state.config.metadata_partitions):
            definition = metadata.definitions.get(name)
            slices = metadata.slices(name)
            files = [file for s in slices for file in ((s.base,) if s.base else ()) + s.logs]
            kind = definition.kind if definition else name
            if name == "record_index":
                kind = (
                    "record_index (partitioned)"
                    if definition and definition.is_partitioned
                    else "record_index (global)"
                )
            columns = definition.source_fields if definition else ()
            yield IndexInfo(name, kind, columns, "ready", len(slices), sum(file.size or 0 for file in files))
        for name in sorted(self._state.config.metadata_partitions_inflight):
            yield IndexInfo(name, name, (), "building", 0, 0)
