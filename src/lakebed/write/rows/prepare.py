"""Prepares rows: record key, partition path, and the table's columns in the table's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidInputError
from lakebed.model.config import TableConfig
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, MergeMode
from lakebed.options import SET_NULL
from lakebed.read.file_slice import IS_DELETED
from lakebed.write.rows.conform import conform_batch
from lakebed.write.rows.keys import KeyPlan, find_field, make_keys, plan_keys
from lakebed.write.rows.partition_paths import PATHS, PathPlan, partition_paths, plan_paths
from lakebed.write.rows.schema import evolve_schema, missing_columns
from lakebed.write.values import IS_DELETE


class Deletes(Enum):
    """Which rows are deletes."""

    NONE = "none"
    MARKED = "those whose column `_hoodie_is_deleted` is true"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class PreparePlan:
    """How the batches of a write are prepared; made once, used by every task.

    `columns` are the data columns of prepared rows; `sources` also include those that keys and paths are built from.
    `required` are columns that are required in the table, and become nullable if these rows have nulls.
    """

    columns: pa.Schema
    sources: pa.Schema
    keys: KeyPlan
    paths: PathPlan
    deletes: Deletes
    required: frozenset[str] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """The schema of prepared rows."""
        flag = [] if self.deletes is Deletes.NONE else [pa.field(IS_DELETE, pa.bool_())]
        return pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field(PARTITION_PATH, PATHS), *self.columns, *flag])


def plan_prepare(
    config: TableConfig,
    table: pa.Schema,
    incoming: pa.Schema,
    *,
    partial: bool = False,
    deletes: bool = False,
    fills: bool = False,
) -> PreparePlan:
    """Plans how rows with `incoming` columns are prepared for a table with columns `table`, which may evolve.

    A `partial` update gives values for some columns; otherwise missing columns are null if `fills`, else an error. For
    `deletes`, only the columns of keys and paths matter. Raises InvalidInputError if the rows cannot be written.
    """
    named = (*config.key_fields, *config.partition_fields)
    if deletes:
        incoming = pa.schema([field for field in incoming if _is_part_of(field.name, named)])
    fixed = _heads((*config.key_fields, *config.ordering_fields))
    evolved = evolve_schema(table, incoming, keep=_heads(named), required=fixed)
    given = pa.schema([field for field in evolved if field.name in incoming.names])
    keys, paths = plan_keys(config, given), plan_paths(config, given)
    if not deletes:
        _check_given(config, table, incoming, is_partial=partial, fills=fills)
    sources = given if partial or deletes else _filled(evolved, given, fixed)
    columns = pa.schema([]) if deletes else sources
    return PreparePlan(
        columns=columns,
        sources=sources,
        keys=keys,
        paths=paths,
        deletes=Deletes.ALL if deletes else Deletes.MARKED if _marks_deletes(incoming) else Deletes.NONE,
        required=frozenset(f.name for f in table if not f.nullable and f.name in columns.names)
        - {f.name for f in columns if not f.nullable},
    )


def check_gaps(table: pa.Schema, gaps: Mapping[str, int], *, is_partial: bool) -> None:
    """Raises InvalidInputError if a row lacks a column of the table that other rows have; see `first_gaps`."""
    for name, row in gaps.items():
        if name in table.names and name != IS_DELETED:
            keep = "write it in a call of its own, with partial=True, to keep the value that is stored"
            ways = keep if is_partial else f"{keep}; the option {SET_NULL}=true sets it to null"
            raise InvalidInputError(
                f"row {row} lacks the column {name!r}, which other rows have", hint=f"add it, or None for null; {ways}"
            )


def prepare_batch(batch: pa.RecordBatch, plan: PreparePlan, *, first_row: int = 0) -> pa.Table:
    """Prepares the rows of a batch, in order; `first_row` is the number of its first row, for errors."""
    rows = conform_batch(batch, plan.sources, first_row=first_row)
    keys = make_keys(rows, plan.keys, first_row=first_row)
    paths = partition_paths(rows, plan.paths, first_row=first_row)
    columns = [keys, paths, *(rows.column(name) for name in plan.columns.names)]
    if plan.deletes is Deletes.ALL:
        columns.append(pa.repeat(pa.scalar(True), batch.num_rows))
    elif plan.deletes is Deletes.MARKED:
        columns.append(pc.fill_null(batch.column(IS_DELETED), False))
    return pa.table(columns, schema=plan.schema)


def _check_given(config: TableConfig, table: pa.Schema, incoming: pa.Schema, *, is_partial: bool, fills: bool) -> None:
    missing = [] if fills else missing_columns(table, incoming)
    if is_partial:
        missing = [name for name in missing if name not in table.names]
    if missing:
        raise _lacking(missing, keeps=not is_partial and all(name in table.names for name in missing))
    if is_partial and config.merge_mode is MergeMode.EVENT_TIME_ORDERING:
        for name in config.ordering_fields:
            if find_field(incoming, name) is None:
                raise InvalidInputError(
                    f"the rows lack the ordering column {name!r}",
                    hint="add it: it decides whether the update is newer than the stored row",
                )


def _lacking(missing: Sequence[str], *, keeps: bool) -> InvalidInputError:
    *others, last = map(repr, missing)
    named = f"columns {', '.join(others)} and {last}" if others else f"column {last}"
    they = "them" if others else "it"
    keep = "; table.upsert(rows, partial=True) keeps the values that are stored" if keeps else ""
    return InvalidInputError(
        f"the rows lack the {named}", hint=f"add {they}{keep}; the option {SET_NULL}=true sets {they} to null"
    )


def _filled(evolved: pa.Schema, given: pa.Schema, fixed: Iterable[str]) -> pa.Schema:
    """The columns of whole rows: missing ones are nullable."""
    kept = {*given.names, *fixed}
    return pa.schema([field if field.name in kept else field.with_nullable(True) for field in evolved])


def _heads(names: Iterable[str]) -> frozenset[str]:
    """The columns that contain the named fields."""
    return frozenset(name.partition(".")[0] for name in names)


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
