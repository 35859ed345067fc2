"""Preparing rows: record key and partition path of each, and the table's columns in the table's types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidInputError
from lakebed.model.config import TableConfig
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, MergeMode
from lakebed.write.conform import conform_batch
from lakebed.write.keys import KeyPlan, find_field, plan_keys, record_keys
from lakebed.write.partition_paths import PATHS, PathPlan, partition_paths, plan_paths
from lakebed.write.schema import IS_DELETED, evolve_schema
from lakebed.write.values import IS_DELETE


class Deletes(Enum):
    """Which rows are deletes."""

    NONE = "none"
    MARKED = "those whose column `_hoodie_is_deleted` is true"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PreparePlan:
    """How batches of one write become prepared rows; made once, used by every task.

    `columns` are the data columns of prepared rows, `sources` those and the ones that keys and paths are made of.
    """

    columns: pa.Schema
    sources: pa.Schema
    keys: KeyPlan
    paths: PathPlan
    deletes: Deletes

    @property
    def schema(self) -> pa.Schema:
        """The schema of prepared rows."""
        flag = [] if self.deletes is Deletes.NONE else [pa.field(IS_DELETE, pa.bool_())]
        return pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, PATHS), *self.columns, *flag])


def plan_rows(
    config: TableConfig, table: pa.Schema, incoming: pa.Schema, *, partial: bool = False, deletes: bool = False
) -> PreparePlan:
    """How rows with `incoming` columns are prepared for a table with columns `table`, which grow where they must.

    A `partial` update gives values for some columns; otherwise columns that are not given are null. For `deletes`,
    only the columns of keys and paths matter. Raises InvalidInputError if the rows cannot be written.
    """
    named = (*config.key_fields, *config.partition_fields)
    if deletes:
        incoming = pa.schema([field for field in incoming if _is_part_of(field.name, named)])
    evolved = evolve_schema(table, incoming, keep={name.partition(".")[0] for name in named})
    given = pa.schema([field for field in evolved if field.name in incoming.names])
    sources = given if partial or deletes else evolved
    _check_given(config, evolved, given, is_partial=partial, is_delete=deletes)
    return PreparePlan(
        columns=pa.schema([]) if deletes else sources,
        sources=sources,
        keys=plan_keys(config, given),
        paths=plan_paths(config, given),
        deletes=Deletes.ALL if deletes else Deletes.MARKED if _marks_deletes(incoming) else Deletes.NONE,
    )


def prepare_batch(batch: pa.RecordBatch, plan: PreparePlan, *, first_row: int = 0) -> pa.Table:
    """The prepared rows of a batch, in its order; `first_row` numbers its rows in errors."""
    rows = conform_batch(batch, plan.sources, first_row=first_row)
    keys = record_keys(rows, plan.keys, first_row=first_row)
    paths = partition_paths(rows, plan.paths, first_row=first_row)
    columns = [keys, paths, *(rows.column(name) for name in plan.columns.names)]
    if plan.deletes is Deletes.ALL:
        columns.append(pa.repeat(pa.scalar(True), batch.num_rows))
    elif plan.deletes is Deletes.MARKED:
        columns.append(pc.fill_null(batch.column(IS_DELETED), False))
    return pa.table(columns, schema=plan.schema)


def _check_given(
    config: TableConfig, evolved: pa.Schema, given: pa.Schema, *, is_partial: bool, is_delete: bool
) -> None:
    if is_delete:
        return
    if not is_partial:
        _check_required(evolved, given)
    elif config.merge_mode is MergeMode.EVENT_TIME_ORDERING:
        for name in config.ordering_fields:
            if find_field(given, name) is None:
                raise InvalidInputError(
                    f"the rows lack the ordering column {name!r}",
                    hint="add it: it decides whether the update is newer than what the table has",
                )


def _check_required(evolved: pa.Schema, given: pa.Schema) -> None:
    for field in evolved:
        if not field.nullable and field.name not in given.names:
            raise InvalidInputError(
                f"the rows lack the column {field.name!r}, which must not be null",
                hint=f"add it, of type {field.type}; columns that may be null can be left out",
            )


def _marks_deletes(incoming: pa.Schema) -> bool:
    if IS_DELETED not in incoming.names:
        return False
    kind = incoming.field(IS_DELETED).type
    if kind != pa.bool_():
        raise InvalidInputError(
            f"column {IS_DELETED!r} is of type {kind}", hint="cast it to bool: true marks rows to delete"
        )
    return True


def _is_part_of(column: str, named: Iterable[str]) -> bool:
    return any(column in (name, name.partition(".")[0]) for name in named)
