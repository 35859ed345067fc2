"""The rows of a few keys out of a base file or a log block, without decoding the others.

The result may include rows of other keys, but never misses one.
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
"""Maximum number of candidate rows; with more, digests are not selective enough and all rows are read."""


def find_base_rows(
    storage: Storage, path: str, size: int, columns: Sequence[str], keys: Sequence[str]
) -> pa.Table | None:
    """The given columns of the rows of `keys` in a Parquet base file; None if the whole file must be read."""
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
