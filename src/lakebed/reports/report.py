"""Every report there is: what a renderer must be able to show."""

from __future__ import annotations

from typing import TypeAlias

from lakebed.read.explain import Explanation
from lakebed.reports.doctor import DoctorReport, RepairReport
from lakebed.reports.rows import LookupReport, RowsReport
from lakebed.reports.services import ServicesReport
from lakebed.reports.table import CheckReport, ConfigReport, FilesReport, IndexesReport, SchemaReport
from lakebed.reports.timeline import TimelineReport

Report: TypeAlias = (
    TimelineReport
    | FilesReport
    | SchemaReport
    | ConfigReport
    | IndexesReport
    | CheckReport
    | RowsReport
    | LookupReport
    | ServicesReport
    | RepairReport
    | DoctorReport
    | Explanation
)
