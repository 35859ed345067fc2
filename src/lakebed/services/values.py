"""What table services are given, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.engine.engines import Engine, InProcess
from lakebed.model.instant import InstantTime
from lakebed.options import WriteOptions
from lakebed.services.plane import ServicePlane
from lakebed.table import TableHandle
from lakebed.transaction.transactions import Transactions


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The table that a service works on, where its tasks run, how it writes, and what its tasks do."""

    handle: TableHandle
    transactions: Transactions
    engine: Engine
    options: WriteOptions
    plane: ServicePlane = field(default_factory=ServicePlane)

    @property
    def is_idle_after_failure(self) -> bool:
        """Whether no task runs any more once a call to the engine has failed: Spark's may outlive their job."""
        return isinstance(self.engine, InProcess)


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """What a table service did: its instant, when it completed, and how much it changed.

    `missing` are indexes that the table had before a restore and does not have after it; `Table.doctor` says more.
    """

    instant: InstantTime
    completed_at: InstantTime
    service: str
    counts: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
