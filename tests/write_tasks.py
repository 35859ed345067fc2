"""Contexts and tasks for tests of the write path, on a table in memory or in a folder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.avro.schema import avro_schema
from lakebed.format.file_names import decode_data_file_name
from lakebed.index.facts import FileFacts
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import InstantTime
from lakebed.model.words import META_COLUMNS
from lakebed.storage import Storage, open_storage
from lakebed.view.blocks import CountedInstants
from lakebed.write.values import FileSizing, InMemory, WriteContext, WriteTask

FILE_ID = "9e1ff7e7-7578-4c65-9921-704ef5274d85-0"
FIRST, SECOND = InstantTime("20261115235530634"), InstantTime("20261116000018877")
PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "region",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.keygenerator.type": "SIMPLE",
}
_NUMBERS = itertools.count(1)


def a_context(
    schema: pa.Schema,
    *,
    instant: InstantTime = FIRST,
    storage: Storage | None = None,
    properties: dict[str, str] | None = None,
    files: FileSizing | None = None,
    stats: Sequence[str] = (),
) -> WriteContext:
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return WriteContext(
        storage=storage or open_storage(f"memory://write-tasks-{next(_NUMBERS)}"),
        config=TableConfig({**PROPERTIES, **(properties or {})}),
        schema=schema,
        avro_json=avro_schema(pa.schema([*meta, *schema]), name="t_record", namespace="hoodie.t"),
        instant=instant,
        stats_columns=tuple(stats),
        counts=CountedInstants(frozenset(), "0"),
        files=files or FileSizing(),
    )


def later(context: WriteContext, **changes: Any) -> WriteContext:
    """The same table, at the second instant."""
    return replace(context, instant=SECOND, **changes)


def prepared(rows: pa.Table, *, partition: str = "eu", key: str = "id") -> pa.Table:
    """Rows with the columns that the write path wants in front."""
    keys = rows[key].cast(pa.string())
    paths = pa.array([partition] * rows.num_rows, pa.dictionary(pa.int32(), pa.string()))
    meta = pa.table({"_hoodie_record_key": keys, "_hoodie_partition_path": paths})
    return pa.table([*meta.columns, *rows.columns], schema=pa.schema([*meta.schema, *rows.schema]))


def a_task(
    context: WriteContext, rows: pa.Table, *, onto: FileFacts | FileSlice | None = None, partition: str = "eu"
) -> WriteTask:
    """A task for prepared rows, with a token of its own."""
    before = slice_of(onto) if isinstance(onto, FileFacts) else onto
    group = before.group if before else FileGroupId(partition, FILE_ID)
    return WriteTask(context, 3, group, before, InMemory(rows), f"3-{next(_NUMBERS)}-0")


def slice_of(written: FileFacts) -> FileSlice:
    stat = written.stat
    base = decode_data_file_name(stat.path.rpartition("/")[2], size=stat.file_size)
    return FileSlice(FileGroupId(stat.partition, stat.file_id), base.instant, base)


def read_file(context: WriteContext, path: str) -> pa.Table:
    """A base file as any reader of Parquet sees it."""
    return pq.read_table(pa.BufferReader(context.storage.get(path)))
