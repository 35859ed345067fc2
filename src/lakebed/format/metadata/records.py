"""Records of the metadata table: one at a time, or all of a file as Arrow columns.

Values are Avro datums as HFiles store them, `schema` is the Avro JSON that is stored with them, `path` the file, for
messages. Codecs of column statistics and of the record index have their own modules, and are re-exported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.guard import decoding
from lakebed.format.metadata.column_ranges import column_stats_values, decode_column_stats
from lakebed.format.metadata.column_stats import (
    decode_column_stats_payload,
    encode_column_stats_record,
    merge_column_stats,
    value_type_of,
)
from lakebed.format.metadata.datum import (
    NULL,
    RecordKind,
    decode_datum,
    decode_payloads,
    encode_boolean,
    encode_bytes,
    encode_datum,
    encode_text,
    field_of,
    texts,
)
from lakebed.format.metadata.keys import ALL_PARTITIONS
from lakebed.format.metadata.record_index import RecordLocation, decode_record_index_value
from lakebed.format.metadata.record_index import encode_record_index_value as encode_record_index_record
from lakebed.format.varint import encode_long
from lakebed.model.metadata import BloomRecord, ColumnStats, FileEntry, SecondaryRecord

__all__ = [
    "MetadataRecord",
    "column_stats_values",
    "decode_bloom_record",
    "decode_bloom_records",
    "decode_column_stats",
    "decode_files",
    "decode_metadata_record",
    "decode_secondary_records",
    "encode_bloom_record",
    "encode_column_stats_record",
    "encode_files_record",
    "encode_record_index_record",
    "encode_secondary_record",
    "merge_column_stats",
    "merge_file_entries",
    "merge_files",
    "value_type_of",
]

_FEW_BYTES = 64 << 10
"""Maximum size in bytes of file lists that are decoded one by one, which avoids the set-up of columns."""

Payload: TypeAlias = Mapping[str, FileEntry] | BloomRecord | ColumnStats | RecordLocation | SecondaryRecord


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of any kind."""

    kind: RecordKind
    payload: Payload


def decode_metadata_record(value: bytes, schema: str, *, path: str) -> MetadataRecord:
    """One record, whatever its kind."""
    datum = decode_datum(value, schema, path=path)
    with decoding(path, "a metadata record"):
        kind = RecordKind(datum["type"])
        if kind is RecordKind.RECORD_INDEX:
            return MetadataRecord(kind, decode_record_index_value(value, schema, path=path))
        return MetadataRecord(kind, _payload(kind, datum))


def decode_bloom_record(value: bytes, schema: str, *, path: str) -> BloomRecord:
    """One record of a bloom filter; a record of another kind raises CorruptTableError."""
    record = decode_metadata_record(value, schema, path=path)
    if not isinstance(record.payload, BloomRecord):
        raise CorruptTableError(f"a {record.kind.name} record among Bloom filters", path=path)
    return record.payload


def _payload(kind: RecordKind, datum: dict[str, Any]) -> Payload:
    match kind:
        case RecordKind.ALL_PARTITIONS | RecordKind.FILES:
            files = datum["filesystemMetadata"] or {}
            return {name: FileEntry(entry["size"], entry["isDeleted"]) for name, entry in files.items()}
        case RecordKind.BLOOM_FILTERS:
            bloom = datum["BloomFilterMetadata"]
            return BloomRecord(bloom["type"], bloom["timestamp"], bloom["bloomFilter"], bloom["isDeleted"])
        case RecordKind.SECONDARY_INDEX:
            return SecondaryRecord(datum["SecondaryIndexMetadata"]["isDeleted"])
        case _:
            return decode_column_stats_payload(datum["ColumnStatsMetadata"])


def encode_files_record(entries: Mapping[str, FileEntry], *, kind: RecordKind = RecordKind.FILES) -> bytes:
    """The datum of a list of files of a partition, or of partitions, in the order of `entries`."""
    items = b"".join(
        encode_text(name) + encode_long(entry.size) + encode_boolean(entry.is_deleted)
        for name, entry in entries.items()
    )
    return encode_datum(kind, (encode_long(len(entries)) + items if entries else b"") + NULL)


def encode_bloom_record(record: BloomRecord) -> bytes:
    """The datum of a base file's bloom filter."""
    head = encode_text(record.type_code) + encode_text(record.timestamp)
    return encode_datum(RecordKind.BLOOM_FILTERS, head + encode_bytes(record.bloom) + encode_boolean(record.is_deleted))


def encode_secondary_record(*, is_deleted: bool = False) -> bytes:
    """The datum of a secondary index entry, the same for all live entries."""
    return encode_datum(RecordKind.SECONDARY_INDEX, encode_boolean(is_deleted))


def decode_files(keys: ArrowArray, values: ArrowArray, schema: str, *, path: str) -> pa.Table:
    """One row per file entry: partition ('' when the table is not partitioned), name, size, is_deleted.

    The list of partitions is left out.
    """
    if values.nbytes <= _FEW_BYTES:
        return _decode_few_files(keys, values, schema, path)
    files = decode_payloads(values, schema, "filesystemMetadata", path=path)
    with decoding(path, "a list of files"):
        names, entries = files.keys, files.items
        rows = np.repeat(np.arange(len(files)), np.diff(files.offsets.to_numpy()))
        partitions = texts(keys).take(pa.array(rows))
        table = pa.table(
            {
                "partition": pc.if_else(pc.equal(partitions, "."), "", partitions),
                "name": names,
                "size": field_of(entries, "size", pa.int64()),
                "is_deleted": field_of(entries, "isDeleted", pa.bool_()),
            }
        )
        return table.filter(pc.not_equal(partitions, ALL_PARTITIONS))


def _decode_few_files(keys: ArrowArray, values: ArrowArray, schema: str, path: str) -> pa.Table:
    """As `decode_files`, one record at a time."""
    found: list[tuple[str, str, int, bool]] = []
    with decoding(path, "a list of files"):
        partitions = texts(keys).to_pylist()
    for key, value in zip(partitions, values.to_pylist(), strict=True):
        payload = decode_metadata_record(value, schema, path=path).payload
        if key != ALL_PARTITIONS and isinstance(payload, Mapping):
            partition = "" if key == "." else key
            found += [(partition, name, entry.size, entry.is_deleted) for name, entry in payload.items()]
    types = {"partition": pa.string(), "name": pa.string(), "size": pa.int64(), "is_deleted": pa.bool_()}
    columns = [*zip(*found, strict=True)] or [()] * len(types)
    return pa.table({name: pa.array(column, types[name]) for name, column in zip(types, columns, strict=True)})


def decode_bloom_records(keys: ArrowArray, values: ArrowArray, schema: str, *, path: str) -> pa.Table:
    """One row per bloom filter: key, type_code, timestamp, bloom, is_deleted."""
    blooms = decode_payloads(values, schema, "BloomFilterMetadata", path=path, required=True)
    with decoding(path, "bloom filters"):
        return pa.table(
            {
                "key": texts(keys),
                "type_code": field_of(blooms, "type", pa.string()),
                "timestamp": field_of(blooms, "timestamp", pa.string()),
                "bloom": field_of(blooms, "bloomFilter", pa.binary()),
                "is_deleted": field_of(blooms, "isDeleted", pa.bool_()),
            }
        )


def decode_secondary_records(keys: ArrowArray, values: ArrowArray, schema: str, *, path: str) -> pa.Table:
    """One row per entry of a secondary index: key as stored, is_deleted."""
    entries = decode_payloads(values, schema, "SecondaryIndexMetadata", path=path, required=True)
    with decoding(path, "secondary index entries"):
        return pa.table({"key": texts(keys), "is_deleted": field_of(entries, "isDeleted", pa.bool_())})


def merge_files(older: Mapping[str, FileEntry], newer: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """The entries of a partition after both records, as Hudi keeps them.

    Files only grow, so the greater of two sizes counts. A deletion and the file it deletes cancel out; a deletion
    without its file is kept, because an older record may have the file.
    """
    merged = dict(older)
    for name, entry in newer.items():
        known = older.get(name)
        if known is None or (entry.is_deleted and known.is_deleted):
            merged[name] = entry
        elif entry.is_deleted:
            del merged[name]
        else:
            merged[name] = FileEntry(max(entry.size, 0 if known.is_deleted else known.size))
    return merged


def merge_file_entries(entries: pa.Table) -> pa.Table:
    """The live entries after all records, given oldest first with the columns of `decode_files`.

    An entry is live unless its newest record is a deletion; its size is the greatest since it was last deleted.
    """
    if entries.num_rows == 0:
        return entries
    codes = _codes(entries)
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    last = np.concatenate((starts[1:], [len(codes)])) - 1
    deleted = entries["is_deleted"].to_numpy()[order]
    position = np.arange(len(codes))
    last_deleted = np.maximum.reduceat(np.where(deleted, position, -1), starts)
    since = position > np.repeat(last_deleted, last - starts + 1)
    sizes = np.maximum.reduceat(np.where(since, entries["size"].to_numpy()[order], -1), starts)
    live = np.flatnonzero(last > last_deleted)
    rows, sizes = order[last[live]], sizes[live]
    in_order = np.argsort(rows)
    taken = entries.take(pa.array(rows[in_order]))
    return taken.set_column(taken.schema.get_field_index("size"), "size", pa.array(sizes[in_order]))


def _codes(entries: pa.Table) -> np.ndarray:
    """A number per row, equal where partition and name are."""
    partitions, names = (_dictionary(entries[column]) for column in ("partition", "name"))
    bases: np.ndarray = partitions.indices.to_numpy().astype(np.int64) * len(names.dictionary)
    return bases + names.indices.to_numpy()


def _dictionary(column: ArrowArray) -> ArrowArray:
    return column.combine_chunks().dictionary_encode()
