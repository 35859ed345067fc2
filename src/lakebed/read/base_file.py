"""Reads base files: Parquet, ORC and Lance."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import UnsupportedTableError
from lakebed.format.guard import decoding
from lakebed.storage import Storage

PARQUET = ".parquet"


def read_base_file(storage: Storage, path: str, extension: str, wanted: pa.Schema) -> pa.Table:
    """Those of the `wanted` columns that a base file has, with the file's types."""
    reader = _READERS.get(extension)
    if reader is None:
        raise UnsupportedTableError(
            f"{path}: base files of type {extension} are not supported",
            hint="lakebed reads Parquet, ORC and Lance base files; rewrite the table in one of these formats",
        )
    return reader(storage, path, wanted)


def _read_parquet(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    file = storage.arrow_file(path)
    with file, decoding(path, "the Parquet file"):
        dictionaries = [field.name for field in wanted if pa.types.is_dictionary(field.type)]
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us", read_dictionary=dictionaries)
        return parquet.read(columns=[name for name in wanted.names if name in parquet.schema_arrow.names])


def _read_orc(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    from pyarrow import orc  # Deferred: ORC is rare, and takes time to load.

    file = storage.arrow_file(path)
    with file, decoding(path, "the ORC file"):
        reader = orc.ORCFile(file)
        return reader.read(columns=[name for name in wanted.names if name in reader.schema.names])


def _read_lance(storage: Storage, path: str, wanted: pa.Schema) -> pa.Table:
    try:
        from lance.file import LanceFileReader  # Deferred: an optional dependency.
    except ImportError as error:
        raise UnsupportedTableError(
            f"{path}: Lance base files need the package pylance", hint="pip install 'lakebed[lance]'"
        ) from error
    # The Lance reader takes only paths, and does not support every store.
    with tempfile.NamedTemporaryFile(suffix=".lance") as copy:
        copy.write(storage.get(path))
        copy.flush()
        with decoding(path, "the Lance file"):
            table = LanceFileReader(copy.name).read_all().to_table()
            return table.select([name for name in wanted.names if name in table.schema.names])


_READERS: dict[str, Callable[[Storage, str, pa.Schema], pa.Table]] = {
    PARQUET: _read_parquet,
    ".orc": _read_orc,
    ".lance": _read_lance,
}
