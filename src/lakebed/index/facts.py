"""What a task learnt while it wrote a file: all that indexes are made of."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.model.commit import WriteStat
from lakebed.model.metadata import ColumnStats


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that a task made, and what indexes are to know of it.

    `inserted_keys` were not in the file group before, or get a new entry for another reason; `ordering` has their
    ordering values, if entries carry them. `deleted_keys` were there and no longer are, which is so of `deleted` keys,
    if that is not what the write stat counts.
    """

    stat: WriteStat
    column_stats: tuple[ColumnStats, ...] = ()
    bloom_text: bytes | None = None
    inserted_keys: pa.Array | None = None
    deleted_keys: pa.Array | None = None
    ordering: pa.Array | None = None
    deleted: int | None = None
