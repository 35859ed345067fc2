"""`table.indexes`: list, create, drop, reshard and validate indexes."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.index.check import IndexCheck
from lakebed.index.keys import KEY_INDEX
from lakebed.index.kinds import kind_of, named_partitions
from lakebed.metadata import MetadataTable
from lakebed.model.index import IndexDefinition
from lakebed.model.words import State
from lakebed.observe import Logged, Observer
from lakebed.options import parse_index_options
from lakebed.services.indexing.create import run_index, schedule_index
from lakebed.services.indexing.drop import drop_index
from lakebed.services.indexing.rebuild import build_index, reshard_index
from lakebed.services.indexing.request import parse_request
from lakebed.services.indexing.validate import validate_index
from lakebed.services.indexing.window import move_window
from lakebed.table import TableHandle, TableState
from lakebed.transaction.index_plans import pending_plans
from lakebed.transaction.transactions import Transactions

READY, SCHEDULED, BUILDING = "ready", "scheduled", "building"
BROKEN, UNFINISHED, STALE = "broken", "unfinished", "stale"
_LOGGED = Logged(logging.getLogger("lakebed.indexes"))


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One index of a table; `shards` and `bytes` describe its files.

    `state` is "ready"; "scheduled", if nobody builds it yet; "building", also if its process died; "broken", if files
    are missing; "unfinished", if it is defined but does not exist: a process died while resharding it, a
    restore dropped it, or another engine deleted it; or "stale", if another engine has written that does not know the
    index. Rebuild it in the last three states.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    state: str
    shards: int
    bytes: int


class Indexes:
    """The indexes of a table. Every call sees the current state of the table."""

    def __init__(
        self, handle: TableHandle, transactions: Callable[[], Transactions], options: Mapping[str, str]
    ) -> None:
        self._handle = handle
        self._transactions = transactions
        self._options = options

    def list(self) -> tuple[IndexInfo, ...]:
        """Every index, ready or not."""
        return tuple(describe_indexes(self._handle.state()))

    def create(
        self,
        name: str,
        on: str | Sequence[str] | None = None,
        kind: str | None = None,
        *,
        shards: int | None = None,
        on_duplicate: str = "fail",
        rebuild: bool = False,
        window: int | None = None,
        outside: str = "scan",
        wait: bool = True,
        observer: Observer = _LOGGED,
    ) -> IndexInfo:
        """Builds an index from the table's rows while others write; only for the list of files do they wait.

        If the process dies, writers go on: the next call clears away what it left and builds the index. With
        `wait=False` the index is only planned: writers keep it up to date from then on, and any process may build it by
        `run`, or by `table.services.run()`.

        `kind` follows from the name, except for "record" (keys are unique in the table) and "record_partitioned"
        (unique in each partition). `on` names the columns of statistics, by default the first 32. The default of
        `shards` depends on the number of rows. A record index fails if a key occurs twice; with `on_duplicate="latest"`
        it has the newest row. `rebuild` replaces an existing index; a record index keeps its kind unless one is given.

        "record_windowed" is an index for lakebed alone, over the keys of the newest `window` partitions and of later
        ones; keys are unique in each partition. For rows of older partitions, `outside` says what to do: find them in
        files ("scan"), treat them as "new", or "refuse" them.
        """
        observer.phase(f"building {name}")
        request = parse_request(
            name,
            on,
            kind,
            shards=shards,
            on_duplicate=on_duplicate,
            rebuild=rebuild,
            window=window,
            outside=outside,
        )
        options = parse_index_options(self._options)
        with self._changes():
            if wait:
                build_index(self._transactions(), self._handle.state(), request, options, observer)
            else:
                schedule_index(self._transactions(), self._handle.state(), request, options)
        return self._find(request.partition)

    def run(self, name: str, observer: Observer = _LOGGED) -> IndexInfo:
        """Builds an index that was planned, by this process or another."""
        observer.phase(f"building {name}")
        partition, options = named_partitions().get(name, name), parse_index_options(self._options)
        with self._changes():
            run_index(self._transactions(), self._handle.state(), partition, options, observer)
        return self._find(partition)

    def drop(self, name: str) -> None:
        """Removes an index."""
        with self._changes():
            drop_index(self._transactions(), name)

    def reshard(self, name: str = KEY_INDEX, *, shards: int, observer: Observer = _LOGGED) -> IndexInfo:
        """Changes the number of shards of the record index, per data partition if it is partitioned.

        Writers continue, except at the end, while files from a temporary folder of this machine are stored.
        """
        observer.phase(f"resharding {name}")
        with self._changes():
            reshard_index(self._transactions(), self._handle.state(), name, shards, observer)
        return self._find(named_partitions().get(name, name))

    def move_window(self) -> str:
        """Moves the window of a record index to the newest partitions; returns the first of them."""
        with self._changes():
            return move_window(self._transactions(), self._handle.state()).first

    def validate(self, name: str, *, examples: int = 20, observer: Observer = _LOGGED) -> IndexCheck:
        """Compares an index with the rows, both ways and completely, with up to `examples` per sort of difference."""
        observer.phase(f"validating {name}")
        return validate_index(self._handle, name, examples=examples, observer=observer)

    def _find(self, name: str) -> IndexInfo:
        return next(info for info in self.list() if info.name == name)

    def _changes(self) -> _Forgetting:
        return _Forgetting(self._handle)


@dataclass(frozen=True, slots=True)
class _Forgetting:
    """Makes a handle reload its table before and after, also on failure."""

    handle: TableHandle

    def __enter__(self) -> None:
        self.handle.forget()

    def __exit__(self, *raised: object) -> None:
        self.handle.forget()


def describe_indexes(state: TableState) -> Iterator[IndexInfo]:
    """All indexes of a table, ready or not; if the metadata table cannot be used, only those that do not exist."""
    metadata, definitions = state.metadata, state.definitions
    ready, planned = state.config.metadata_partitions, _planned(state)
    if isinstance(metadata, MetadataTable):
        for name in sorted(ready):
            definition = definitions.get(name)
            yield IndexInfo(
                name, kind_of(name).describe(name, definition), _columns(definition), *_files(metadata, name)
            )
        for name, how_far in sorted(planned.items()):
            yield IndexInfo(name, kind_of(name).describe(name, definitions.get(name)), (), how_far, 0, 0)
    for name in sorted({*definitions, *state.config.lost_partitions} - {*ready, *planned}):
        definition = definitions.get(name)
        yield IndexInfo(name, kind_of(name).describe(name, definition), _columns(definition), UNFINISHED, 0, 0)


def _planned(state: TableState) -> dict[str, str]:
    """The indexes that are being built or are to be, and which of the two."""
    found = dict.fromkeys(state.config.metadata_partitions_inflight, BUILDING)
    for plan in pending_plans(state.storage, state.config, state.timeline):
        how_far = SCHEDULED if plan.instant.state is State.REQUESTED else BUILDING
        found = {**dict.fromkeys(plan.partitions, how_far), **found}
    return {name: how_far for name, how_far in found.items() if name not in state.config.metadata_partitions}


def _files(metadata: MetadataTable, name: str) -> tuple[str, int, int]:
    """State, number of shards and bytes of an index in the table config."""
    if name in metadata.stale:
        return STALE, 0, 0
    try:
        slices = metadata.slices(name)
    except CorruptTableError:
        return BROKEN, 0, 0
    files: builtins.list[int] = [file.size or 0 for s in slices for file in ((s.base,) if s.base else ()) + s.logs]
    return READY, len(slices), sum(files)


def _columns(definition: IndexDefinition | None) -> tuple[str, ...]:
    return definition.source_fields if definition else ()
