"""Avro datums to Arrow columns and back, without a Python step per row.

Log blocks and values of the metadata table are bare datums (no container, no fingerprint) of one writer schema. The
schema is compiled to a small program, which a kernel runs over all datums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.avro.decode import Assembler, Program, Slots, compile_record
from lakebed.format.avro.encode import bind
from lakebed.format.avro.types import Record, parse_record
from lakebed.format.guard import decoding
from lakebed.kernels import avro_decode, avro_encode

_DATUM_BYTES_MAX = 2**31 - 2**20
"""Maximum size in bytes of all datums together: Arrow's offsets have 32 bits."""
_FREE_BYTES, _GROWTH_MAX = 2**26, 128
"""Maximum memory for the nulls of a batch: a constant in bytes, plus a multiple of the size of its datums."""

_Bytes = npt.NDArray[np.uint8]
_Integers = npt.NDArray[np.int64]


def decode_datums(
    data: bytes | memoryview,
    starts: _Integers,
    ends: _Integers,
    avro_json: str,
    *,
    path: str,
    columns: Sequence[str] | None = None,
    base_offset: int = 0,
) -> pa.RecordBatch:
    """The datums of one writer schema as a batch: datum i is data[starts[i]:ends[i]], to its last byte.

    `columns` picks top-level fields; they come in the order of the schema. Bad bytes raise CorruptTableError, whose
    offset is `base_offset` plus the place in `data`.
    """
    with decoding(path, "the Avro schema"):
        program = compile_record(avro_json, None if columns is None else tuple(columns))
    _check_columns(program, columns)
    starts, ends = np.ascontiguousarray(starts, np.int64), np.ascontiguousarray(ends, np.int64)
    _check_bounds(len(data), starts, ends, path)
    streams = _run(program, np.frombuffer(data, np.uint8), starts, ends, path, base_offset)
    spare = _FREE_BYTES + _GROWTH_MAX * int((ends - starts).sum())
    with decoding(path, "Avro data", offset=base_offset + (int(starts[0]) if starts.size else 0)):
        struct = Assembler(streams, bytes_max=spare).struct(program.fields, program.plans, Slots(starts.size))
        batch = pa.RecordBatch.from_struct_array(struct)
        batch.validate(full=True)
        return batch


def encode_datums(batch: pa.RecordBatch, avro_json: str) -> tuple[_Bytes, _Integers]:
    """The rows as bare datums of the schema: all bytes, and rows + 1 offsets into them.

    Columns are found by name; a missing one is null. Rows that do not fit the schema, and an invalid schema, raise
    InvalidInputError.
    """
    batch.validate()
    binding = bind(batch, _record_to_write(avro_json))
    try:
        return avro_encode.encode(binding.code, batch.num_rows, binding.loop_depth, binding.memory)
    except avro_encode.RowError as error:
        what = f"column {binding.wheres[error.instruction]} {avro_encode.FAULTS[error.fault]} (row {error.row})"
        raise InvalidInputError(what, hint="make the rows fit the table's schema") from error


def _record_to_write(avro_json: str) -> Record:
    try:
        return parse_record(avro_json)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"the Avro schema cannot be used ({error})", hint="give a record schema") from error


def _check_columns(program: Program, columns: Sequence[str] | None) -> None:
    known = {field.name for field in program.fields}
    missing = [name for name in columns or () if name not in known]
    if missing:
        raise InvalidInputError(
            f"the Avro schema has no field {missing[0]!r}", hint="ask for fields that the writer schema has"
        )


def _check_bounds(size: int, starts: _Integers, ends: _Integers, path: str) -> None:
    if starts.ndim != 1 or starts.shape != ends.shape:
        raise InvalidInputError("starts and ends differ in length", hint="give one start and one end per datum")
    if starts.size and (starts.min() < 0 or ends.max() > size or (ends < starts).any()):
        raise CorruptTableError(f"an Avro datum lies outside its {size} bytes", path=path)
    if int((ends - starts).sum()) > _DATUM_BYTES_MAX:
        raise CorruptTableError(f"more than {_DATUM_BYTES_MAX} bytes of Avro data in one block", path=path)


def _run(
    program: Program, raw: _Bytes, starts: _Integers, ends: _Integers, path: str, base_offset: int
) -> list[_Bytes]:
    """The streams of the program over all datums."""
    sizes = program.tally_count, program.loop_depth
    try:
        return avro_decode.decode(raw, starts, ends, program.code, program.prefixes, *sizes)
    except avro_decode.DatumError as error:
        where = "".join(program.wheres[error.instruction])
        what = f"Avro datum {error.row}, {where}: {avro_decode.FAULTS[error.fault]}"
        raise CorruptTableError(what, path=path, offset=base_offset + error.position) from error
