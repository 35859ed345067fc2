"""lakebed: Apache Hudi tables from Python and PySpark, with no jar.

import lakebed

table = lakebed.create_table("/data/trips", schema=rows.schema, key="id", partition_by="city")
table.upsert(rows)
table = lakebed.open_table("/data/trips")
table.to_arrow(where="city = 'Oslo'")
table.lookup(["key-1"])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from lakebed.errors import (
    CommitUnknownError,
    CorruptTableError,
    InvalidInputError,
    LakebedError,
    LockUnavailableError,
    RolledBackError,
    ServiceCancelledError,
    ServiceRunningError,
    SnapshotExpiredError,
    StorageUnavailableError,
    TableRestoredError,
    UnsupportedTableError,
    WriteConflictError,
)

if TYPE_CHECKING:
    from lakebed.api import Table, create_table, open_table
    from lakebed.engine.session import local_session
    from lakebed.model.instant import Instant
    from lakebed.services.values import ServiceResult
    from lakebed.source import register
    from lakebed.write.writer import WriteResult

__version__ = "0.1.0.dev0"

__all__ = [
    "CommitUnknownError",
    "CorruptTableError",
    "Instant",
    "InvalidInputError",
    "LakebedError",
    "LockUnavailableError",
    "RolledBackError",
    "ServiceCancelledError",
    "ServiceResult",
    "ServiceRunningError",
    "SnapshotExpiredError",
    "StorageUnavailableError",
    "Table",
    "TableRestoredError",
    "UnsupportedTableError",
    "WriteConflictError",
    "WriteResult",
    "create_table",
    "local_session",
    "open_table",
    "register",
]

# Loaded on first use: Arrow alone takes longer to import than the command line takes to answer `--help`.
_HOMES = {
    "Instant": "lakebed.model.instant",
    "ServiceResult": "lakebed.services.values",
    "Table": "lakebed.api",
    "WriteResult": "lakebed.write.writer",
    "create_table": "lakebed.api",
    "local_session": "lakebed.engine.session",
    "open_table": "lakebed.api",
    "register": "lakebed.source",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
