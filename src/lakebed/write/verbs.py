"""The write operations as users call them: from rows of any kind to a commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.engine.threads import shared_threads
from lakebed.errors import InvalidInputError
from lakebed.metadata import MetadataTable
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.options import WriteOptions
from lakebed.table import TableHandle
from lakebed.table.lost import has_lost_global_index
from lakebed.write.arrange import Arrangement
from lakebed.write.input import Input, open_input
from lakebed.write.keys import find_field, plan_keys, record_keys
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
        """Adds rows to new files, in the order that the option hoodie.bulkinsert.sort.mode asks for.

        Of rows that are too many for one process, those of each file are brought into that order.
        """
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
        with shared_threads():
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
        if operation.finds_keys:
            self._check_not_lost(rule)
        source = given.prepare(self._handle.storage, plan)
        result = self._writer.write_rows(source, plan.columns, operation, rule, self._arrangement(operation, rule))
        return replace(result, jobs=given.jobs)

    def _check_not_lost(self, rule: TagRule) -> None:
        """Raises if keys would be looked for in their own partitions, where an index that is lost knew all of them."""
        state = self._handle.last_look
        if rule.by_index or self._options.index != "auto" or not has_lost_global_index(state):
            return
        raise InvalidInputError(
            f"table {state.config.name} lost its record index, which knew where in the whole table a key is: without "
            "it a key that is in another partition would be written twice",
            hint='build it anew with table.doctor(repair=True) or table.indexes.create("record_index"); or, if keys '
            'need be unique in their partition only, give it up for good: table.indexes.drop("record_index")',
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
        return self._writer.write_rows(lambda *_: prepared, pa.schema([]), DELETE, rule, as_they_are)

    def _rule(self, *, everywhere: bool = False) -> TagRule:
        """How keys are found: by the record index if there is one, unless the options ask for another way."""
        state, asked = self._handle.last_look, self._options.index
        has_index = "record_index" in state.config.metadata_partitions
        if isinstance(state.metadata, MetadataTable):
            has_index = state.metadata.has("record_index")
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
