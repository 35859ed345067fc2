"""Record keys and partition paths, and the column values that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.arrow import text_array
from lakebed.format.record_keys import EMPTY_TEXT, composite_keys, value_texts
from lakebed.model.config import TableConfig, names_key_fields
from lakebed.model.words import RECORD_KEY

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Name of the folder of rows whose partition column is null or empty."""
_SPELLED_AS_IS = ("SIMPLE", "COMPLEX", "SimpleKeyGenerator", "ComplexKeyGenerator", "SIMPLE_AVRO", "COMPLEX_AVRO")
"""Key generators whose path segments are the column's value; others may format or hash it."""


def partition_values(path: str, config: TableConfig) -> dict[str, str | None]:
    """The text of each partition column in a partition path; empty if the path does not match the columns."""
    fields = config.partition_fields
    segments = [path] if len(fields) == 1 else path.split("/")
    if not path or not fields or len(segments) != len(fields):
        return {}
    values: dict[str, str | None] = {}
    for field, segment in zip(fields, segments, strict=True):
        text = segment.removeprefix(f"{field}=") if config.hive_style_partitioning else segment
        text = unquote(text) if config.url_encoded_partitions else text
        values[field] = None if text == NO_VALUE else text
    return values


def columns_from_path(config: TableConfig, schema: pa.Schema) -> tuple[str, ...]:
    """Partition columns whose value is taken from the path, not from the file.

    As in Apache Hudi: an update with a changed partition value may stay in its old folder, and belongs to it.
    """
    if config.drops_partition_columns:
        return tuple(name for name in config.partition_fields if name in schema.names)
    if config.key_generator not in _SPELLED_AS_IS:
        return ()
    return tuple(n for n in config.partition_fields if n in schema.names and _spelled_plainly(schema.field(n).type))


def path_constants(path: str, config: TableConfig, schema: pa.Schema) -> dict[str, pa.Array]:
    """The partition columns in a partition's path, and their value in all rows there, as arrays of one element."""
    values = partition_values(path, config)
    names = [name for name in columns_from_path(config, schema) if name in values]
    typed = {name: _in_type([values[name]], schema.field(name).type) for name in names}
    return {name: column for name, column in typed.items() if column is not None}


def typed_partition_values(paths: list[str], config: TableConfig, schema: pa.Schema) -> dict[str, pa.Array]:
    """For each partition column in the paths: the value of each path, in the column's type; null if it has none.

    Columns whose text cannot be converted are left out: they exclude nothing.
    """
    texts = [partition_values(path, config) for path in paths]
    if not all(texts):
        return {}
    typed = {n: _in_type([t[n] for t in texts], schema.field(n).type) for n in columns_from_path(config, schema)}
    return {name: values for name, values in typed.items() if values is not None}


def _in_type(texts: list[str | None], wanted: pa.DataType) -> pa.Array | None:
    try:
        return pc.cast(text_array(texts), wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _spelled_plainly(wanted: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return any(check(wanted) for check in checks)


PLAIN_KEY_GENERATORS = (
    "SIMPLE",
    "NON_PARTITION",
    "SIMPLE_AVRO",
    "NON_PARTITION_AVRO",
    "SimpleKeyGenerator",
    "NonpartitionedKeyGenerator",
)
"""Key generators whose key of one field is the plain value."""


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
    """All forms of the keys whose fields have the `wanted` values; empty if a key field is not among them."""
    fields = config.key_fields
    if not fields or any(name not in wanted for name in fields):
        return ()
    plain = tuple(_text(value) for value in wanted[fields[0]]) if len(fields) == 1 else ()
    if plain and config.key_generator in PLAIN_KEY_GENERATORS:
        return plain
    combinations = product(*(wanted[name] for name in fields))
    labelled = (",".join(f"{n}:{_text(v) or EMPTY_TEXT}" for n, v in zip(fields, c, strict=True)) for c in combinations)
    return (*plain, *labelled)  # Releases differ in the form of a composite key of one field.


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)
