"""What the layers of a shard come to: the entries of its next base file, or of one log file that stands for several.

Of several entries of a key the newest counts, unless it was deleted since. Two kinds are merged instead: lists of
files, name by name, and statistics of partitions, where the newest is not a tight bound.

Values are taken as they are stored. Only those of an older schema are decoded and encoded anew. Where some entries of
the record index carry ordering values, all of its entries get the schema that has them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.guard import decoding
from lakebed.format.hfile import key_order
from lakebed.format.metadata.columns import decode_payloads, field_of, texts
from lakebed.format.metadata.keys import ALL_PARTITIONS, partition_key, partition_of_key
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.records import (
    decode_files,
    decode_metadata_record,
    encode_bloom_record,
    encode_column_stats_record,
    encode_files_record,
    encode_secondary_record,
    merge_column_stats,
    merge_file_entries,
    merge_files,
)
from lakebed.format.metadata.schema import has_same_layout, is_own, stored_schema
from lakebed.index.entries import concat_texts, concat_values
from lakebed.metadata.column_stats import PARTITION_STATS
from lakebed.metadata.shard import DeleteLayer, EntryLayer, Shard, StoredValue
from lakebed.model.metadata import BloomRecord, ColumnStats, FileEntry, RecordKind, SecondaryRecord

_PAYLOADS = {
    "column_stats": "ColumnStatsMetadata",
    PARTITION_STATS: "ColumnStatsMetadata",
    "bloom_filters": "BloomFilterMetadata",
}
_SECONDARY = "SecondaryIndexMetadata"
_STAND_ALONE = ("isTightBound", "isDeleted")
"""Statistics of a partition that are one of these are the whole truth; others widen older ones."""
_NAMED, _UNNAMED = bytes(4) + b"\x02", bytes(5)
"""The meta fields of a record that names its base file, up to the name, and of one that does not."""


@dataclass(frozen=True, slots=True)
class Merged:
    """All entries of a shard in ascending order of their keys, and how they came about.

    Of the keys that log files mention, some are new to the base file, some had another value there, and some are
    deleted, whether they had been there or not. `log_records` counts every mention.
    """

    keys: pa.Array
    values: pa.Array
    inserted: int
    updated: int
    deleted: int
    log_records: int
    has_ordering: bool = False
    """Whether the values are of the schema in which entries of the record index have ordering values."""


@dataclass(frozen=True, slots=True)
class MergedLogs:
    """What the log blocks of a shard come to, whatever lies below them.

    First the keys in `deletes` go, then those of each of the `blocks` get their values, oldest block first. Keys of a
    block are in ascending order. `schema` is that of the values, `log_records` counts every mention of a key.
    """

    deletes: pa.Array
    blocks: tuple[tuple[pa.Array, pa.Array], ...]
    schema: str
    log_records: int

    def __len__(self) -> int:
        return len(self.deletes) + sum(len(keys) for keys, _ in self.blocks)


def merge_shard(
    shard: Shard, mdt_partition: str, *, has_base: bool, stats_version: str = "V2", has_ordering: bool | None = None
) -> Merged:
    """The entries of a shard; with `has_base` its first layer is a base file.

    `stats_version` is that of the table's column statistics. Values `has_ordering` or not; None: if some layer has.
    """
    if mdt_partition == "files":
        return _merge_files(shard, has_base=has_base)
    payload = _SECONDARY if mdt_partition.startswith("secondary_index_") else _PAYLOADS.get(mdt_partition)
    form = _Form(stats_version, _has_ordering(shard) if has_ordering is None else has_ordering)
    merged = _merge_newest(shard, payload, form, has_base=has_base)
    return _widen(merged, shard, stats_version) if mdt_partition == PARTITION_STATS else merged


def merge_logs(
    shard: Shard, mdt_partition: str, *, stats_version: str = "V2", has_ordering: bool | None = None
) -> MergedLogs:
    """What the layers of a shard without a base file come to, so that it can be put on top of any.

    What is deleted stays as a deletion: a layer below may have it. For `has_ordering` see `merge_shard`.
    """
    if mdt_partition == "files":
        return _merge_file_logs(shard)
    form = _Form(stats_version, _has_ordering(shard) if has_ordering is None else has_ordering)
    layers = [_rows(layer, form) for layer in shard.layers()]
    keys, schema = concat_texts([rows.keys for rows in layers]), _schema_of(shard, form)
    if not len(keys):
        return MergedLogs(keys, (), schema, 0)
    _, newest = _first_and_newest(keys)
    live = pa.array(np.concatenate([np.full(len(rows.keys), rows.are_entries) for rows in layers])[newest])
    named = keys.take(pa.array(newest))
    entries = named.filter(live)
    values = concat_values([rows.values for rows in layers]).take(pa.array(newest)).filter(live)
    gone = named.filter(pc.invert(live))
    if mdt_partition == PARTITION_STATS and len(entries):
        values, stand_alone = _widen_logs(entries, values, shard, stats_version)
        gone = concat_texts([gone, stand_alone])
    return MergedLogs(gone, ((entries, values),) if len(entries) else (), schema, len(keys))


def live_files(shard: Shard) -> dict[str, dict[str, FileEntry]]:
    """The data files of the `files` partition, by data partition; one that was deleted loses what it had before."""
    tables: list[pa.Table] = []
    for layer in shard.layers():
        if isinstance(layer, DeleteLayer):
            gone = pa.array(map(partition_of_key, layer.keys), pa.string())
            tables = [table.filter(pc.invert(pc.is_in(table["partition"], gone))) for table in tables]
        else:
            tables.append(layer.decode(decode_files))
    files: dict[str, dict[str, FileEntry]] = {}
    if tables:
        entries = merge_file_entries(pa.concat_tables(tables))
        rows = zip(*(entries[column].to_pylist() for column in ("partition", "name", "size")), strict=True)
        for partition, name, size in rows:
            files.setdefault(partition, {})[name] = FileEntry(size)
    return files


@dataclass(frozen=True, slots=True)
class _Form:
    """What values become: statistics of this version, entries of the record index with ordering values or without."""

    stats_version: str
    has_ordering: bool


def _has_ordering(shard: Shard) -> bool:
    return any(isinstance(layer, EntryLayer) and _has_layout(layer, has_ordering=True) for layer in shard.layers())


def _has_layout(layer: EntryLayer, *, has_ordering: bool) -> bool:
    with decoding(layer.source.path, "the schema of metadata records"):
        return bool(layer.hfile.schema) and has_same_layout(
            layer.hfile.schema or "", stored_schema(has_ordering=has_ordering)
        )


def _merge_newest(shard: Shard, payload: str | None, form: _Form, *, has_base: bool) -> Merged:
    """The newest entry of each key, unless it is deleted: by its key, or by what a `payload` of this kind says."""
    layers = [_rows(layer, form) for layer in shard.layers()]
    keys = concat_texts([rows.keys for rows in layers])
    if not len(keys):
        return Merged(keys, pa.array([], pa.binary()), 0, 0, 0, 0, form.has_ordering)
    base_count = len(layers[0].keys) if has_base else 0
    first, newest = _first_and_newest(keys)
    values = concat_values([rows.values for rows in layers]).take(pa.array(newest))
    live = np.concatenate([np.full(len(rows.keys), rows.are_entries) for rows in layers])[newest]
    if payload is not None:
        used, places = np.unique(values.indices.to_numpy()[live], return_inverse=True)
        live[live] = ~_flags(values.dictionary.take(pa.array(used)), payload, "isDeleted", layers[-1].path)[places]
    in_base, in_logs = first < base_count, newest >= base_count
    return Merged(
        keys.take(pa.array(newest[live])),
        values.filter(pa.array(live)),
        inserted=int(np.count_nonzero(live & ~in_base)),
        updated=int(np.count_nonzero(live & in_base & in_logs)),
        deleted=int(np.count_nonzero(~live)),
        log_records=len(keys) - base_count,
        has_ordering=form.has_ordering,
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The keys of a layer, with values; if they are no entries but deletes, their values mean nothing."""

    keys: pa.Array
    values: pa.Array
    are_entries: bool
    path: str


def _rows(layer: EntryLayer | DeleteLayer, form: _Form) -> _Rows:
    if isinstance(layer, DeleteLayer):
        count = len(layer.keys)
        nothing = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([b""], pa.binary()))
        return _Rows(pa.array(sorted(layer.keys), pa.string()), nothing, False, layer.path)
    path = layer.source.path
    batch = layer.records()
    with decoding(path, "keys of metadata records"):
        keys = texts(batch["key"])
    return _Rows(keys, _in_layout(batch["value"], layer, form), True, path)


def _first_and_newest(keys: ArrowArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first and the last position of each distinct key, in ascending order of the keys."""
    order = key_order(keys)
    in_order = keys.take(pa.array(order))
    differs = pc.not_equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.concatenate(([True], differs)))
    return np.minimum.reduceat(order, starts), np.maximum.reduceat(order, starts)


def _in_layout(values: ArrowArray, layer: EntryLayer, form: _Form) -> ArrowArray:
    """Values of a layer as records of today's schema."""
    if pa.types.is_dictionary(values.type):
        distinct = _in_layout(values.dictionary, layer, form)
        return pa.DictionaryArray.from_arrays(values.indices, distinct)
    schema, path = layer.hfile.schema or "", layer.source.path
    if not len(values) or _has_layout(layer, has_ordering=form.has_ordering):
        return _without_file_name(values, path)
    if form.has_ordering and _has_layout(layer, has_ordering=False):
        # One more field that is null: a record ends with the null of a payload, and the field comes before that.
        return pc.binary_join_element_wise(_without_file_name(values, path), b"\0", b"")
    records = (StoredValue(value, schema, path) for value in values.to_pylist())
    return pa.array([_encode_again(record, form) for record in records], pa.binary())


def _without_file_name(values: ArrowArray, path: str) -> ArrowArray:
    """Values without the name of the base file that Hudi compacted them into, the one meta field that they may have."""
    first = values[0].as_py() if len(values) else b""
    if not first.startswith(_NAMED):
        return values
    with decoding(path, "a metadata record"):
        rest = io.BytesIO(first[len(_NAMED) :])
        fastavro.schemaless_reader(rest, "string", None)
        prefix = first[: len(_NAMED) + rest.tell()]
    if not pc.all(pc.starts_with(values, prefix)).as_py():
        return values
    return pc.binary_replace_slice(values, 0, len(prefix), _UNNAMED)


def _encode_again(stored: StoredValue, form: _Form) -> bytes:
    record = decode_metadata_record(stored.value, stored.schema, path=stored.path)
    match record.payload:
        case RecordLocation() as location:
            return encode_record_index_value(location, has_ordering=form.has_ordering)
        case ColumnStats() as stats:
            is_partition = record.kind is RecordKind.PARTITION_STATS
            return encode_column_stats_record(stats, version=form.stats_version, partition_stats=is_partition)
        case BloomRecord() as bloom:
            return encode_bloom_record(bloom)
        case SecondaryRecord() as secondary:
            return encode_secondary_record(is_deleted=secondary.is_deleted)
        case _:
            raise CorruptTableError(f"a {record.kind.name} record is in the wrong partition", path=stored.path)


def _flags(values: ArrowArray, payload: str, name: str, path: str) -> npt.NDArray[np.bool_]:
    """A flag of each record, from its payload."""
    payloads = decode_payloads(values, stored_schema(), payload, path=path, required=True)
    return np.asarray(field_of(payloads, name, pa.bool_()))


def _widen(merged: Merged, shard: Shard, stats_version: str) -> Merged:
    """Statistics of partitions, merged from all layers where the newest are not a tight bound.

    Nor are those of another engine: it may not have known all files, and once they are stored in our schema nobody
    could tell.
    """
    if not len(merged.keys):
        return merged
    plain = merged.values.dictionary_decode()
    loose = ~_flags(plain, _PAYLOADS[PARTITION_STATS], "isTightBound", PARTITION_STATS)
    keys, values = merged.keys.to_pylist(), plain.to_pylist()
    has_others = any(isinstance(layer, EntryLayer) and not is_own(layer.hfile.schema) for layer in shard.layers())
    found = shard.find_many(keys if has_others else (keys[row] for row in np.flatnonzero(loose)))
    for row, key in enumerate(keys):
        if loose[row] or (has_others and not is_own(found[key][-1].schema)):
            stats = reduce(merge_column_stats, map(_stats, found[key]))
            stats = replace(stats, is_tight_bound=False)
            values[row] = encode_column_stats_record(stats, version=stats_version, partition_stats=True)
    return replace(merged, values=pa.array(values, pa.binary()))


def _stats(stored: StoredValue) -> ColumnStats:
    payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
    if not isinstance(payload, ColumnStats):
        raise CorruptTableError("a record of another kind among statistics", path=stored.path)
    return payload


def _widen_logs(keys: ArrowArray, values: ArrowArray, shard: Shard, stats_version: str) -> tuple[pa.Array, pa.Array]:
    """Statistics of partitions, merged where the newest are not a tight bound, and the keys of which no older count.

    These were deleted, or known exactly, before the newest; what comes of them is not a tight bound either, and would
    widen what lies below.
    """
    plain = values.dictionary_decode()
    tight, deleted = (_flags(plain, _PAYLOADS[PARTITION_STATS], name, PARTITION_STATS) for name in _STAND_ALONE)
    loose = np.flatnonzero(~tight & ~deleted)
    names, merged = keys.to_pylist(), plain.to_pylist()
    found = shard.find_many(names[row] for row in loose)
    gone = frozenset[str]().union(*(layer.keys for layer in shard.layers() if isinstance(layer, DeleteLayer)))
    stand_alone = []
    for row in loose:
        stats = [*map(_stats, found[names[row]])]
        merged[row] = encode_column_stats_record(
            reduce(merge_column_stats, stats), version=stats_version, partition_stats=True
        )
        if names[row] in gone or any(each.is_tight_bound or each.is_deleted for each in stats):
            stand_alone.append(names[row])
    return pa.array(merged, pa.binary()), pa.array(stand_alone, pa.string())


def _schema_of(shard: Shard, form: _Form) -> str:
    """The schema that tells what values are; one that another engine spells in its own way is kept.

    By that the next writer knows statistics of partitions that are not its own.
    """
    own = stored_schema(has_ordering=form.has_ordering)
    schemas = [layer.hfile.schema for layer in shard.layers() if isinstance(layer, EntryLayer) and layer.hfile.schema]
    others = (each for each in schemas if each != own and has_same_layout(each, own))
    return next(others, own)


class _FileFold:
    """What log records of one list of files come to: the names that live, and all that were deleted."""

    def __init__(self) -> None:
        self.live: dict[str, FileEntry] = {}
        self.gone: dict[str, FileEntry] = {}

    def add(self, names: Mapping[str, FileEntry]) -> None:
        """Takes a newer record in."""
        for name, entry in names.items():
            if entry.is_deleted:
                self.gone[name] = entry
                self.live.pop(name, None)
            else:
                known = self.live.get(name)
                self.live[name] = entry if known is None or known.size < entry.size else known

    def records(self) -> tuple[dict[str, FileEntry], dict[str, FileEntry]]:
        """Two records, one after the other: a name that lives again must not get its size from before it was gone."""
        again = {name: entry for name, entry in self.gone.items() if name in self.live}
        return again, {**{name: entry for name, entry in self.gone.items() if name not in again}, **self.live}


def _merge_file_logs(shard: Shard) -> MergedLogs:
    """Lists of files, name by name; a list that was deleted loses what lies below, whatever came after."""
    folds: dict[str, _FileFold] = {}
    deleted: set[str] = set()
    count = 0
    for layer in shard.layers():
        if isinstance(layer, DeleteLayer):
            count += len(layer.keys)
            deleted |= layer.keys
            folds = {key: fold for key, fold in folds.items() if key not in layer.keys}
        else:
            count += layer.hfile.entry_count
            for raw, value in layer.hfile.items():
                folds.setdefault(raw.decode(), _FileFold()).add(_file_entries(layer.stored(value)))
    first, last = {}, {}
    for key in sorted(folds, key=str.encode):
        kind = RecordKind.ALL_PARTITIONS if key == ALL_PARTITIONS else RecordKind.FILES
        again, names = folds[key].records()
        last[key] = encode_files_record(names, kind=kind)
        if again:
            first[key] = encode_files_record(again, kind=kind)
    blocks = tuple(
        (pa.array([*records], pa.string()), pa.array([*records.values()], pa.binary()))
        for records in (first, last)
        if records
    )
    return MergedLogs(pa.array(sorted(deleted), pa.string()), blocks, stored_schema(), count)


def _file_entries(stored: StoredValue) -> Mapping[str, FileEntry]:
    payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
    if not isinstance(payload, dict):
        raise CorruptTableError("a record of another kind among file lists", path=stored.path)
    return payload


def _merge_files(shard: Shard, *, has_base: bool) -> Merged:
    """Lists of files: what deletions left of each, and nothing of a list that is empty."""
    layers = list(shard.layers())
    records = {ALL_PARTITIONS: _partition_list(shard)}
    for partition, names in live_files(shard).items():
        records[partition_key(partition)] = encode_files_record(names)
    rows = [len(layer.keys) if isinstance(layer, DeleteLayer) else layer.hfile.entry_count for layer in layers]
    before = set()
    if has_base and isinstance(layers[0], EntryLayer):
        before = {key.decode() for key, _ in layers[0].hfile.items()}
    keys = sorted(records, key=str.encode)
    return Merged(
        pa.array(keys, pa.string()),
        pa.array([records[key] for key in keys], pa.binary()),
        inserted=len(records.keys() - before),
        updated=len(records.keys() & before),
        deleted=len(before - records.keys()),
        log_records=sum(rows[1:] if has_base else rows),
    )


def _partition_list(shard: Shard) -> bytes:
    listed: dict[str, FileEntry] = {}
    for stored in shard.find_many([ALL_PARTITIONS]).get(ALL_PARTITIONS, ()):
        listed = merge_files(listed, _file_entries(stored))
    live = {name: entry for name, entry in listed.items() if not entry.is_deleted}
    return encode_files_record(live, kind=RecordKind.ALL_PARTITIONS)
