"""The columns of a table as a report."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.api import Table
from lakebed.reports.spark_types import spark_type


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


def schema_report(table: Table) -> SchemaReport:
    """The columns of the newest snapshot."""
    columns = tuple(ColumnEntry(field.name, spark_type(field.type), field.nullable) for field in table.schema)
    return SchemaReport(table.config.name, columns)
