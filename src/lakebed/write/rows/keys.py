"""Record keys of incoming rows, in the format of Apache Hudi's key generators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.format.record_keys import composite_keys, has_value_text, value_texts
from lakebed.model.config import KeyGenerator, TableConfig, find_key_generator, names_key_fields
from lakebed.model.words import RECORD_KEY
from lakebed.write.rows.columns import numbered_texts


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """How keys are built. Without `fields`, they are generated once the write has its instant."""

    fields: tuple[str, ...]
    is_composite: bool


def plan_keys(config: TableConfig, schema: pa.Schema) -> KeyPlan:
    """Plans the keys of rows with columns `schema`; raises InvalidInputError for a missing or unsuitable key column."""
    get_key_generator(config)
    for name in config.key_fields:
        field = find_field(schema, name)
        if field is None:
            raise InvalidInputError(
                f"the rows lack the key column {name!r}",
                hint=f"add it: every row needs its key; {suggest_names(name, schema.names)}",
            )
        if not has_value_text(field.type):
            raise InvalidInputError(f"the key column {name!r} is of type {field.type}", hint="use a column of text")
    is_composite = names_key_fields(config)
    if is_composite is None:
        raise UnsupportedTableError(
            f"{config.path}: releases of Apache Hudi write the composite key of one field differently",
            hint="upgrade the table to version 9 with Apache Hudi, which settles it, or use the SIMPLE key generator",
        )
    return KeyPlan(config.key_fields, is_composite)


def make_keys(batch: pa.RecordBatch, plan: KeyPlan, *, first_row: int = 0) -> pa.Array:
    """The key of every row; empty if the table has no key fields (see `generate_keys`).

    Raises InvalidInputError for a key that is null or empty.
    """
    if not plan.fields:
        return pa.repeat(pa.scalar("", pa.string()), batch.num_rows)
    texts = [value_texts(find_column(batch, name)) for name in plan.fields]
    _check_keys(texts, plan.fields, first_row)
    return composite_keys(plan.fields, texts) if plan.is_composite else texts[0]


def generate_keys(rows: pa.Table, instant: str, task_number: int = 0) -> pa.Table:
    """Gives each prepared row of a table without key fields a unique key: `<instant>_<task>_<row>`."""
    keys = numbered_texts(f"{instant}_{task_number}_", 0, rows.num_rows)
    return rows.set_column(rows.schema.get_field_index(RECORD_KEY), RECORD_KEY, keys)


def get_key_generator(config: TableConfig) -> KeyGenerator:
    """The table's key generator; raises UnsupportedTableError for an unknown one."""
    found = find_key_generator(config)
    if found is None:
        raise UnsupportedTableError(
            f"{config.path}: the key generator {config.key_generator or 'CUSTOM'} is not supported",
            hint="write to this table with Apache Hudi, or create one with key generator SIMPLE, COMPLEX or TIMESTAMP",
        )
    return found


def find_field(schema: pa.Schema, name: str) -> pa.Field | None:
    """The field of that name; `a.b` is field `b` of the struct column `a`. None if there is none."""
    if name in schema.names:
        return schema.field(name)
    head, *rest = name.split(".")
    field = schema.field(head) if head in schema.names else None
    for part in rest:
        place = field.type.get_field_index(part) if field is not None and pa.types.is_struct(field.type) else -1
        field = field.type[place] if field is not None and place >= 0 else None
    return field


def find_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The column of the field that `find_field` finds; null where its struct is null."""
    if name in batch.schema.names:
        return batch.column(name)
    head, *rest = name.split(".")
    return pc.struct_field(batch.column(head), rest)


def _check_keys(texts: list[pa.Array], fields: tuple[str, ...], first_row: int) -> None:
    """Raises InvalidInputError for a row without text in any of the key fields."""
    is_blank = None
    for text in texts:
        if not text.null_count and not pc.any(pc.equal(pc.binary_length(text), 0)).as_py():
            return
        blank = pc.or_kleene(pc.is_null(text), pc.equal(pc.binary_length(text), 0))
        is_blank = blank if is_blank is None else pc.and_(is_blank, blank)
    if is_blank is None or not pc.any(is_blank).as_py():
        return
    row = first_row + pc.index(is_blank, True).as_py()
    named = f"column {fields[0]!r}" if len(fields) == 1 else f"columns {', '.join(map(repr, fields))}"
    raise InvalidInputError(f"row {row} has no key: {named} is null or empty", hint="give every row a key")


def suggest_names(name: str, names: Sequence[str]) -> str:
    """A hint for a name that is not among `names`: the nearest name, and all of them."""
    by_case = [each for each in names if each.casefold() == name.casefold()]
    near = by_case or get_close_matches(name, names, n=1)
    question = f"did you mean {near[0]!r}? " if near else ""
    return f"{question}the columns are {', '.join(names)}"
