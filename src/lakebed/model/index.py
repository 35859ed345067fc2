"""Index definitions: which indexes a table has, and on what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
