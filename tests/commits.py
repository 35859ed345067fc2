"""Commits of metadata that a test makes up."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.commit.commit import commit
from lakebed.commit.prepared import PreparedCommit
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import InstantTime
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.conflicts import WriteSet
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import MetadataWriter, Transactions


class NoMetadataTable:
    """What a commit adds to the metadata table of a table that has none."""

    def is_ready(self, section: Section) -> bool:
        raise AssertionError("nobody asks")

    def get_ready(self) -> None:
        raise AssertionError("nobody asks")

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata | None:
        raise AssertionError("nobody asks")


def commit_files(
    transactions: Transactions,
    attempt: Attempt,
    writes: WriteSet,
    seen: frozenset[InstantTime],
    metadata: CommitMetadata,
    entries: MetadataWriter | None = None,
    check: Callable[[Section], None] | None = None,
) -> InstantTime:
    prepared = PreparedCommit(attempt.instant, attempt.action, metadata, writes, seen)
    return commit(transactions, attempt, prepared, entries or NoMetadataTable(), check=check)
