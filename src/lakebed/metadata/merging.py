"""Merges the layers of a shard, into the entries of its next base file or of one log file that replaces several.

Each kind of index has a `MergeRule`; for most, the newest entry of a key wins.

Values are copied as stored; only those of an older schema are decoded and encoded again. If some entries of the record
index carry ordering values, all of its entries get the schema that has them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.guard import decoding
from lakebed.format.hfile import key_order
from lakebed.format.metadata.datum import decode_payloads, field_of, has_same_layout, stored_schema, texts
from lakebed.format.metadata.records import (
    MetadataRecord,
    decode_metadata_record,
)
from lakebed.metadata.entries import concat_texts, concat_values
from lakebed.metadata.shard import DeleteLayer, EntryLayer, Shard, StoredValue
from lakebed.metadata.table import MetadataTable

_NAMED, _UNNAMED = bytes(4) + b"\x02", bytes(5)
"""Encoded meta fields of a record: up to the name of its base file, and all of them without a name."""


@dataclass(frozen=True, slots=True)
class Merged:
    """All entries of a shard in ascending order of keys, and counters for write stats.

    Keys in log files are `inserted` if the base file lacks them, `updated` if it has them, `deleted` in either case.
    `log_records` counts all log records.
    """

    keys: pa.Array
    values: pa.Array
    inserted: int
    updated: int
    deleted: int
    log_records: int
    has_ordering: bool = False
    """Whether values have the record index schema with ordering values."""


@dataclass(frozen=True, slots=True)
class MergedLogs:
    """The merged log blocks of a shard, valid on top of any base file.

    To apply: delete the keys in `deletes`, then add the entries of `blocks`, oldest first. Keys of a block are in
    ascending order. `schema` is that of the values, `log_records` counts all log records.
    """

    deletes: pa.Array
    blocks: tuple[tuple[pa.Array, pa.Array], ...]
    schema: str
    log_records: int

    def __len__(self) -> int:
        return len(self.deletes) + sum(len(keys) for keys, _ in self.blocks)


@dataclass(frozen=True, slots=True)
class Form:
    """The encoding of merged values: version of statistics, and whether entries have ordering values.

    `has_ordering` None: they have them if some layer does.
    """

    version: str = "V2"
    has_ordering: bool | None = None


PLAIN = Form()


class MergeRule(Protocol):
    """How the layers of a shard are merged."""

    def shard(self, shard: Shard, *, has_base: bool, form: Form = PLAIN) -> Merged:
        """The entries of a shard; with `has_base` its first layer is a base file."""

    def logs(self, shard: Shard, *, form: Form = PLAIN) -> MergedLogs:
        """The merged layers of a shard without a base file, valid on top of any base file.

        Deletes are kept, because the base file may have the key.
        """


def merged_shards(metadata: MetadataTable, partition: str, rule: MergeRule, form: Form = PLAIN) -> Iterator[Merged]:
    """The merged entries of each shard of an MDT partition."""
    for file_slice in metadata.slices(partition):
        shard = metadata.shard(partition, file_slice.group.file_id)
        yield rule.shard(shard, has_base=file_slice.base is not None, form=form)


Encoder = Callable[[MetadataRecord, Form], bytes | None]
"""Encodes a record of an older schema in the current one; None if it is of another kind."""


def _no_encoder(record: MetadataRecord, form: Form) -> bytes | None:
    del record, form
    return None


@dataclass(frozen=True, slots=True)
class NewestWins:
    """The newest entry of a key wins, unless the key was deleted since.

    A key is deleted by a delete block or by the flag in the `payload` of that name. `encode` converts values of an
    older schema.
    """

    payload: str | None = None
    encode: Encoder = _no_encoder

    def shard(self, shard: Shard, *, has_base: bool, form: Form = PLAIN) -> Merged:
        """The newest entry of each key."""
        form = _settled(form, shard)
        layers = [_rows(layer, form, self.encode) for layer in shard.layers()]
        keys = concat_texts([rows.keys for rows in layers])
        if not len(keys):
            return Merged(keys, pa.array([], pa.binary()), 0, 0, 0, 0, bool(form.has_ordering))
        base_count = len(layers[0].keys) if has_base else 0
        first, newest = _first_and_newest(keys)
        values = concat_values([rows.values for rows in layers]).take(pa.array(newest))
        live = np.concatenate([np.full(len(rows.keys), rows.are_entries) for rows in layers])[newest]
        if self.payload is not None:
            used, places = np.unique(values.indices.to_numpy()[live], return_inverse=True)
            live[live] = ~flags(values.dictionary.take(pa.array(used)), self.payload, "isDeleted", layers[-1].path)[
                places
            ]
        in_base, in_logs = first < base_count, newest >= base_count
        return Merged(
            keys.take(pa.array(newest[live])),
            values.filter(pa.array(live)),
            inserted=int(np.count_nonzero(live & ~in_base)),
            updated=int(np.count_nonzero(live & in_base & in_logs)),
            deleted=int(np.count_nonzero(~live)),
            log_records=len(keys) - base_count,
            has_ordering=bool(form.has_ordering),
        )

    def logs(self, shard: Shard, *, form: Form = PLAIN) -> MergedLogs:
        """The newest entry or delete of each key."""
        form = _settled(form, shard)
        layers = [_rows(layer, form, self.encode) for layer in shard.layers()]
        keys, schema = concat_texts([rows.keys for rows in layers]), _schema_of(shard, form)
        if not len(keys):
            return MergedLogs(keys, (), schema, 0)
        _, newest = _first_and_newest(keys)
        live = pa.array(np.concatenate([np.full(len(rows.keys), rows.are_entries) for rows in layers])[newest])
        named = keys.take(pa.array(newest))
        entries = named.filter(live)
        values = concat_values([rows.values for rows in layers]).take(pa.array(newest)).filter(live)
        gone = named.filter(pc.invert(live))
        return MergedLogs(gone, ((entries, values),) if len(entries) else (), schema, len(keys))


def _settled(form: Form, shard: Shard) -> Form:
    return form if form.has_ordering is not None else replace(form, has_ordering=_has_ordering(shard))


def _has_ordering(shard: Shard) -> bool:
    return any(isinstance(layer, EntryLayer) and _has_layout(layer, has_ordering=True) for layer in shard.layers())


def _has_layout(layer: EntryLayer, *, has_ordering: bool) -> bool:
    with decoding(layer.source.path, "the schema of metadata records"):
        return bool(layer.hfile.schema) and has_same_layout(
            layer.hfile.schema or "", stored_schema(has_ordering=has_ordering)
        )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Keys of a layer with values; for deletes (`are_entries` is false), values are meaningless."""

    keys: pa.Array
    values: pa.Array
    are_entries: bool
    path: str


def _rows(layer: EntryLayer | DeleteLayer, form: Form, encode: Encoder) -> _Rows:
    if isinstance(layer, DeleteLayer):
        count = len(layer.keys)
        nothing = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([b""], pa.binary()))
        return _Rows(pa.array(sorted(layer.keys), pa.string()), nothing, False, layer.path)
    path = layer.source.path
    batch = layer.records()
    with decoding(path, "keys of metadata records"):
        keys = texts(batch["key"])
    return _Rows(keys, _in_layout(batch["value"], layer, form, encode), True, path)


def _first_and_newest(keys: ArrowArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First and last position of each distinct key, in ascending order of keys."""
    order = key_order(keys)
    in_order = keys.take(pa.array(order))
    differs = pc.not_equal(in_order[1:], in_order[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.concatenate(([True], differs)))
    return np.minimum.reduceat(order, starts), np.maximum.reduceat(order, starts)


def _in_layout(values: ArrowArray, layer: EntryLayer, form: Form, encode: Encoder) -> ArrowArray:
    """Values of a layer, converted to the current schema."""
    if pa.types.is_dictionary(values.type):
        distinct = _in_layout(values.dictionary, layer, form, encode)
        return pa.DictionaryArray.from_arrays(values.indices, distinct)
    schema, path = layer.hfile.schema or "", layer.source.path
    if not len(values) or _has_layout(layer, has_ordering=bool(form.has_ordering)):
        return _without_file_name(values, path)
    if form.has_ordering and _has_layout(layer, has_ordering=False):
        # Add a null field: the last byte is the null of another payload, so one more zero byte is enough.
        return pc.binary_join_element_wise(_without_file_name(values, path), b"\0", b"")
    records = (StoredValue(value, schema, path) for value in values.to_pylist())
    return pa.array([_encode_again(record, form, encode) for record in records], pa.binary())


def _without_file_name(values: ArrowArray, path: str) -> ArrowArray:
    """Values without the base file name, the one meta field that Hudi adds in a compaction."""
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


def _encode_again(stored: StoredValue, form: Form, encode: Encoder) -> bytes:
    record = decode_metadata_record(stored.value, stored.schema, path=stored.path)
    value = encode(record, form)
    if value is None:
        raise CorruptTableError(f"a {record.kind.name} record is in the wrong partition", path=stored.path)
    return value


def flags(values: ArrowArray, payload: str, name: str, path: str) -> npt.NDArray[np.bool_]:
    """A flag in the payload of each record."""
    payloads = decode_payloads(values, stored_schema(), payload, path=path, required=True)
    return np.asarray(field_of(payloads, name, pa.bool_()))


def _schema_of(shard: Shard, form: Form) -> str:
    """The schema of the values; another engine's spelling of the same schema is kept.

    By it, later writers recognize statistics of partitions that another engine wrote.
    """
    own = stored_schema(has_ordering=bool(form.has_ordering))
    schemas = [layer.hfile.schema for layer in shard.layers() if isinstance(layer, EntryLayer) and layer.hfile.schema]
    others = (each for each in schemas if each != own and has_same_layout(each, own))
    return next(others, own)
