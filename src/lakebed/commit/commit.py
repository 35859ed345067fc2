"""The commit of a prepared value: one critical section, in which it becomes visible or does not take place."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.commit.prepared import PreparedCommit
from lakebed.model.instant import InstantTime
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import MetadataWriter, Transactions


def commit(
    transactions: Transactions,
    attempt: Attempt,
    prepared: PreparedCommit,
    entries: MetadataWriter,
    *,
    check: Callable[[Section], None] | None = None,
) -> InstantTime:
    """Completes the instant, or raises and leaves it pending; the completion time.

    `entries` writes what the commit adds to the metadata table; `check` is a last check in the section.
    """
    return transactions.commit(attempt, prepared.writes, prepared.seen, prepared.metadata, entries, also=check)
