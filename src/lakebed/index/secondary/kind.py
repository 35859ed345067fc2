"""Secondary indexes, `secondary_index_*`: record keys by the value of another column. Read, not yet kept by writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.keys import columns_from_path
from lakebed.filter.predicate import wanted_values
from lakebed.format.java import shard_of
from lakebed.format.metadata.records import MetadataRecord, decode_secondary_records, encode_secondary_record
from lakebed.format.metadata.secondary_keys import (
    has_certain_text,
    secondary_prefix,
    secondary_value_text,
    split_secondary_key,
    split_secondary_keys,
)
from lakebed.index.change import MetadataChange
from lakebed.index.kind import IndexKind, Update, unsupported
from lakebed.index.prune import WANTED_KEYS_MAX, Kept, NotUsed, Query, Slices, counted
from lakebed.index.record.probe import RECORD_INDEX as KEY_INDEX
from lakebed.index.record.prune import keep_keys
from lakebed.index.secondary.entries import secondary_index_shards
from lakebed.metadata import Unusable
from lakebed.metadata.merging import Form, NewestWins
from lakebed.metadata.shard import StoredValue
from lakebed.metadata.shard_writes import ShardWrite
from lakebed.metadata.table import MetadataTable
from lakebed.model.metadata import SecondaryRecord

PREFIX = "secondary_index_"


def _encode_current(record: MetadataRecord, form: Form) -> bytes | None:
    del form
    payload = record.payload
    return encode_secondary_record(is_deleted=payload.is_deleted) if isinstance(payload, SecondaryRecord) else None


class SecondaryIndexes(IndexKind):
    """Record keys by the value of another column."""

    partition = PREFIX
    words = ("secondary",)
    is_kept = False
    is_built = False
    rests_on = KEY_INDEX
    merge = NewestWins("SecondaryIndexMetadata", _encode_current)

    @property
    def label(self) -> str:
        """One name for all secondary indexes."""
        return "secondary_index"

    def matches(self, partition: str) -> bool:
        """Each index has a partition of its own."""
        return partition.startswith(PREFIX)

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """New pairs of value and key, and deletes of outdated ones."""
        definition = update.definitions.get(partition)
        if definition is None or (change.added and partition not in change.values):
            raise unsupported(partition)
        if partition not in change.values:
            return ()  # A clean: rows stay as they are.
        shards = secondary_index_shards(change.values[partition], update.groups[partition], version=definition.version)
        return [ShardWrite(partition, file_id, entries) for file_id, entries in shards.items()]

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """Keeps the slices that hold a record with a wanted value."""
        if isinstance(query.metadata, Unusable):
            return NotUsed("there is no usable metadata table")
        indexes = [
            d for name, d in query.metadata.definitions.items() if name.startswith(PREFIX) and query.metadata.has(name)
        ]
        if not indexes:
            return NotUsed("the table has none")
        if not query.is_latest:
            return NotUsed("it describes the newest snapshot only")
        from_path = columns_from_path(query.config, query.schema)
        for definition in indexes:
            if definition.source_fields[0] in from_path:
                continue
            values = wanted_values(query.predicate, definition.source_fields[0])
            if values is None or len(values) > WANTED_KEYS_MAX:
                continue
            if not all(_has_one_text(value, definition.version) for value in values):
                return NotUsed(f"writers spell the wanted values of {definition.source_fields[0]} differently")
            keys = find_record_keys(query.metadata, definition.name, [secondary_value_text(value) for value in values])
            return keep_keys(query.metadata, keys, slices, f"{definition.name} gave {counted(len(keys), 'key')}")
        return NotUsed("the filter has no equality on " + ", ".join(d.source_fields[0] for d in indexes))


SECONDARY = SecondaryIndexes()


def find_record_keys(metadata: MetadataTable, index: str, values: Iterable[str | None]) -> tuple[str, ...]:
    """Keys of the records whose indexed column has one of `values`, given as the index spells them."""
    file_ids = [file_slice.group.file_id for file_slice in metadata.slices(index)]
    version = metadata.definitions[index].version
    keys: list[str] = []
    for value in dict.fromkeys(values):
        prefix = secondary_prefix(value, version=version)
        # Version 1 hashed the whole stored key, so the entries of a value lie in any shard.
        chosen = [file_ids[shard_of(prefix, len(file_ids))]] if version != "V1" else file_ids
        for file_id in chosen:
            for stored, layers in metadata.shard(index, file_id).scan_prefix(prefix).items():
                if not _is_deleted(layers[-1]):
                    keys.append(split_secondary_key(stored, path=layers[-1].path)[1])
    return tuple(keys)


def read_secondary_index(metadata: MetadataTable, index: str) -> pa.Table:
    """All entries: value (as text, null for null), record_key."""
    tables = [shard.read_all(lambda layer: layer.decode(decode_secondary_records)) for shard in metadata.shards(index)]
    live = [table.filter(pc.invert(table["is_deleted"])) for table in tables if table is not None]
    stored = pa.concat_tables(live)["key"].combine_chunks() if live else pa.array([], pa.string())
    values, keys = split_secondary_keys(stored, path=index)
    return pa.table({"value": values, "record_key": keys})


def _is_deleted(stored: StoredValue) -> bool:
    key, value = pa.array([b""], pa.binary()), pa.array([stored.value], pa.binary())
    return bool(decode_secondary_records(key, value, stored.schema, path=stored.path)["is_deleted"][0].as_py())


def _has_one_text(value: object, version: str) -> bool:
    """Whether all writers spell a value alike: doubles depend on the writer's Java, dates on the index version."""
    return has_certain_text(value) and (version != "V1" or not isinstance(value, date))
