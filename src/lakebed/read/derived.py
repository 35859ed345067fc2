"""Columns that need not be read, because their values follow from the slice's folder or the record key.

Half of the bytes of a row are such copies: the partition path, partition columns, and the key column beside
`_hoodie_record_key`. They are left out while a slice is read and merged, and put back at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.filter.keys import PLAIN_KEY_GENERATORS, path_constants
from lakebed.format.arrow import ArrowArray, text_array
from lakebed.model.config import TableConfig
from lakebed.model.words import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakebed.read.conform import conform_table

REPETITIVE = (COMMIT_TIME, FILE_NAME)
"""Few distinct values per file: cheaper to move around as a dictionary."""


@dataclass(frozen=True, slots=True)
class Columns:
    """How the wanted columns of one slice are obtained.

    `stored` is read from files and merged; `constants` have one value in the whole slice, and are arrays of it;
    `key_copy` is the key column that `_hoodie_record_key` repeats.
    """

    wanted: pa.Schema
    stored: pa.Schema
    constants: dict[str, ArrowArray]
    key_copy: str | None

    def complete(self, rows: pa.Table, *, path: str) -> pa.Table:
        """`rows` of the stored columns with all wanted ones."""
        for name, value in self.constants.items():
            rows = rows.append_column(self.wanted.field(name), pa.repeat(value[0], rows.num_rows))
        if self.key_copy is not None:
            rows = rows.append_column(self.wanted.field(self.key_copy), rows[RECORD_KEY])
        return conform_table(rows, self.wanted, path=path)


def plan_columns(wanted: pa.Schema, partition: str, config: TableConfig, *, merged: bool) -> Columns:
    """Which of the wanted columns of a slice must be read. `merged`: log files are merged into it."""
    constants = _constants(wanted, partition, config)
    if merged:  # What decides a merge is read as it was written.
        constants = {name: value for name, value in constants.items() if name not in config.ordering_fields}
    copy = key_copy(wanted, config)
    needed = {*wanted.names} - constants.keys() - {copy} | ({RECORD_KEY} if copy else set())
    fields = [pa.field(RECORD_KEY, pa.string())] if RECORD_KEY in needed - {*wanted.names} else []
    fields += [field for field in wanted if field.name in needed]
    stored = pa.schema([_merged_form(field) if merged else field for field in fields])
    return Columns(wanted, stored, constants, copy)


def _constants(wanted: pa.Schema, partition: str, config: TableConfig) -> dict[str, ArrowArray]:
    constants = path_constants(partition, config, wanted)
    if not config.has_meta_columns:
        return {name: value for name, value in constants.items() if name not in config.key_fields}
    if PARTITION_PATH in wanted.names:
        constants[PARTITION_PATH] = text_array([partition])
    return constants


def key_copy(wanted: pa.Schema, config: TableConfig) -> str | None:
    """The one key column whose text, by the key generator's rule, is the record key."""
    if not config.has_meta_columns or len(config.key_fields) != 1 or config.key_generator not in PLAIN_KEY_GENERATORS:
        return None
    name = config.key_fields[0]
    is_text = name in wanted.names and wanted.field(name).type == pa.string()
    return name if is_text and name not in config.partition_fields else None


def as_dictionary(field: pa.Field) -> pa.Field:
    """A text field as a dictionary type."""
    return field.with_type(pa.dictionary(pa.int32(), pa.string()))


def _merged_form(field: pa.Field) -> pa.Field:
    return as_dictionary(field) if field.name in REPETITIVE else field
