"""Record keys as the `_hoodie_record_key` column spells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pyarrow as pa

from lakebed.format.record_keys import EMPTY_TEXT, composite_keys, value_texts
from lakebed.model.config import TableConfig
from lakebed.model.key_generator import names_key_fields
from lakebed.model.words import RECORD_KEY

PLAIN_KEY_GENERATORS = (
    "SIMPLE",
    "NON_PARTITION",
    "SIMPLE_AVRO",
    "NON_PARTITION_AVRO",
    "SimpleKeyGenerator",
    "NonpartitionedKeyGenerator",
)
"""Key generators that spell a key of one field as its plain value."""


def key_columns(config: TableConfig) -> tuple[str, ...]:
    """The columns that `record_keys` needs."""
    return (RECORD_KEY,) if config.has_meta_columns else config.key_fields


def record_keys(table: pa.Table, config: TableConfig) -> pa.Array:
    """The record key of every row."""
    if config.has_meta_columns:
        return _joined(table[RECORD_KEY])
    fields = config.key_fields
    texts = [value_texts(_joined(table[name])) for name in fields]
    return composite_keys(fields, texts) if names_key_fields(config) else texts[0]


def possible_keys(config: TableConfig, wanted: Mapping[str, Sequence[object]]) -> tuple[str, ...]:
    """Every spelling of the keys whose fields take the `wanted` values; empty if a key field is not among them."""
    fields = config.key_fields
    if not fields or any(name not in wanted for name in fields):
        return ()
    plain = tuple(_text(value) for value in wanted[fields[0]]) if len(fields) == 1 else ()
    if plain and config.key_generator in PLAIN_KEY_GENERATORS:
        return plain
    combinations = product(*(wanted[name] for name in fields))
    labelled = (",".join(f"{n}:{_text(v) or EMPTY_TEXT}" for n, v in zip(fields, c, strict=True)) for c in combinations)
    return (*plain, *labelled)  # Releases differ in how they spell a composite key of one field.


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)
