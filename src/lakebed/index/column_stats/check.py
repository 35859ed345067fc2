"""Checking statistics: an entry may be wider than what it is of, never narrower."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.engine.engines import map_bounded
from lakebed.index.check import Checked, Tally
from lakebed.index.column_stats.build import file_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS
from lakebed.index.data_files import stored_files
from lakebed.metadata.merging import Form
from lakebed.model.metadata import ColumnStats, StatValue
from lakebed.observe import Meter


def check_column_stats(checked: Checked, tally: Tally) -> None:
    """Entries and files: an entry may be wider than its file, never narrower."""
    columns = checked.metadata.definitions[COLUMN_STATS].source_fields
    files = stored_files(checked.state)
    meter = Meter(COLUMN_STATS, len(files), checked.observer)
    found: dict[tuple[str, str], ColumnStats] = {}
    for stats in map_bounded(files, lambda stored: file_stats(stored, columns)):
        meter.step()
        found |= {(each.file_name, each.column): each for each in stats}
    compare_stats(stored_stats(checked), found, tally)


def stored_stats(checked: Checked) -> dict[tuple[str, str], ColumnStats]:
    """The statistics that an index has, by file name or partition, and column."""
    definition = checked.metadata.definitions.get(COLUMN_STATS)
    found = checked.payloads(Form(definition.version if definition else "V2"))
    payloads = (payload for _, payload in found if isinstance(payload, ColumnStats))
    return {(each.file_name, each.column): each for each in payloads if not each.is_deleted}


def compare_stats(
    indexed: Mapping[tuple[str, str], ColumnStats],
    found: Mapping[tuple[str, str], ColumnStats],
    tally: Tally,
    *,
    is_exact: bool = True,
) -> None:
    """Statistics that may be too narrow are different; those of files must count exactly, others not."""
    shared = indexed.keys() & found.keys()
    counts = _counts if is_exact else _may_hold
    narrow = {k for k in shared if not counts(indexed[k], found[k]) or not _covers(indexed[k], found[k])}
    tally.compare(
        {_label(key): _bounds(stats) if key in narrow else "" for key, stats in indexed.items()},
        {_label(key): _bounds(stats) if key in narrow else "" for key, stats in found.items()},
    )


def _label(key: tuple[str, str]) -> str:
    return f"{key[1]} of {key[0] or 'the table'}"


def _bounds(stats: ColumnStats) -> str:
    return f"{stats.min_value!r} to {stats.max_value!r}, {stats.null_count} of {stats.value_count} null"


def _covers(indexed: ColumnStats, found: ColumnStats) -> bool:
    """Whether no reader leaves rows out that are there."""
    return _is_below(indexed.min_value, found.min_value) and _is_below(found.max_value, indexed.max_value)


def _counts(indexed: ColumnStats, found: ColumnStats) -> bool:
    return (indexed.value_count, indexed.null_count) == (found.value_count, found.null_count)


def _may_hold(indexed: ColumnStats, found: ColumnStats) -> bool:
    """Whether nulls are told of if there are some, and values likewise."""
    has_nulls, has_values = bool(found.null_count), found.value_count != found.null_count
    return (not has_nulls or bool(indexed.null_count)) and (not has_values or indexed.value_count != indexed.null_count)


def _is_below(low: StatValue | None, high: StatValue | None) -> bool:
    """Whether a bound is not above another; unknown ones, and those that readers do not trust, pass."""
    if low is None or high is None or isinstance(low, bytes) or low != low or high != high:
        return True
    try:
        return bool(low <= high)  # type: ignore[operator]
    except TypeError:
        return False
