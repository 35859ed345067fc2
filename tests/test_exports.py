"""The public surface is a promise: names are added here on purpose."""

from __future__ import annotations

import subprocess
import sys

import lakebed

NAMES = {
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
}
TABLE_METHODS = {
    "bulk_insert",
    "changes",
    "config",
    "delete",
    "delete_partitions",
    "delete_savepoint",
    "doctor",
    "explain",
    "files",
    "indexes",
    "lease",
    "insert",
    "lookup",
    "overwrite",
    "restore",
    "rollback",
    "savepoint",
    "schema",
    "services",
    "timeline",
    "to_arrow",
    "to_spark",
    "upsert",
}


def test_exported_names() -> None:
    assert set(lakebed.__all__) == NAMES
    assert len(NAMES) < 30
    assert all(hasattr(lakebed, name) for name in NAMES)


def test_methods_of_table() -> None:
    assert {name for name in vars(lakebed.Table) if not name.startswith("_")} == TABLE_METHODS


def test_importing_lakebed_loads_nothing_heavy() -> None:
    """Spark, compiled code and the SQL parser are loaded where they are used."""
    code = "import sys, lakebed; print(*{m.partition('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "numba", "sqlglot", "pandas", "typer", "rich"} & set(loaded)
