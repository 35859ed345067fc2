"""Giving a record index another number of shards: its entries as they are stored, in other base files (see `renew`)."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.errors import InvalidInputError
from lakebed.index.build import Source
from lakebed.index.kinds import named_partitions
from lakebed.index.record.build import Layout
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.observe import SILENT, Observer
from lakebed.services.indexing.renew import Renewal, renew_locked, renew_online
from lakebed.services.indexing.request import check_shards
from lakebed.services.indexing.stored_index import StoredIndex
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
    """Spreads the entries of the record index over `shards` shards, of each data partition if it is partitioned."""
    check_shards(shards)
    if named_partitions().get(name, name) != RECORD_INDEX:
        raise InvalidInputError(
            f"{name} cannot be resharded", hint='only the record index can: reshard("record_index", shards=16)'
        )
    work, plan = Renewal(transactions, table, observer), ByShards(shards)
    if not any(renew_online(work, lambda *_: plan) for _ in range(_COPIES_MAX)):
        renew_locked(work, plan)
