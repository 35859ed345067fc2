"""What table services are given, and what they tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.engine.engines import Engine
from lakebed.model.instant import InstantTime
from lakebed.options import WriteOptions
from lakebed.table import TableHandle
from lakebed.transaction.transactions import Transactions


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """The table that a service works on, where its tasks run, and how it writes."""

    handle: TableHandle
    transactions: Transactions
    engine: Engine
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """What a table service did: its instant, when it completed, and how much it changed."""

    instant: InstantTime
    completed_at: InstantTime
    service: str
    counts: Mapping[str, int] = field(default_factory=dict)
