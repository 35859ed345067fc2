"""The write operations as users call them: from rows of any kind to a commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import InProcess
from lakebed.errors import InvalidInputError
from lakebed.model.instant import InstantTime
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.options import WriteOptions
from lakebed.table import TableHandle
from lakebed.write.dedupe import combine_duplicates
from lakebed.write.input import Input, open_input
from lakebed.write.keys import find_field, generate_keys, plan_keys, record_keys
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
from lakebed.write.prepare import PreparePlan, plan_rows
from lakebed.write.staging import Prepared
from lakebed.write.values import IS_DELETE
from lakebed.write.writer import Writer, WriteResult


class TableWrites:
    """Every write operation on one table."""

    def __init__(self, handle: TableHandle, writer: Writer, options: WriteOptions) -> None:
        self._handle = handle
        self._writer = writer
        self._options = options

    def upsert(self, rows: object, *, partial: bool = False) -> WriteResult:
        """Inserts rows whose key is new, and updates the others; if `partial`, only in the columns that are given."""
        return self._write(rows, UPSERT, partial=partial)

    def insert(self, rows: object) -> WriteResult:
        """Adds rows without looking for their keys."""
        return self._write(rows, INSERT)

    def bulk_insert(self, rows: object) -> WriteResult:
        """Adds rows to new files, in the order that the option hoodie.bulkinsert.sort.mode asks for."""
        return self._write(rows, BULK_INSERT)

    def overwrite(self, rows: object, *, whole_table: bool) -> WriteResult:
        """Replaces all rows of the partitions that occur in `rows`, or of the table."""
        return self._write(rows, INSERT_OVERWRITE_TABLE if whole_table else INSERT_OVERWRITE)

    def delete(self, keys: object) -> WriteResult:
        """Deletes by record keys as text, or by rows with the key columns, and those of the partition if there are."""
        if _is_text(keys):
            return self._delete_keys(_texts(keys))
        state = self._handle.state()
        given = open_input(keys)
        if all(find_field(given.schema, name) is not None for name in state.config.partition_fields):
            plan = plan_rows(state.config, state.data_schema(state.latest), given.schema, deletes=True)
            return self._finish(given, plan, DELETE)
        # Without the columns of the partition the keys alone must do: they are looked for in all partitions.
        key_plan = plan_keys(state.config, given.schema)
        found = [record_keys(batch, key_plan) for batch in given.batches()]
        return self._delete_keys(pa.chunked_array(found, pa.string()).unique())

    def delete_partitions(self, partitions: str | Iterable[str]) -> WriteResult:
        """Deletes all rows of partitions, given as `_hoodie_partition_path` spells them."""
        return self._writer.delete_partitions((partitions,) if isinstance(partitions, str) else partitions)

    def _write(self, rows: object, operation: Operation, *, partial: bool = False) -> WriteResult:
        state = self._handle.state()
        given = open_input(rows)
        plan = plan_rows(state.config, state.data_schema(state.latest), given.schema, partial=partial)
        return self._finish(given, plan, operation)

    def _finish(self, given: Input, plan: PreparePlan, operation: Operation) -> WriteResult:
        has_keys = bool(self._handle.config.key_fields)
        if operation.finds_keys and not has_keys:
            raise InvalidInputError(
                f"table {self._handle.config.name} generates its keys, so no row can be found by key",
                hint="use insert or bulk_insert; make a table with a key for upserts",
            )
        rule = self._rule()
        prepare = given.prepare(self._handle.storage, plan)

        def source(instant: InstantTime) -> Prepared:
            prepared = prepare(instant)
            rows = prepared.rows if has_keys else generate_keys(prepared.rows, instant)
            return replace(prepared, rows=self._arrange(rows, operation, rule))

        result = self._writer.write_rows(source, plan.columns, operation, rule)
        return replace(result, jobs=given.jobs)

    def _arrange(self, rows: pa.Table, operation: Operation, rule: TagRule) -> pa.Table:
        config = self._handle.config
        if operation.combines or (self._options.combine_inserts and not operation.finds_keys):
            rows = combine_duplicates(rows, config.ordering_fields, config.merge_mode, by_partition=not rule.is_global)
        return _sorted(rows, self._options.sort_mode) if operation is BULK_INSERT else rows

    def _delete_keys(self, keys: pa.Array) -> WriteResult:
        prepared = Prepared(_key_rows(keys), InProcess())
        return self._writer.write_rows(lambda _: prepared, pa.schema([]), DELETE, self._rule(everywhere=True))

    def _rule(self, *, everywhere: bool = False) -> TagRule:
        """How keys are found: by the record index if there is one, unless the options ask for another way."""
        state, asked = self._handle.last_look, self._options.index
        has_index = "record_index" in state.config.metadata_partitions
        if asked == "record" and not has_index:
            raise InvalidInputError(
                f"table {state.config.name} has no record index to find keys with",
                hint='make one: table.indexes.create("record_index"), or leave the option hoodie.index.type out',
            )
        if not has_index or asked not in ("auto", "record"):
            return TagRule(everywhere=everywhere, prune=asked != "simple")
        definition = state.definitions.get("record_index")
        is_global = definition is None or not definition.is_partitioned
        return TagRule(everywhere, by_index=True, is_global=is_global, moves=self._options.moves_rows)


def _is_text(keys: object) -> bool:
    many = isinstance(keys, (list, tuple, set, frozenset)) and all(isinstance(key, str) for key in keys)
    return many or isinstance(keys, str)


def _texts(keys: Any) -> pa.Array:
    return pa.array(sorted({keys} if isinstance(keys, str) else {*keys}), pa.string())


def _key_rows(keys: pa.Array) -> pa.Table:
    """Deletes of keys that may be in any partition."""
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(keys), np.int32), pa.array([""], pa.string()))
    return pa.table({RECORD_KEY: keys, PARTITION_PATH: paths, IS_DELETE: pa.repeat(pa.scalar(True), len(keys))})


def _sorted(rows: pa.Table, mode: str) -> pa.Table:
    """Rows by key; writing keeps their order inside each partition, so both sort modes come to the same."""
    return rows if mode == "none" else rows.sort_by([(RECORD_KEY, "ascending")])
