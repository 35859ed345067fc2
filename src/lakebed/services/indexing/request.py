"""What a user asks for when an index is to be created, checked before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.index.bloom.probe import BLOOM_FILTERS
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.model.index import OUTSIDE
from lakebed.options import INDEX_NAMES

FILES = "files"
KINDS = {
    "record": RECORD_INDEX,
    "record_partitioned": RECORD_INDEX,
    "record_windowed": RECORD_INDEX,
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
    """An index to create. `shards` are those of the whole index, or of each data partition of a partitioned one.

    A record index with a `window` knows the keys of so many of the newest partitions; rows for others are handled as
    `outside` says. One that is built anew `keeps` its kind, window and ordering values unless told otherwise; so
    statistics may keep their columns.
    """

    partition: str
    kind: str
    columns: tuple[str, ...] = ()
    shards: int | None = None
    on_duplicate: str = "fail"
    rebuild: bool = False
    window: int | None = None
    outside: str = "scan"
    keeps: bool = False


def parse_request(
    name: str,
    on: str | Sequence[str] | None,
    kind: str | None,
    *,
    shards: int | None,
    on_duplicate: str,
    rebuild: bool,
    window: int | None = None,
    outside: str = "scan",
) -> IndexRequest:
    """The arguments of `indexes.create`, checked."""
    is_other = kind is None and name not in KINDS.values()
    kind = None if kind is None else INDEX_NAMES.get(kind.lower(), kind)
    name = INDEX_NAMES.get(name.lower(), name) if is_other else name
    asked = kind or next((k for k, partition in KINDS.items() if name in (k, partition)), name)
    if asked in _NOT_BUILT or asked.startswith(("secondary_index", "expr_index")):
        raise UnsupportedTableError(
            f"lakebed does not build {asked} indexes yet", hint="create it with Apache Hudi; lakebed can use it"
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
    _check_window(asked, window, outside)
    keeps = rebuild and kind is None and name == RECORD_INDEX
    return IndexRequest(KINDS[asked], asked, columns, shards, on_duplicate, rebuild, window, outside, keeps)


def _check_window(kind: str, window: int | None, outside: str) -> None:
    if (kind == "record_windowed") != (window is not None):
        hint = 'only kind="record_windowed" takes one: window=30 for the newest 30 partitions'
        raise InvalidInputError(f"a {kind} index {'needs' if window is None else 'has no'} window", hint=hint)
    if window is not None and window < 1:
        raise InvalidInputError(f"a window cannot have {window} partitions", hint="use a number from 1 up")
    if outside not in OUTSIDE:
        raise InvalidInputError(f"outside is {outside!r}", hint=f"use one of {', '.join(OUTSIDE)}")


def check_shards(shards: int | None) -> None:
    """Raises InvalidInputError for a number of shards that no index has."""
    if shards is not None and not 1 <= shards <= _SHARDS_MAX:
        raise InvalidInputError(f"an index cannot have {shards} shards", hint=f"use a number from 1 to {_SHARDS_MAX}")
