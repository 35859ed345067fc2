"""Looks up rows by record key, through the record index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.index.keys import KEY_INDEX, find_locations, outside_window
from lakebed.metadata import MetadataTable
from lakebed.metadata.table import CHANGED
from lakebed.model.files import FileGroupId
from lakebed.model.text import check_texts
from lakebed.read.scan import plan_slices, read_arrow
from lakebed.table import TableState


def lookup_keys(state: TableState, keys: Iterable[str], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows with these record keys (values of `_hoodie_record_key`); absent keys return no row.

    Partitions that the index does not cover are scanned.
    """
    wanted = _checked(keys)
    metadata = state.metadata
    if not isinstance(metadata, MetadataTable) or not _is_indexed(metadata):
        raise InvalidInputError(
            f"table {state.config.name} has no record index for key lookups",
            hint="filter a scan instead: table.to_arrow(where=\"key = 'k1'\")",
        )
    by_group = _find_groups(state, metadata, wanted)
    found = (state.find_slice(group) for group in sorted(by_group))
    slices = tuple(file_slice for file_slice in found if file_slice is not None)
    plan = plan_slices(state, state.latest, slices, columns=columns, where=None, is_latest=True)
    tasks = tuple(replace(task, keys=frozenset(by_group[task.file_slice.group])) for task in plan.tasks)
    return read_arrow(replace(plan, tasks=tasks))


def _is_indexed(metadata: MetadataTable) -> bool:
    """Whether there is a record index, or was one when the table was looked at."""
    return metadata.has(KEY_INDEX) or metadata.stale.get(KEY_INDEX) == CHANGED


def _find_groups(state: TableState, metadata: MetadataTable, keys: Sequence[str]) -> dict[FileGroupId, set[str]]:
    """The file groups that may contain the keys, and which; all file groups if the index was dropped meanwhile."""
    by_group: dict[FileGroupId, set[str]] = {}
    if metadata.has(KEY_INDEX):
        try:
            for key, places in find_locations(metadata, keys).items():
                for place in places:
                    by_group.setdefault(FileGroupId(place.partition, place.file_id), set()).add(key)
        except CorruptTableError:
            if not metadata.has_changed():
                raise
            metadata.do_without((KEY_INDEX,), CHANGED)
        metadata.leave_out_changed()
    if not metadata.has(KEY_INDEX):
        return {file_slice.group: set(keys) for file_slice in state.latest_slices}
    for group in outside_window(state):
        by_group[group] = set(keys)
    return by_group


def _checked(keys: Iterable[str]) -> tuple[str, ...]:
    wanted = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in wanted:
        if not isinstance(key, str):
            raise InvalidInputError(
                f"record keys are text, not {type(key).__name__}: {key!r}",
                hint="give keys as in the column _hoodie_record_key, e.g. 'k1', or 'a:1,b:2' for two key columns",
            )
    check_texts(wanted, "the record key")
    return wanted
