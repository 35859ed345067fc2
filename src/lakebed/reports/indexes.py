"""The indexes of a table as reports: which there are and in what state, and how one compares with the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.api import Table, handle_of
from lakebed.metadata import Unusable
from lakebed.observe import SILENT, Observer

if TYPE_CHECKING:
    from lakebed.index.check import IndexCheck
    from lakebed.services.indexing.indexes import IndexInfo


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


def indexes_report(table: Table) -> IndexesReport:
    """The table's indexes, or why they cannot be used."""
    metadata = handle_of(table).state().metadata
    unusable = metadata.reason if isinstance(metadata, Unusable) else None
    return IndexesReport(table.config.name, unusable, table.indexes.list())


def check_report(table: Table, name: str, *, examples: int, observer: Observer = SILENT) -> CheckReport:
    """How an index compares with the rows, with at most so many `examples` of each difference."""
    check = table.indexes.validate(name, examples=examples, observer=observer)
    return CheckReport(table.config.name, check.is_sound, check)
