"""Running scans in this process."""

from __future__ import annotations

import pyarrow as pa

from lakebed.engine.threads import map_tasks
from lakebed.format.arrow import empty_table
from lakebed.read.file_slice import read_slice
from lakebed.read.scan import ScanPlan


def read_arrow(plan: ScanPlan) -> pa.Table:
    """The rows of a scan."""
    tables = list(map_tasks(plan.tasks, read_slice))
    return pa.concat_tables(tables) if tables else empty_table(plan.schema)
