"""Executes one group of a clustering: reads and orders its rows, and writes them to new file groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakebed.engine.randomness import new_write_token
from lakebed.errors import ServiceCancelledError
from lakebed.format.arrow import without_unused
from lakebed.format.file_names import encode_base_file_name
from lakebed.index.facts import FileFacts
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.words import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakebed.services.clustering.order import row_order
from lakebed.services.clustering.plan import Layout
from lakebed.transaction.markers import write_markers
from lakebed.transaction.plans import is_cancelled
from lakebed.write.files.base import base_file_table, constant, file_schema, store_base_file, with_entries
from lakebed.write.files.merge import read_stored
from lakebed.write.rows.columns import numbered_texts
from lakebed.write.values import NOT_COUNTED, WriteContext


@dataclass(frozen=True, slots=True)
class ClusteringTask:
    """Slices of one partition whose rows are written to new file groups, one per file id. Picklable.

    If `preserves` is set, rows keep their commit time and sequence number. If `gives_keys` is set, the task returns
    record keys, which an index needs; there may be many.
    """

    context: WriteContext
    number: int
    slices: tuple[FileSlice, ...]
    file_ids: tuple[str, ...]
    order_by: tuple[str, ...] = ()
    layout: Layout = "linear"
    preserves: bool = True
    gives_keys: bool = True


def run_clustering_task(task: ClusteringTask) -> tuple[FileFacts, ...]:
    """Runs a task and returns its files. Running it again writes other files, with another write token."""
    context = task.context
    if is_cancelled(context.storage, context.instant):
        raise ServiceCancelledError(f"the plan {context.instant} was cancelled", hint="schedule a new one")
    rows = pa.concat_tables([read_stored(context, each) for each in task.slices]).unify_dictionaries()
    pieces = list(_cut(rows, task))
    token = new_write_token(task.number)
    stats = [_stat(task, file_id, token) for file_id in task.file_ids[: len(pieces)]]
    write_markers(context.storage, context.instant, [stat.path for stat in stats], token)
    return tuple(_store(task, rows.take(piece), stat) for piece, stat in zip(pieces, stats, strict=True))


def _cut(rows: pa.Table, task: ClusteringTask) -> Iterator[pa.Array]:
    """The row numbers of each file, in order and about equally many."""
    numbers = pa.array(np.arange(rows.num_rows))
    order = row_order(rows, task.order_by, task.layout) if task.order_by else numbers
    count = min(len(task.file_ids), rows.num_rows)
    bounds: list[int] = np.linspace(0, rows.num_rows, count + 1).astype(int).tolist() if count else []
    return (order.slice(start, end - start) for start, end in pairwise(bounds))


def _stat(task: ClusteringTask, file_id: str, token: str) -> WriteStat:
    first, name = task.slices[0], encode_base_file_name(file_id, token, task.context.instant)
    return WriteStat(file_id, first.path(name), first.group.partition, extra=NOT_COUNTED)


def _store(task: ClusteringTask, rows: pa.Table, stat: WriteStat) -> FileFacts:
    count = rows.num_rows
    meta = [*_origin(task, rows, stat), rows[RECORD_KEY], constant(stat.partition, count), constant("", count)]
    table = base_file_table(meta, rows.select(file_schema(task.context).names))
    written = store_base_file(task.context, table, replace(stat, num_inserts=count))
    return with_entries(written, rows, task.context) if task.gives_keys else written


def _origin(task: ClusteringTask, rows: pa.Table, stat: WriteStat) -> list[pa.ChunkedArray | pa.Array]:
    """Commit times and sequence numbers of rows, preserved or new."""
    if task.preserves:
        return [without_unused(rows[COMMIT_TIME].combine_chunks()), rows[COMMIT_SEQNO]]
    instant = task.context.instant
    prefix = f"{instant}_{task.number}_{task.file_ids.index(stat.file_id)}_"
    return [constant(instant, rows.num_rows), numbered_texts(prefix, 0, rows.num_rows)]
