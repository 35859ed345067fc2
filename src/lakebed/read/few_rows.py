"""The rows of a few keys out of a base file or a log block, without decoding the others.

What is given back may have rows of other keys too, never too few.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.format.log.blocks import holds_bytes
from lakebed.format.log.file import BlockKind, HeaderKey
from lakebed.model.source import BytesSource
from lakebed.model.words import RECORD_KEY
from lakebed.read.held_files import HELD, KeyedFile, keyed_file
from lakebed.storage import Storage
from lakebed.view.blocks import FiledBlock

_ROWS_MAX = 64
"""With more rows that may be the wanted ones, keys are too much alike for their digests: all rows are read."""


def find_base_rows(
    storage: Storage, path: str, size: int, columns: Sequence[str], keys: Sequence[str]
) -> pa.Table | None:
    """Those of the columns that a Parquet base file has, of the rows of `keys`; None if it takes a whole read."""
    return _find_rows(keyed_file(storage, path, size, RECORD_KEY), columns, keys)


def find_block_rows(filed: FiledBlock, columns: Sequence[str], keys: Sequence[str], url: str) -> pa.Table | None:
    """Likewise for the records of a log block of the table at `url`."""
    block = filed.block
    if block.kind is BlockKind.PARQUET_DATA:
        source = BytesSource(block.content, filed.path)
        held = HELD.find((url, filed.path, block.offset), KeyedFile, lambda: KeyedFile(source, RECORD_KEY))
        return _find_rows(held, columns, keys)
    if block.kind is BlockKind.AVRO_DATA:
        from lakebed.format.log.few_records import find_avro_records

        schema = block.header.get(HeaderKey.SCHEMA, "")
        return find_avro_records(block, schema, columns, [key.encode() for key in keys], path=filed.path)
    return None


def may_hold(filed: FiledBlock, keys: Sequence[str]) -> bool:
    """Whether a block of Avro records or deletes mentions one of a few keys; without any: true."""
    return not keys or any(holds_bytes(filed.block, key.encode()) for key in keys)


def _find_rows(file: KeyedFile, columns: Sequence[str], keys: Sequence[str]) -> pa.Table | None:
    if RECORD_KEY not in file.pages.columns:
        return None
    rows = file.candidates(keys)
    return file.pages.read_rows(columns, rows) if len(rows) <= _ROWS_MAX else None
