"""What a task learnt while it wrote a file: all that indexes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.model.commit import WriteStat
from lakebed.model.metadata import ColumnStats


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that a task made, and what indexes are to know of it.

    `inserted_keys` were not in the file group before, or get a new entry for another reason; `ordering` has their
    ordering values, if entries carry them. `deleted_keys` were there and no longer are, which is so of `deleted` keys,
    if that is not what the write stat counts. `gathered` has what other indexes wanted of the rows, by their partition
    of the metadata table.
    """

    stat: WriteStat
    column_stats: tuple[ColumnStats, ...] = ()
    bloom_text: bytes | None = None
    inserted_keys: pa.Array | None = None
    deleted_keys: pa.Array | None = None
    ordering: pa.Array | None = None
    deleted: int | None = None
    gathered: Mapping[str, bytes] = field(default_factory=dict)
