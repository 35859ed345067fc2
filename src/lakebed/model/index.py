"""Index definitions: which indexes a table has, and on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ORDERING_FIELD, ORDERING_IS_CURRENT = "lakebed.orderingField", "lakebed.orderingIsCurrent"
"""Options in the definition of a record index whose entries carry ordering values."""


@dataclass(frozen=True, slots=True)
class EntryOrdering:
    """The column whose values the entries of a record index carry; if they are `current`, updates log an entry, too."""

    field: str
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One entry of index.json. `name` is the metadata-table partition, e.g. `secondary_index_rider_idx`."""

    name: str
    kind: str
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str = "V1"

    @property
    def is_partitioned(self) -> bool:
        """Whether a record index keeps one set of shards per data partition."""
        return self.options.get("isPartitioned", "false").lower() == "true"

    @property
    def ordering(self) -> EntryOrdering | None:
        """The ordering values that entries of a record index carry, if they do."""
        field_name = self.options.get(ORDERING_FIELD)
        return EntryOrdering(field_name, self.options.get(ORDERING_IS_CURRENT) == "true") if field_name else None
