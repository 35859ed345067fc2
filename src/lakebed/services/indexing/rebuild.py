"""Building an index: anew while writers go on, if its kind can and it stays what it is; else under the lock.

Its entries are made of the rows of a snapshot, as when it was created, and what writes have added to the old index
since goes on top (see `renew`). Of the old one no file is read that was there before: whatever is wrong
with these, nobody waits for the repair.
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
from lakebed.services.indexing.create import check_request, create_index, plan_definition
from lakebed.services.indexing.renew import Renewal, renew_locked, renew_online
from lakebed.services.indexing.request import check_shards
from lakebed.services.indexing.scans import scan_table
from lakebed.table import TableState
from lakebed.transaction.transactions import Transactions

_COPIES_MAX = 2
"""So often it is tried without the lock."""


def build_index(
    transactions: Transactions,
    table: TableState,
    request: IndexRequest,
    options: IndexOptions,
    observer: Observer = SILENT,
) -> None:
    """Makes an index that is not there yet, or, if that is asked for, one that is."""
    is_there = isinstance(table.metadata, MetadataTable) and table.metadata.has(request.partition)
    if kind_of(request.partition).is_renewed and request.rebuild and is_there:
        work = Renewal(transactions, table, request.partition, observer)
        if any(_rebuild_online(work, request, options) for _ in range(_COPIES_MAX)):
            return
    create_index(transactions, table, request, options, observer)


def _rebuild_online(work: Renewal, request: IndexRequest, options: IndexOptions) -> bool:
    """Whether the index was built anew; not if it becomes another one, or too much happened meanwhile."""

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
    """The entries of the rows of a table, in shards that were `planned` for them."""

    planned: Planned
    is_partitioned: bool

    @property
    def is_anew(self) -> bool:
        """Entries come from the rows."""
        return True

    def layout(self, index: StoredIndex) -> ShardLayout:
        """The shards that were planned; of data partitions that had no rows, or have come since, those they have."""
        planned = self.planned.layout
        if not self.is_partitioned:
            every = dict.fromkeys((*planned.shards, *index.partitions), planned.file_ids)
            return ShardLayout(every, planned.file_ids)
        others = {name: ids for name, ids in index.shards.items() if name not in planned.shards}
        shards = dict(sorted({**planned.shards, **others}.items()))
        return ShardLayout(shards, tuple(file_id for file_ids in shards.values() for file_id in file_ids))

    def source(self, index: StoredIndex, layout: ShardLayout) -> Source:
        """The rows."""
        del index
        return self.planned.source(layout)

    def is_done(self, index: StoredIndex) -> bool:
        """Never: something is wrong with what is there."""
        del index
        return False


@dataclass(frozen=True, slots=True)
class ByShards:
    """So many shards, of each data partition if the index is partitioned."""

    shards: int

    @property
    def is_anew(self) -> bool:
        """Entries stay what they were."""
        return False

    def layout(self, index: StoredIndex) -> ShardLayout:
        """These shards."""
        return index.layout(self.shards)

    def source(self, index: StoredIndex, layout: ShardLayout) -> Source:
        """The entries of the index itself."""
        return index.source(layout)

    def is_done(self, index: StoredIndex) -> bool:
        """Whether the index has them already."""
        return index.file_ids == set(self.layout(index).file_ids)


def reshard_index(
    transactions: Transactions, table: TableState, name: str, shards: int, observer: Observer = SILENT
) -> None:
    """Spreads the entries of an index over `shards` shards, of each data partition if it is partitioned."""
    check_shards(shards)
    partition = named_partitions().get(name, name)
    if not kind_of(partition).is_renewed:
        raise InvalidInputError(
            f"{name} cannot be resharded", hint=f'only the record index can: reshard("{KEY_INDEX}", shards=16)'
        )
    work, plan = Renewal(transactions, table, partition, observer), ByShards(shards)
    if not any(renew_online(work, lambda *_: plan) for _ in range(_COPIES_MAX)):
        renew_locked(work, plan)
