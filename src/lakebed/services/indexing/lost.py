"""Building anew the indexes that a table lost."""

from __future__ import annotations

import logging

from lakebed.errors import LakebedError
from lakebed.index.build import IndexRequest
from lakebed.index.kinds import named_partitions
from lakebed.index.lost import lost_indexes
from lakebed.options import IndexOptions
from lakebed.services.indexing.rebuild import build_index
from lakebed.table import TableHandle
from lakebed.transaction.transactions import Transactions

_LOG = logging.getLogger(__name__)


def rebuild_lost(transactions: Transactions, handle: TableHandle, options: IndexOptions) -> tuple[str, ...]:
    """Builds the indexes that the table lost, as they were defined; those that are still missing.

    Why one could not be built is in the log, and that it is missing in the table's configuration: the next call, or a
    repair, tries again.
    """
    for name in lost_indexes(handle.state()):
        if name in named_partitions().values():
            _rebuild(transactions, handle, name, options)
        handle.forget()
    missing = lost_indexes(handle.state())
    if missing:
        _LOG.warning(
            "the table lost %s: table.doctor() lists the effects, table.doctor(repair=True) rebuilds what lakebed can",
            ", ".join(missing),
        )
    return missing


def _rebuild(transactions: Transactions, handle: TableHandle, name: str, options: IndexOptions) -> None:
    request = IndexRequest(name, _word(name), rebuild=True, keeps=True)
    try:
        build_index(transactions, handle.state(), request, options)
    except LakebedError as error:
        _LOG.warning("%s could not be rebuilt: %s", name, error)


def _word(partition: str) -> str:
    """What users call an index first; one that is rebuilt stays what its definition says."""
    return next(word for word, named in named_partitions().items() if named == partition)
