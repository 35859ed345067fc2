"""What index was asked for: the arguments of `indexes.create`, and what a table makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.index.build import IndexRequest
from lakebed.index.kinds import all_kinds, kind_of, named_partitions
from lakebed.index.names import other_names
from lakebed.model.index import OUTSIDE, IndexDefinition
from lakebed.options import IndexOptions
from lakebed.table import TableState

_WRITTEN_VERSION = 9
_SHARDS_MAX = 10_000
"""Maximum number of shards of an index."""


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
    names, others = named_partitions(), other_names()
    is_other = kind is None and name not in names.values()
    kind = None if kind is None else others.get(kind.lower(), kind)
    name = others.get(name.lower(), name) if is_other else name
    asked = kind or next((k for k, partition in names.items() if name in (k, partition)), name)
    if not all(found.is_built for found in all_kinds() if asked in found.words or found.matches(asked)):
        raise UnsupportedTableError(
            f"lakebed does not build {asked} indexes yet", hint="create it with Apache Hudi; lakebed can use it"
        )
    if asked not in names:
        raise InvalidInputError(f"there is no index kind {asked!r}", hint=f"use one of {', '.join(names)}")
    partition = names[asked]
    if name not in (asked, partition):
        raise InvalidInputError(f"a {asked} index cannot be called {name!r}", hint=f"call it {partition!r}")
    columns = () if on is None else (on,) if isinstance(on, str) else tuple(on)
    if columns and not kind_of(partition).takes_columns:
        raise InvalidInputError(f"a {asked} index takes no columns", hint="leave out `on`")
    check_shards(shards)
    if shards is not None and kind_of(partition).shards == 1 and shards != 1:
        raise InvalidInputError(f"{partition} has one shard", hint="leave out `shards`")
    if on_duplicate not in ("fail", "latest"):
        raise InvalidInputError(f"on_duplicate is {on_duplicate!r}", hint='use "fail" or "latest"')
    _check_window(asked, window, outside)
    keeps = rebuild and kind is None and kind_of(partition).keeps_its_form
    return IndexRequest(partition, asked, columns, shards, on_duplicate, rebuild, window, outside, keeps)


def _check_window(kind: str, window: int | None, outside: str) -> None:
    if (kind == "record_windowed") != (window is not None):
        hint = 'only kind="record_windowed" takes one: window=30 for the newest 30 partitions'
        raise InvalidInputError(f"a {kind} index {'needs' if window is None else 'has no'} window", hint=hint)
    if window is not None and window < 1:
        raise InvalidInputError(f"a window cannot have {window} partitions", hint="use a number from 1 up")
    if outside not in OUTSIDE:
        raise InvalidInputError(f"outside is {outside!r}", hint=f"use one of {', '.join(OUTSIDE)}")


def check_shards(shards: int | None) -> None:
    """Raises InvalidInputError if an index cannot have that number of shards."""
    if shards is not None and not 1 <= shards <= _SHARDS_MAX:
        raise InvalidInputError(f"an index cannot have {shards} shards", hint=f"use a number from 1 to {_SHARDS_MAX}")


def check_request(state: TableState, request: IndexRequest) -> None:
    """Raises for an index that the table cannot have, or has."""
    config = state.config
    if config.version != _WRITTEN_VERSION:
        raise UnsupportedTableError(
            f"table {config.name} has version {config.version}; lakebed builds indexes for version {_WRITTEN_VERSION}",
            hint="upgrade it with Apache Hudi 1.2: call upgrade_table(table => 't', to_version => 'NINE')",
        )
    if request.partition in config.metadata_partitions and not request.rebuild:
        raise InvalidInputError(
            f"table {config.name} already has the index {request.partition}",
            hint="pass rebuild=True to rebuild it from the rows",
        )
    kind_of(request.partition).check_request(state, request)


def plan_definition(state: TableState, request: IndexRequest, options: IndexOptions) -> IndexDefinition | None:
    """What index.json is to say of an index; None if nothing."""
    known = state.definitions.get(request.partition) if request.keeps else None
    known = known.as_finished() if known is not None else None
    return kind_of(request.partition).plan_definition(state, request, options, known)


def resting_on(partition: str) -> tuple[str, ...]:
    """Indexes that are made of the entries of another one, and are rebuilt with it.

    Its columns may be others than before: of a new one, statistics of partitions would have what later writes add, and
    lack the rows that are there; of one that it does not have any more, nobody would keep them up to date.
    """
    return tuple(kind.partition for kind in all_kinds() if kind.made_of == partition)
