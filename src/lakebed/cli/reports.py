"""What the commands report: frozen values, which text and JSON render alike.

Field names are what `--json` prints, so they are a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from lakebed.read.explain import Explanation

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.services.doctor.finding import Finding
    from lakebed.services.doctor.under_way import UnderWay
    from lakebed.services.indexing.indexes import IndexInfo
    from lakebed.services.indexing.validate import IndexCheck


@dataclass(frozen=True, slots=True)
class Written:
    """What a completed write left behind, by the count of its own commit metadata.

    `metrics` is what lakebed's own writes say of the time they took and of the keys they looked for.
    """

    operation: str | None
    inserted: int
    updated: int
    deleted: int
    files: int
    bytes: int
    replaced_file_groups: int
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant. Times are its digits as ISO 8601; a version 6 table does not record completion times.

    `problem` says why `written` is missing where the instant's file cannot be read.
    """

    requested_at: str
    requested_time: str | None
    action: str
    state: str
    completed_at: str | None
    completed_time: str | None
    duration_s: float | None
    written: Written | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TimelineReport:
    """The active timeline. `timezone` is that of all its times: UTC, or LOCAL to the machines that write."""

    table: str
    timezone: str
    instants: tuple[TimelineEntry, ...]


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """One file slice: a base file (None if only logs were written yet) and the log files on top."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    base_bytes: int
    log_files: tuple[str, ...]
    log_bytes: int


@dataclass(frozen=True, slots=True)
class FilesReport:
    """The file slices that a snapshot reads."""

    table: str
    as_of: str | None
    slices: tuple[SliceEntry, ...]


@dataclass(frozen=True, slots=True)
class ColumnEntry:
    """One column, with its type as Spark spells it."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """The columns of the newest snapshot."""

    table: str
    columns: tuple[ColumnEntry, ...]


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """What a table's properties mean, and the properties themselves, sorted by key."""

    table: str
    table_type: str
    table_version: int
    timeline_layout: int
    timeline_timezone: str
    base_file_format: str
    key_fields: tuple[str, ...]
    key_generator: str
    partition_fields: tuple[str, ...]
    hive_style_partitioning: bool
    ordering_fields: tuple[str, ...]
    merge_mode: str
    custom_merging: str
    has_meta_columns: bool
    metadata_partitions: tuple[str, ...]
    metadata_partitions_inflight: tuple[str, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IndexesReport:
    """The indexes of a table; `unusable` says why its metadata table cannot be read, if it cannot."""

    table: str
    unusable: str | None
    indexes: tuple[IndexInfo, ...]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How an index compares with the rows."""

    table: str
    is_sound: bool
    check: IndexCheck


@dataclass(frozen=True, slots=True)
class RowsReport:
    """Rows of a table. `more` says that the table has others, which were not asked for."""

    table: str
    rows: pa.Table
    more: bool = False


@dataclass(frozen=True, slots=True)
class LookupReport:
    """The rows of record keys, and the keys that the table does not have."""

    table: str
    rows: pa.Table
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServiceEntry:
    """One thing that a table service did or planned; `state` says how far it came, or what went wrong."""

    service: str
    instant: str | None
    state: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServicesReport:
    """What table services did to a table."""

    table: str
    services: tuple[ServiceEntry, ...]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair is about to put right."""

    table: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What is wrong with a table; `is_healthy` if nothing is, or nothing any more. What is `under_way` is not wrong."""

    table: str
    is_healthy: bool
    findings: tuple[Finding, ...]
    under_way: tuple[UnderWay, ...] = ()


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
