"""What a user asks for when an index is to be created, checked before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.metadata.bloom_filters import BLOOM_FILTERS
from lakebed.metadata.column_stats import COLUMN_STATS, PARTITION_STATS
from lakebed.metadata.record_index import RECORD_INDEX

FILES = "files"
KINDS = {
    "record": RECORD_INDEX,
    "record_partitioned": RECORD_INDEX,
    "column_stats": COLUMN_STATS,
    "partition_stats": PARTITION_STATS,
    "bloom": BLOOM_FILTERS,
    "files": FILES,
}
"""The metadata-table partition, which is the index's name, of each kind."""
_NOT_BUILT = ("secondary", "expression")
_SHARDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to create. `shards` are those of the whole index, or of each data partition of a partitioned one."""

    partition: str
    kind: str
    columns: tuple[str, ...] = ()
    shards: int | None = None
    on_duplicate: str = "fail"
    rebuild: bool = False


def parse_request(
    name: str,
    on: str | Sequence[str] | None,
    kind: str | None,
    *,
    shards: int | None,
    on_duplicate: str,
    rebuild: bool,
) -> IndexRequest:
    """The arguments of `indexes.create`, checked."""
    asked = kind or next((k for k, partition in KINDS.items() if name in (k, partition)), name)
    if asked in _NOT_BUILT or asked.startswith(("secondary_index", "expr_index")):
        raise UnsupportedTableError(
            f"lakebed does not build {asked} indexes yet", hint="create it with Apache Hudi; lakebed reads through it"
        )
    if asked not in KINDS:
        raise InvalidInputError(f"there is no index kind {asked!r}", hint=f"use one of {', '.join(KINDS)}")
    if name not in (asked, KINDS[asked]):
        raise InvalidInputError(f"a {asked} index cannot be called {name!r}", hint=f"call it {KINDS[asked]!r}")
    columns = () if on is None else (on,) if isinstance(on, str) else tuple(on)
    if columns and asked != "column_stats":
        raise InvalidInputError(f"a {asked} index takes no columns", hint="leave out `on`")
    check_shards(shards)
    if shards is not None and KINDS[asked] in (FILES, PARTITION_STATS) and shards != 1:
        raise InvalidInputError(f"{KINDS[asked]} has one shard", hint="leave out `shards`")
    if on_duplicate not in ("fail", "latest"):
        raise InvalidInputError(f"on_duplicate is {on_duplicate!r}", hint='use "fail" or "latest"')
    return IndexRequest(KINDS[asked], asked, columns, shards, on_duplicate, rebuild)


def check_shards(shards: int | None) -> None:
    """Raises InvalidInputError for a number of shards that no index has."""
    if shards is not None and not 1 <= shards <= _SHARDS_MAX:
        raise InvalidInputError(f"an index cannot have {shards} shards", hint=f"use a number from 1 to {_SHARDS_MAX}")
