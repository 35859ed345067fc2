"""Keys that log files delete. With a shared record index, a row of such a key is inserted into another file group.

Apache Hudi writes new keys to base files, never on top of a delete; lakebed may add them to log files. There, a delete
with a greater ordering value would hide the row; and if the deleted row in the base file has a greater value, Apache
Hudi would show it again. Without such an index, keys stay in the file group that deleted them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.engines import Engine
from lakebed.format.arrow import text_array
from lakebed.format.log.blocks import decode_deletes, decode_records
from lakebed.format.log.file import BlockKind, LogBlock, block_kinds, decode_log_file
from lakebed.kernels.buffers import Int64s
from lakebed.model.files import FileSlice, LogFile
from lakebed.model.words import RECORD_KEY
from lakebed.read.file_slice import IS_DELETED
from lakebed.read.keyed_files import HELD
from lakebed.read.merge import Rules, merge_rules
from lakebed.storage import Storage
from lakebed.write.assign import Space
from lakebed.write.rows.columns import joined
from lakebed.write.tag.files import FindTask
from lakebed.write.values import DELETED, WriteContext

Spaces = Mapping[str, Sequence[Space]]


@dataclass(frozen=True, slots=True)
class FreeRows:
    """Takes rows for small files, without keys that their log files delete; for some files these are `known`."""

    context: WriteContext
    slices: Sequence[FileSlice]
    keys: pa.ChunkedArray
    known: Mapping[int, pa.Array]

    def __call__(self, space: Space, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Splits rows into those that go to the file, and the rest."""
        deleted = self.known.get(space.target)
        if deleted is None:
            deleted = _barred_keys(self.slices[space.target], self.context)
        if not len(deleted):
            return rows[: space.rows], rows[space.rows :]
        keys = joined(self.keys.take(pa.array(rows)))
        is_free = ~pc.is_in(keys, value_set=deleted).to_numpy(zero_copy_only=False)
        is_taken = is_free & (np.cumsum(is_free) <= space.rows)
        return rows[is_taken], rows[~is_taken]


def free_rows(
    rows: pa.Table,
    inserts: Mapping[str, Int64s],
    spaces: Spaces,
    slices: Sequence[FileSlice],
    context: WriteContext,
    engine: Engine,
) -> FreeRows:
    """Plans which new rows small files take; reads the log files of those that will be used."""
    asked = [
        space.target
        for partition, numbers in inserts.items()
        for space in _first(spaces.get(partition, ()), len(numbers))
        if slices[space.target].logs
    ]
    found = engine.map([slices[target] for target in asked], partial(_barred_keys, context=context))
    return FreeRows(context, slices, rows[RECORD_KEY], dict(zip(asked, found, strict=True)))


def spaces_without_deletes(
    spaces: Spaces, slices: Sequence[FileSlice], context: WriteContext, engine: Engine
) -> dict[str, list[Space]]:
    """The small files whose log files delete no key, for rows whose keys are not in memory."""
    targets = [space.target for some in spaces.values() for space in some if slices[space.target].logs]
    found = engine.map([slices[target] for target in targets], partial(_barred_keys, context=context))
    left_out = {target for target, keys in zip(targets, found, strict=True) if len(keys)}
    return {name: [space for space in some if space.target not in left_out] for name, some in spaces.items()}


def find_deleted(task: FindTask) -> tuple[Int64s, Int64s]:
    """Indices of keys, absent from the slice, that its log files delete; and the position `DELETED` for each."""
    deleted = _deleted_keys(task.scan.file_slice, task.scan.storage, task.scan.schema)
    found = np.flatnonzero(pc.is_in(task.keys, value_set=deleted).to_numpy(zero_copy_only=False))
    return found, np.full(len(found), DELETED)


def _barred_keys(file_slice: FileSlice, context: WriteContext) -> pa.Array:
    """The keys that must not be added to log files of a slice: deleted ones; none with commit-time ordering."""
    if not file_slice.logs or merge_rules(context.config) is Rules.COMMIT_TIME:
        return text_array([])
    return _deleted_keys(file_slice, context.storage, context.schema)


def _deleted_keys(file_slice: FileSlice, storage: Storage, schema: pa.Schema) -> pa.Array:
    is_marked = IS_DELETED in schema.names
    found = (_deleted_by(storage, file_slice.path(log.name), log, is_marked=is_marked) for log in file_slice.logs)
    return pa.concat_arrays([text_array([]), *found])


def _first(spaces: Sequence[Space], count: int) -> Iterator[Space]:
    """The first spaces, enough for `count` rows."""
    for space in spaces:
        if count <= 0:
            return
        yield space
        count -= space.rows


class _Deleted:
    """The keys that a log file deletes, cached because every write to its slice needs them."""

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return 256 + int(self.keys.nbytes)


def _deleted_by(storage: Storage, path: str, log: LogFile, *, is_marked: bool) -> pa.Array:
    make: Callable[[], _Deleted] = lambda: _Deleted(_load(storage, path, log, is_marked=is_marked))  # noqa: E731
    return HELD.find((storage.url, path, log.size, is_marked), _Deleted, make).keys


def _load(storage: Storage, path: str, log: LogFile, *, is_marked: bool) -> pa.Array:
    """Reads the file only if it may have deletes; `is_marked`: its records may be soft deletes."""
    if not is_marked and BlockKind.DELETE not in block_kinds(storage.source(path, log.size)):
        return text_array([])
    found = (keys for block in decode_log_file(storage.get(path), path=path) for keys in _deletes_of(block, path))
    return pa.concat_arrays([text_array([]), *found])


def _deletes_of(block: LogBlock, path: str) -> Iterator[pa.Array]:
    if block.kind is BlockKind.DELETE:
        yield joined(decode_deletes(block, path=path)["key"])
    elif block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
        records = decode_records(block, path=path, columns=[RECORD_KEY, IS_DELETED])
        if IS_DELETED in records.column_names:
            yield joined(records.filter(pc.fill_null(records[IS_DELETED], False))[RECORD_KEY])
