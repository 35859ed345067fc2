"""The commit of a prepared value: one critical section, in which it becomes visible or does not take place."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.commit.entries import NOTHING_AHEAD, Ahead, CommitEntries
from lakebed.commit.prepared import PreparedCommit
from lakebed.index.record.entries import KeyChanges
from lakebed.model.instant import InstantTime
from lakebed.table import TableState
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import Transactions


def commit(
    transactions: Transactions,
    attempt: Attempt,
    prepared: PreparedCommit,
    state: TableState,
    *,
    check: Callable[[Section], None] | None = None,
    ahead: Ahead = NOTHING_AHEAD,
    hidden_keys: Callable[[], tuple[KeyChanges, ...]] = tuple,
) -> InstantTime:
    """Completes the instant, or raises and leaves it pending; the completion time.

    `state` is the table as the commit was planned on it. `check` is a last one in the section. `ahead` was made for the
    section; `hidden_keys` reads the keys of replaced file groups, should an index want them that was not there before.
    """
    entries = CommitEntries(state, prepared, ahead, hidden_keys)
    return transactions.commit(attempt, prepared.writes, prepared.seen, prepared.metadata, entries, also=check)
