"""Log files of a write whose rows lie in one table: each is encoded from there, nothing is brought together before.

That is for the usual case: all of the table's columns and no deletes, Parquet blocks, no positions in base files that
are known, no ordering values for the record index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.format.log.file import BlockKind, encode_log_block
from lakebed.format.parquet_encode import Numbered, ParquetEncoder, Rows, Spread, can_encode
from lakebed.format.parquet_footer import avro_metadata
from lakebed.kernels.parquet import serves_pages
from lakebed.model.words import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.write.files.base import file_schema
from lakebed.write.files.log_blocks import block_header, declared_like, fits_one_block, reduced_schema
from lakebed.write.files.parquet_columns import column_options
from lakebed.write.files.scratch import scratch_memory
from lakebed.write.plan import Picked
from lakebed.write.values import IS_DELETE, WriteContext, WriteTask


@dataclass(frozen=True, slots=True)
class LotBlock:
    """A data block, and how the columns of its rows spread."""

    data: bytes
    spreads: Mapping[str, Spread]


@dataclass(frozen=True, slots=True)
class LogLot:
    """The rows of several log files, ready to be encoded."""

    encoder: ParquetEncoder
    avro_json: str

    def encode(self, task: WriteTask, rows: Rows) -> LotBlock:
        """The data block with some of the rows, for the file group of a task."""
        context, group = task.context, task.group
        alike: dict[str, Numbered | str] = {
            COMMIT_TIME: str(context.instant),
            COMMIT_SEQNO: Numbered(f"{context.instant}_{task.number}_", 0),
            PARTITION_PATH: group.partition,
            FILE_NAME: group.file_id,
        }
        file = self.encoder.encode(rows, avro_metadata(self.avro_json), scratch_memory, alike)
        header = block_header(task, self.avro_json, None)
        return LotBlock(encode_log_block(BlockKind.PARQUET_DATA, header, *file.parts), file.spreads)


def prepare_lot(tasks: Sequence[WriteTask]) -> LogLot | None:
    """The rows of tasks of one write; None if they are to be encoded one by one."""
    picks = [task.rows for task in tasks if isinstance(task.rows, Picked) and not task.rows.is_apart]
    if not picks or len(picks) < len(tasks) or not serves_pages(sum(pick.count for pick in picks)):
        return None
    context, table = tasks[0].context, picks[0].table
    names = file_schema(context).names
    if context.files.log_format != "parquet" or context.entry_ordering is not None:
        return None
    if IS_DELETE in table.column_names or not {*names} <= {*table.column_names}:
        return None
    if any(pick.table is not table or pick.has_positions for pick in picks):
        return None
    if not fits_one_block(table, max(pick.count for pick in picks)):
        return None
    return _lot(context, table.select([RECORD_KEY, *names]), len(picks))


def _lot(context: WriteContext, table: pa.Table, files: int) -> LogLot | None:
    avro_json = reduced_schema(context.avro_json, (*META_COLUMNS, *table.column_names[1:]))
    schema = declared_like(avro_json, table.schema)
    options = column_options(table, context.files.compression, is_log=True)
    codec = context.files.compression.upper()
    codecs = {**dict.fromkeys(META_COLUMNS, codec), **options["compression"]}
    constants = dict.fromkeys(META_COLUMNS, "")
    columns = {**constants, **dict(zip(table.column_names, table.columns, strict=True))}
    if not can_encode(schema, columns, codecs):
        return None
    repetitive = options["use_dictionary"] or ()
    return LogLot(ParquetEncoder(schema, columns, codecs=codecs, repetitive=repetitive, files=files), avro_json)
