"""Partition paths of incoming rows, in the format of Apache Hudi's key generators.

Rows of a batch share few partitions, so only distinct values are formatted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.filter.keys import NO_VALUE
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.record_keys import has_value_text, value_texts
from lakebed.kernels.key_numbers import number_few
from lakebed.model.config import KeyGenerator, TableConfig
from lakebed.write.rows.keys import find_column, find_field, get_key_generator, suggest_names
from lakebed.write.rows.time_paths import TimeFormat, parse_time_format, time_texts

_TO_ESCAPE = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_SLASHED = "hoodie.datasource.write.slash.separated.date.partitioning"
_SLASHED_EXTRACTOR = "SlashEncodedDayPartitionValueExtractor"
_Codes = npt.NDArray[np.integer]
_FEW_PATHS = 1024
"""Number of distinct texts above which Arrow's dictionary encoding is as fast."""
PATHS = pa.dictionary(pa.int32(), pa.string())
"""The type of partition paths in prepared rows."""


@dataclass(frozen=True, slots=True)
class PathPlan:
    """How paths are built; without `fields` the table is not partitioned. `times` is the format of times."""

    fields: tuple[str, ...]
    is_hive_style: bool
    is_url_encoded: bool
    times: TimeFormat | None


def plan_paths(config: TableConfig, schema: pa.Schema) -> PathPlan:
    """Plans the paths of rows with columns `schema`; raises for a missing or unsuitable partition column."""
    generator = get_key_generator(config)
    fields = () if generator is KeyGenerator.NON_PARTITION else config.partition_fields
    times = parse_time_format(config) if generator is KeyGenerator.TIMESTAMP else None
    if times is not None and len(fields) != 1:
        raise UnsupportedTableError(
            f"{config.path}: the TIMESTAMP key generator has {len(fields)} partition fields",
            hint="it takes one; write to this table with Apache Hudi",
        )
    for name in fields:
        field = find_field(schema, name)
        if field is None:
            raise InvalidInputError(
                f"the rows lack the partition column {name!r}",
                hint=f"add it to the rows; {suggest_names(name, schema.names)}",
            )
        if times is None:
            _check_type(name, field.type, config)
    return PathPlan(fields, config.hive_style_partitioning, config.url_encoded_partitions, times)


def partition_paths(batch: pa.RecordBatch, plan: PathPlan, *, first_row: int = 0) -> pa.Array:
    """The partition path of every row, as a dictionary; '' if the table is not partitioned.

    Raises InvalidInputError for a value that is no valid folder.
    """
    if not plan.fields:
        return pa.DictionaryArray.from_arrays(np.zeros(batch.num_rows, np.int32), pa.array([""]))
    segments = [_segments(find_column(batch, name), name, plan, first_row) for name in plan.fields]
    codes, texts = segments[0]
    for more_codes, more_texts in segments[1:]:
        codes, pairs = _distinct(codes.astype(np.int64) * len(more_texts) + more_codes)
        texts = [f"{texts[pair // len(more_texts)]}/{more_texts[pair % len(more_texts)]}" for pair in pairs.tolist()]
    _check_folder(codes, texts, first_row)
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32, copy=False), pa.array(texts, pa.string()))


def _segments(values: pa.Array, name: str, plan: PathPlan, first_row: int) -> tuple[_Codes, list[str]]:
    """The code of each row's path segment, and the distinct segments."""
    encoded = _encode(values, name, plan, first_row)
    texts = [_segment(text, name, plan) for text in encoded.dictionary.to_pylist()]
    if plan.times is None and not encoded.null_count and len({*texts}) == len(texts):
        codes = encoded.indices.to_numpy()
        _check_segments(codes, texts, name, plan, first_row)
        return codes, texts
    missing = _segment(None, name, plan)
    indices = pc.fill_null(encoded.indices, len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers: dict[str, int] = {}
    renumbered = np.array([numbers.setdefault(text, len(numbers)) for text in (*texts, missing)])
    codes, present = _distinct(renumbered[indices])
    every = list(numbers)
    distinct = [every[number] for number in present.tolist()]
    _check_segments(codes, distinct, name, plan, first_row)
    return codes, distinct


def _encode(values: pa.Array, name: str, plan: PathPlan, first_row: int) -> pa.Array:
    """The texts of the values, as a dictionary; both null and empty texts may occur."""
    if plan.times is not None:
        return time_texts(values, plan.times, name, first_row=first_row)
    encoded = _made_distinct(values)
    return pa.DictionaryArray.from_arrays(encoded.indices, value_texts(encoded.dictionary))


def _made_distinct(values: pa.Array) -> pa.DictionaryArray:
    """Values as a dictionary, in order of appearance."""
    if pat.is_string(values.type) and not values.null_count:
        found = number_few(*binary_buffers(values), _FEW_PATHS)
        if found is not None:
            numbers, firsts = found
            return pa.DictionaryArray.from_arrays(numbers, values.take(pa.array(firsts)))
    return values.dictionary_encode()


def _segment(text: str | None, name: str, plan: PathPlan) -> str:
    value = text or NO_VALUE
    if plan.is_url_encoded:
        value = _TO_ESCAPE.sub(lambda found: f"%{ord(found.group()):02X}", value)
    return f"{name}={value}" if plan.is_hive_style else value


def _distinct(numbers: _Codes) -> tuple[_Codes, _Codes]:
    """Codes of the numbers, and the distinct numbers in the order of their codes."""
    encoded = pa.array(numbers).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_numpy()


def _check_segments(codes: _Codes, segments: Sequence[str], name: str, plan: PathPlan, first_row: int) -> None:
    if plan.times is not None:
        return
    for code, segment in enumerate(segments):
        if ":" in segment:
            raise _refused(codes, code, segment, f"of column {name!r}, with a colon, that Hudi cannot open", first_row)
        if "/" in segment and len(plan.fields) > 1:
            raise _refused(codes, code, segment, f"of column {name!r} that looks like several", first_row)


def _check_folder(codes: _Codes, paths: Sequence[str], first_row: int) -> None:
    """Raises InvalidInputError unless each path is a folder within the table, outside `.hoodie`."""
    for code, path in enumerate(paths):
        parts = path.split("/")
        if not {"", ".", ".."}.isdisjoint(parts) or parts[0] == ".hoodie" or "\0" in path:
            raise _refused(codes, code, path, "that is no folder of its own", first_row)
        if "\n" in path or "\r" in path:
            raise _refused(codes, code, path, "of several lines, which markers cannot tell apart", first_row)


def _refused(codes: _Codes, code: int, path: str, why: str, first_row: int) -> InvalidInputError:
    row = first_row + int(np.argmax(codes == code))
    return InvalidInputError(
        f"row {row} is for {path!r}, a partition path {why}",
        hint="change the value, or create the table with hoodie.datasource.write.partitionpath.urlencode=true",
    )


def _check_type(name: str, kind: pa.DataType, config: TableConfig) -> None:
    """Refuses columns whose paths Apache Hudi reads back as other values, or writes in several ways."""
    is_unreadable = pat.is_timestamp(kind) or pat.is_binary(kind) or pat.is_fixed_size_binary(kind)
    if is_unreadable or not has_value_text(kind):
        raise InvalidInputError(
            f"the partition column {name!r} is of type {kind}, which cannot be recovered from the name of a folder",
            hint="partition by a column of dates, numbers or text",
        )
    extractor = config.properties.get("hoodie.table.partition_extractor_class", "")
    is_slashed = extractor.endswith(_SLASHED_EXTRACTOR) and pat.is_date(kind)
    if is_slashed or config.properties.get(_SLASHED, "").strip().lower() == "true":
        raise UnsupportedTableError(
            f"{config.path}: dates in partition paths are separated by slashes",
            hint="write to this table with Apache Hudi, or create one without slash-separated dates",
        )
