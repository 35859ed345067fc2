"""The write operations that users call: each turns rows of any kind into a commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import shared_threads
from lakebed.errors import InvalidInputError
from lakebed.index.keys import KEY_INDEX, is_global
from lakebed.index.lost import has_lost_global_index
from lakebed.model.text import check_texts
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.options import WriteOptions
from lakebed.table import TableHandle
from lakebed.transaction.transactions import Transactions
from lakebed.write.checks import check_options, has_key_index
from lakebed.write.columnar import ColumnarPlane
from lakebed.write.operations import (
    BULK_INSERT,
    DELETE,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    UPSERT,
    Operation,
)
from lakebed.write.plan import TagRule
from lakebed.write.planner import DeletePartitions, WriteRows
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.rows.input import Input, open_input
from lakebed.write.rows.keys import find_field, make_keys, plan_keys
from lakebed.write.rows.prepare import PreparePlan, check_gaps, plan_prepare
from lakebed.write.rows.schema import check_spelling
from lakebed.write.staging import Prepared
from lakebed.write.values import IS_DELETE
from lakebed.write.writer import Writer, WriteResult


class TableWrites:
    """The write operations on one table."""

    def __init__(self, handle: TableHandle, transactions: Transactions, options: WriteOptions) -> None:
        self._handle = handle
        self._writer = Writer(handle, transactions, ColumnarPlane(options), options.metadata_log_blocks)
        self._options = options

    def upsert(self, rows: object, *, partial: bool = False) -> WriteResult:
        """Inserts rows with new keys and updates the others; if `partial`, only the given columns."""
        return self._write(rows, UPSERT, partial=partial)

    def insert(self, rows: object) -> WriteResult:
        """Appends rows without looking for their keys."""
        return self._write(rows, INSERT)

    def bulk_insert(self, rows: object) -> WriteResult:
        """Appends rows to new files, sorted as the option hoodie.bulkinsert.sort.mode asks for.

        Rows that are too many for one process are sorted within each file only.
        """
        return self._write(rows, BULK_INSERT)

    def overwrite(self, rows: object, *, whole_table: bool) -> WriteResult:
        """Replaces all rows of the partitions that occur in `rows`, or of the table."""
        return self._write(rows, INSERT_OVERWRITE_TABLE if whole_table else INSERT_OVERWRITE)

    def delete(self, keys: object) -> WriteResult:
        """Deletes by record keys as text, or by rows with the key columns and, if given, the partition columns."""
        if _is_text(keys):
            return self._delete_keys(_texts(keys))
        state = self._handle.state()
        given = open_input(keys)
        check_spelling((*state.config.key_fields, *state.config.partition_fields), given.schema.names)
        if all(find_field(given.schema, name) is not None for name in state.config.partition_fields):
            plan = plan_prepare(state.config, state.data_schema(state.latest), given.schema, deletes=True)
            return self._finish(given, plan, DELETE)
        # Without partition columns, the keys are looked up in all partitions.
        key_plan = plan_keys(state.config, given.schema)
        found = [make_keys(batch, key_plan) for batch in given.batches()]
        return self._delete_keys(pa.chunked_array(found, pa.string()).unique())

    def delete_partitions(self, partitions: str | Iterable[str]) -> WriteResult:
        """Deletes all rows of partitions, given as values of `_hoodie_partition_path`; each must have files."""
        is_one = isinstance(partitions, str) or not isinstance(partitions, Iterable)
        wanted: tuple[Any, ...] = (partitions,) if is_one else tuple(partitions)
        known = {file_slice.group.partition for file_slice in self._handle.state().latest_slices}
        missing = [partition for partition in wanted if not isinstance(partition, str) or partition not in known]
        if missing or not wanted:
            raise _no_partition(missing, known)
        return self._writer.write(DeletePartitions(frozenset(wanted)))

    def _write(self, rows: object, operation: Operation, *, partial: bool = False) -> WriteResult:
        state = self._handle.state()
        with shared_threads():
            given = open_input(rows)
        columns, fills = state.data_schema(state.latest), self._options.fills_missing
        if not fills:
            check_gaps(columns, given.gaps, is_partial=partial)
        plan = plan_prepare(state.config, columns, given.schema, partial=partial, fills=fills)
        return self._finish(given, plan, operation)

    def _finish(self, given: Input, plan: PreparePlan, operation: Operation) -> WriteResult:
        has_keys = bool(self._handle.config.key_fields)
        if operation.finds_keys and not has_keys:
            raise InvalidInputError(
                f"table {self._handle.config.name} generates its keys, so no row can be found by key",
                hint="use insert or bulk_insert; create a table with a record key for upserts",
            )
        rule = self._rule()
        if operation.finds_keys:
            self._check_not_lost(rule)
        source = given.prepare(self._handle.storage, plan)
        arrangement = self._arrangement(operation, rule)
        result = self._writer.write(WriteRows(source, plan.columns, operation, rule, arrangement))
        return replace(result, jobs=given.jobs)

    def _check_not_lost(self, rule: TagRule) -> None:
        """Raises InvalidInputError if a lost global index would be replaced by looking up keys per partition."""
        state = self._handle.last_look
        if rule.by_index or self._options.index != "auto" or not has_lost_global_index(state):
            return
        raise InvalidInputError(
            f"table {state.config.name} lost its record index, which was global: without it, an upsert "
            "would duplicate keys that are stored in another partition",
            hint=f'rebuild it with table.doctor(repair=True) or table.indexes.create("{KEY_INDEX}"); or, if keys need '
            f'to be unique only within their partition, drop it: table.indexes.drop("{KEY_INDEX}")',
        )

    def _arrangement(self, operation: Operation, rule: TagRule) -> Arrangement:
        config = self._handle.config
        combines = operation.combines or (self._options.combine_inserts and not operation.finds_keys)
        return Arrangement(
            config,
            combines=combines and bool(config.key_fields),
            by_partition=not rule.is_global,
            sorts=operation is BULK_INSERT and self._options.sort_mode != "none",
            generates=not config.key_fields,
        )

    def _delete_keys(self, keys: pa.Array) -> WriteResult:
        prepared = Prepared(_key_rows(keys))
        rule, as_they_are = self._rule(everywhere=True), Arrangement(self._handle.config)
        return self._writer.write(WriteRows(lambda *_: prepared, pa.schema([]), DELETE, rule, as_they_are))

    def _rule(self, *, everywhere: bool = False) -> TagRule:
        """How keys are looked up: by the record index if there is one, unless the options ask for another way."""
        state, asked = self._handle.last_look, self._options.index
        check_options(state, self._options)
        if not has_key_index(state) or asked in ("simple", "bloom"):
            return TagRule(everywhere=everywhere, prune=asked != "simple")
        return TagRule(
            everywhere, by_index=True, is_global=is_global(state.definitions), moves=self._options.moves_rows
        )


def _is_text(keys: object) -> bool:
    many = isinstance(keys, (list, tuple, set, frozenset)) and all(isinstance(key, str) for key in keys)
    return many or isinstance(keys, str)


def _no_partition(missing: Sequence[object], known: Iterable[str]) -> InvalidInputError:
    if not missing:
        return InvalidInputError("no partition is given", hint="give the paths of the partitions to delete")
    nearest = get_close_matches(str(missing[0]), known, n=3)
    meant = f"did you mean {' or '.join(map(repr, nearest))}? " if nearest else ""
    return InvalidInputError(
        f"the table has no files in the partition {missing[0]!r}",
        hint=f"{meant}give paths as the column {PARTITION_PATH} has them; nothing was deleted",
    )


def _texts(keys: Any) -> pa.Array:
    check_texts((keys,) if isinstance(keys, str) else keys, "the record key")
    return pa.array(sorted({keys} if isinstance(keys, str) else {*keys}), pa.string())


def _key_rows(keys: pa.Array) -> pa.Table:
    """Rows that delete keys in any partition."""
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(keys), np.int32), pa.array([""], pa.string()))
    return pa.table({RECORD_KEY: keys, PARTITION_PATH: paths, IS_DELETE: pa.repeat(pa.scalar(True), len(keys))})
