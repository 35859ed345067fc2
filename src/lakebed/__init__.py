"""lakebed: Apache Hudi tables from Python and PySpark, with no jar.

import lakebed

table = lakebed.open_table("/data/trips")
table.to_arrow(where="city = 'Oslo'")
table.lookup(["key-1"])
"""

from lakebed.api import Table, open_table, register
from lakebed.engine.session import local_session
from lakebed.errors import (
    CommitUnknownError,
    CorruptTableError,
    InvalidInputError,
    LakebedError,
    StorageUnavailableError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakebed.model.instant import Instant

__version__ = "0.1.0.dev0"

__all__ = [
    "CommitUnknownError",
    "CorruptTableError",
    "Instant",
    "InvalidInputError",
    "LakebedError",
    "StorageUnavailableError",
    "Table",
    "UnsupportedTableError",
    "WriteConflictError",
    "local_session",
    "open_table",
    "register",
]
