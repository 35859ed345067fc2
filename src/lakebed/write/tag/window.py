"""Tagging through a record index that covers only the newest partitions; see decision 17.

Rows for partitions outside its window are handled by the index's policy: looked up in files, taken as new, or refused.
Deletes by key may concern any partition, so partitions outside are scanned for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.index.key_batches import ProbeCounts
from lakebed.kernels.buffers import Int64s
from lakebed.model.index import IndexWindow
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.read.file_slice import SliceTask
from lakebed.write.plan import TagRule, find_in_files, key_scans
from lakebed.write.rows.columns import joined
from lakebed.write.tag.deleted import find_deleted
from lakebed.write.tag.files import Candidate, FindTask, Tagged, Tags, join_finds, rows_by_partition
from lakebed.write.tag.index import KeyIndex, tag_by_index

_NO_ROWS = np.empty(0, np.int64)


def tag_in_window(rows: pa.Table, index: KeyIndex, window: IndexWindow, *, everywhere: bool = False) -> Tagged:
    """Tags rows: by the index inside the window, by its policy outside."""
    if everywhere:
        return _find_everywhere(rows, index, window)
    paths = rows[PARTITION_PATH].unify_dictionaries().combine_chunks()
    known = np.array([window.holds(path) for path in paths.dictionary.to_pylist()], bool)
    is_inside = known[paths.indices.to_numpy()]
    if is_inside.all():
        return _with_deleted(tag_by_index(rows, index), index)
    outer = rows.filter(pa.array(~is_inside))
    if window.outside == "refuse":
        path = outer[PARTITION_PATH][0].as_py()
        raise InvalidInputError(
            f"{outer.num_rows} rows are for partitions that the record index no longer covers, {path!r} among them",
            hint="leave them out, or rebuild the index with outside='scan', which reads the keys of such partitions",
        )
    inside = _with_deleted(tag_by_index(rows.filter(pa.array(is_inside)), index), index)
    found = Tagged(outer, Tags(_NO_ROWS, _NO_ROWS, _NO_ROWS))
    if window.outside == "scan":
        found = find_in_files(outer, key_scans(index.scans), index.engine, TagRule())
    return _joined(inside, found)


def _with_deleted(tagged: Tagged, index: KeyIndex) -> Tagged:
    """Also tags rows that are not in the index, with slices whose log files have deleted their keys.

    Base files may still have these keys, and other engines, which do not use the index, find them there.
    """
    rows, tags = tagged.rows, tagged.tags
    unknown = np.setdiff1d(np.arange(rows.num_rows), tags.rows)
    scans = {number: scan for number, scan in enumerate(index.scans) if scan.file_slice.logs}
    if not len(unknown) or not scans:
        return tagged
    keys, by_partition = joined(rows[RECORD_KEY]), rows_by_partition(rows, unknown)
    asked = {number: by_partition.get(scan.file_slice.group.partition, _NO_ROWS) for number, scan in scans.items()}
    candidates = [
        Candidate(number, FindTask(scans[number], keys.take(pa.array(own)), prune=False), own)
        for number, own in asked.items()
        if len(own)
    ]
    found = join_finds(candidates, index.engine.map([each.task for each in candidates], find_deleted))
    return replace(tagged, tags=_both(tags, found))


def _both(tags: Tags, others: Tags) -> Tags:
    return Tags(
        np.concatenate([tags.rows, others.rows]),
        np.concatenate([tags.targets, others.targets]),
        np.concatenate([tags.positions, others.positions]),
    )


def _find_everywhere(rows: pa.Table, index: KeyIndex, window: IndexWindow) -> Tagged:
    inside = tag_by_index(rows, index, everywhere=True)
    numbers = [n for n, scan in enumerate(index.scans) if not window.holds(scan.file_slice.group.partition)]
    outside = _find_in(rows, [index.scans[n] for n in numbers], index)
    found = replace(outside, targets=np.array(numbers, np.int64)[outside.targets])
    return Tagged(rows, _both(inside.tags, found), inside.counts)


def _find_in(rows: pa.Table, scans: Sequence[SliceTask], index: KeyIndex) -> Tags:
    return find_in_files(rows, key_scans(scans), index.engine, TagRule(everywhere=True)).tags


def _joined(inside: Tagged, outside: Tagged) -> Tagged:
    """Concatenates tagged rows, those inside the window first."""
    shifted: Int64s = outside.tags.rows + inside.rows.num_rows
    counts = (inside.counts or ProbeCounts()) + ProbeCounts(outside=outside.rows.num_rows)
    return replace(
        inside,
        rows=pa.concat_tables([inside.rows, outside.rows]),
        tags=_both(inside.tags, replace(outside.tags, rows=shifted)),
        counts=counts,
    )
