"""The data plane of a write: the work on rows and index entries, apart from the protocol around it.

`Writer` drives it and never sees a row. Tests of the protocol hand in another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from lakebed.commit.prepared import PreparedCommit
from lakebed.index.facts import FileFacts
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.table import TableState
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import MetadataWriter, Transactions
from lakebed.write.operations import Operation


class Request(Protocol):
    """What a write is asked to do."""

    @property
    def operation(self) -> Operation:
        """The kind of write."""
        ...


class Planned(Protocol):
    """A planned write: nothing is stored yet."""

    @property
    def declaration(self) -> CommitMetadata:
        """The write set, for the inflight file."""
        ...


class Written(Protocol):
    """The files of a write; none of them is visible yet."""

    @property
    def facts(self) -> tuple[FileFacts, ...]:
        """The files, and what the tasks that wrote them learnt."""
        ...


R = TypeVar("R", bound=Request, contravariant=True)
P = TypeVar("P", bound=Planned)
W = TypeVar("W", bound=Written)


class DataPlane(Protocol[R, P, W]):
    """Plans a write, stores its files, and makes its index entries."""

    def check(self, state: TableState) -> None:
        """Raises if a write would leave the table wrong; before anything is begun."""
        ...

    def plan(self, state: TableState, instant: InstantTime, request: R) -> P:
        """Decides which rows go to which file group. Stores no data file."""
        ...

    def execute(self, state: TableState, planned: P) -> W:
        """Stores the files of a write that has been declared."""
        ...

    def prepare(self, state: TableState, planned: P, written: W, times: Mapping[str, int]) -> PreparedCommit:
        """The commit of the files, as a value; `times` are milliseconds by phase."""
        ...

    def entries(self, state: TableState, prepared: PreparedCommit, written: W | None) -> MetadataWriter:
        """Writes what the commit adds to the metadata table; without `written`, another process had prepared it."""
        ...

    def recheck(self, state: TableState, prepared: PreparedCommit, written: W | None, section: Section) -> None:
        """Raises, in the commit section, if the plan no longer fits the table."""
        ...

    def keep(self, storage: Storage, written: W, completed_at: InstantTime) -> None:
        """Caches what the write learnt; its entries completed in the metadata table at that time."""
        ...

    def maintain(self, transactions: Transactions, written: W) -> None:
        """Compacts, cleans and archives the metadata table as far as that is due."""
        ...
