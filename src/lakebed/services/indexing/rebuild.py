"""Builds, rebuilds and reshards an index.

A rebuild runs while writers continue, if its kind allows that and the definition stays the same; else under the lock.
Entries come from the rows of a snapshot, and what writes add to the old index meanwhile goes on top (see `renew`). No
older file of the old index is read, so a broken index can be rebuilt too. Resharding copies stored entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.index.build import Build, IndexRequest, Source
from lakebed.index.keys import KEY_INDEX
from lakebed.index.kinds import kind_of, named_partitions
from lakebed.index.layout import Planned, ShardLayout
from lakebed.index.stored import StoredIndex
from lakebed.metadata import MetadataTable
from lakebed.observe import SILENT, Observer
from lakebed.options import IndexOptions
from lakebed.services.indexing.create import create_index
from lakebed.services.indexing.renew import Renewal, renew_locked, renew_online
from lakebed.services.indexing.request import check_request, check_shards, plan_definition
from lakebed.services.indexing.scans import scan_table
from lakebed.table import TableState
from lakebed.transaction.transactions import Transactions

_COPIES_MAX = 2
"""Number of attempts without the lock."""


def build_index(
    transactions: Transactions,
    table: TableState,
    request: IndexRequest,
    options: IndexOptions,
    observer: Observer = SILENT,
) -> None:
    """Creates an index, or rebuilds one if the request says so."""
    is_there = isinstance(table.metadata, MetadataTable) and table.metadata.has(request.partition)
    if kind_of(request.partition).is_renewed and request.rebuild and is_there:
        work = Renewal(transactions, table, request.partition, observer)
        if any(_rebuild_online(work, request, options) for _ in range(_COPIES_MAX)):
            return
    create_index(transactions, table, request, options, observer)


def _rebuild_online(work: Renewal, request: IndexRequest, options: IndexOptions) -> bool:
    """Whether the index was rebuilt; false if its definition changes, or too much changed meanwhile."""

    def plan(state: TableState, index: StoredIndex) -> FromRows | None:
        check_request(state, request)
        definition = plan_definition(state, request, options)
        if definition is None or definition != index.definition:
            return None
        planned = kind_of(request.partition).plan_shards(Build(state, request, definition, options, scan_table))
        return FromRows(planned, is_partitioned=definition.is_partitioned)

    try:
        return renew_online(work, plan)
    except CorruptTableError:
        return False


@dataclass(frozen=True, slots=True)
class FromRows:
    """A rebuild: entries from the rows of a table, in `planned` shards."""

    planned: Planned
    is_partitioned: bool

    @property
    def is_anew(self) -> bool:
        """True: entries come from the rows."""
        return True

    def layout(self, index: StoredIndex) -> ShardLayout:
        """The planned shards; data partitions without planned ones keep the shards that they have."""
        planned = self.planned.layout
        if not self.is_partitioned:
            every = dict.fromkeys((*planned.shards, *index.partitions), planned.file_ids)
            return ShardLayout(every, planned.file_ids)
        others = {name: ids for name, ids in index.shards.items() if name not in planned.shards}
        shards = dict(sorted({**planned.shards, **others}.items()))
        return ShardLayout(shards, tuple(file_id for file_ids in shards.values() for file_id in file_ids))

    def source(self, index: StoredIndex, layout: ShardLayout) -> Source:
        """The rows of the table."""
        del index
        return self.planned.source(layout)

    def is_done(self, index: StoredIndex) -> bool:
        """False: a rebuild is never skipped."""
        del index
        return False


@dataclass(frozen=True, slots=True)
class ByShards:
    """A reshard: that number of shards, per data partition if the index is partitioned."""

    shards: int

    @property
    def is_anew(self) -> bool:
        """False: entries are copied."""
        return False

    def layout(self, index: StoredIndex) -> ShardLayout:
        """A layout with that number of shards."""
        return index.layout(self.shards)

    def source(self, index: StoredIndex, layout: ShardLayout) -> Source:
        """The entries of the index itself."""
        return index.source(layout)

    def is_done(self, index: StoredIndex) -> bool:
        """Whether the index already has these shards."""
        return index.file_ids == set(self.layout(index).file_ids)


def reshard_index(
    transactions: Transactions, table: TableState, name: str, shards: int, observer: Observer = SILENT
) -> None:
    """Redistributes the entries of an index over `shards` shards, per data partition if it is partitioned."""
    check_shards(shards)
    partition = named_partitions().get(name, name)
    if not kind_of(partition).is_renewed:
        raise InvalidInputError(
            f"{name} cannot be resharded", hint=f'only the record index can: reshard("{KEY_INDEX}", shards=16)'
        )
    work, plan = Renewal(transactions, table, partition, observer), ByShards(shards)
    if not any(renew_online(work, lambda *_: plan) for _ in range(_COPIES_MAX)):
        renew_locked(work, plan)
