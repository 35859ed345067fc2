"""Giving an index another number of shards: its entries as they are stored, in other base files (see `renew`)."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import InvalidInputError
from lakebed.index.build import Source
from lakebed.index.keys import KEY_INDEX
from lakebed.index.kinds import kind_of, named_partitions
from lakebed.index.layout import Layout
from lakebed.index.stored import StoredIndex
from lakebed.observe import SILENT, Observer
from lakebed.services.indexing.renew import Renewal, renew_locked, renew_online
from lakebed.services.indexing.request import check_shards
from lakebed.table import TableState
from lakebed.transaction.transactions import Transactions

_COPIES_MAX = 2
"""So many copies are made without the lock."""


@dataclass(frozen=True, slots=True)
class ByShards:
    """So many shards, of each data partition if the index is partitioned."""

    shards: int

    @property
    def is_anew(self) -> bool:
        """Entries stay what they were."""
        return False

    def layout(self, index: StoredIndex) -> Layout:
        """These shards."""
        return index.layout(self.shards)

    def source(self, index: StoredIndex, layout: Layout) -> Source:
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
