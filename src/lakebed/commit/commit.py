"""The commit of a prepared value: one critical section, in which it becomes visible or does not take place."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.commit.prepared import PreparedCommit
from lakebed.model.commit import CommitMetadata, RestoreMetadata
from lakebed.model.instant import InstantTime
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import MetadataWriter, Transactions


def commit(
    transactions: Transactions,
    attempt: Attempt,
    prepared: PreparedCommit,
    entries: MetadataWriter | None = None,
    *,
    check: Callable[[Section], None] | None = None,
) -> InstantTime:
    """Completes the instant, or raises and leaves it pending; the completion time.

    `entries` writes what the commit adds to the metadata table, if it adds anything; `check` is a last check in the
    section.
    """

    assert entries is not None or isinstance(prepared.metadata, RestoreMetadata), "its files would be in no listing"

    def check_all(section: Section) -> None:
        if prepared.writes is not None:
            transactions.check_conflicts(section, attempt, prepared.writes, prepared.seen)
        if check is not None:
            check(section)

    completed_at = transactions.complete(attempt, prepared.document, entries, check_all)
    if isinstance(prepared.metadata, CommitMetadata):
        attempt.note_commit(completed_at, prepared.metadata)
    return completed_at
