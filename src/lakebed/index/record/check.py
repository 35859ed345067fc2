"""Checks of the record index: against the rows of the table, and for keys of a write that are not unique."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakebed.errors import WriteConflictError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.format.metadata.record_index import decode_entry_values
from lakebed.index.check import DIFFERENT, EXTRA, MISSING, REPEATED, Checked, Tally
from lakebed.index.facts import FileFacts
from lakebed.index.layout import ShardLayout
from lakebed.index.record.build import count_rows, key_source
from lakebed.index.record.entries import key_texts
from lakebed.index.record.key_locations import locate_keys
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.index.record.shard_cache import default_cache
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import gather_shards
from lakebed.metadata.entries import Entries, concat_entries, concat_texts
from lakebed.model.files import FileGroupId
from lakebed.observe import Meter
from lakebed.table import TableState


def check_record_index(checked: Checked, tally: Tally) -> None:
    """Compares entries with all rows, shard by shard; an entry in a wrong shard counts as missing and as extra."""
    state, metadata = checked.state, checked.metadata
    layout = _stored_layout(state, metadata)
    rows = sum(count_rows(state, {}).values())
    definition = metadata.definitions.get(RECORD_INDEX)
    ordering = definition.ordering if definition is not None else None
    source = key_source(state, checked.scan, layout, rows, definition)
    slices = {s.group.file_id: s for s in metadata.slices(RECORD_INDEX)}
    meter = Meter(RECORD_INDEX, source.pieces * source.passes + len(slices), checked.observer)
    unseen = set(slices)
    for file_id, parts in gather_shards(source.read, layout.file_ids, passes=min(source.passes, len(slices) or 1)):
        unseen.discard(file_id)
        stored = _places(concat_entries(parts), has_ordering=ordering is not None)
        _compare_places(_index_places(checked, file_id, slices), stored, tally)
        meter.step()
    for file_id in sorted(unseen & slices.keys()):
        _compare_places(_index_places(checked, file_id, slices), _places(Entries.of({})), tally)
        meter.step()


def check_unique(metadata: MetadataTable, facts: Sequence[FileFacts], replaced: Collection[FileGroupId]) -> None:
    """Raises if a key that is new in its file group is also in another one, and the write does not remove it there."""
    gone = concat_texts([key_texts(file.deleted_keys) for file in facts])
    for file in facts:
        came = key_texts(file.inserted_keys)
        new = came.filter(pc.invert(pc.is_in(came, gone.cast(came.type))))
        home = FileGroupId(file.stat.partition, file.stat.file_id)
        rivals = {*_groups_with(metadata, new, file.stat.partition)} - {home, *replaced}
        if rivals:
            raise WriteConflictError(
                f"a concurrent write inserted some of the same keys, into {min(map(str, rivals))}",
                hint="run the write again: it will update them",
            )


def _stored_layout(state: TableState, metadata: MetadataTable) -> ShardLayout:
    """The layout of the stored shards. A data partition without shards gets a placeholder: its rows are missing."""
    file_ids = tuple(s.group.file_id for s in metadata.slices(RECORD_INDEX))
    partitions = dict.fromkeys(s.group.partition for s in state.latest_slices)
    if all(data_partition_of_group(file_id) is None for file_id in file_ids) and file_ids:
        return ShardLayout(dict.fromkeys(partitions, file_ids), file_ids)
    shards = {p: tuple(f for f in file_ids if data_partition_of_group(f) == p) or (f"?{p}",) for p in partitions}
    lacking = [ids[0] for ids in shards.values() if ids[0].startswith("?")]
    return ShardLayout(shards, (*file_ids, *lacking))


def _index_places(checked: Checked, file_id: str, slices: Mapping[str, object]) -> pa.Table:
    if file_id not in slices:
        return _places(Entries.of({}))
    merged = checked.merged(file_id)
    entries = Entries(merged.keys, merged.values, Entries.of({}).deletes)
    return _places(entries, has_ordering=merged.has_ordering)


def _places(entries: Entries, *, has_ordering: bool = False) -> pa.Table:
    """Keys, places in entries, both joined, and ordering values (null if there are none)."""
    values = entries.values
    if pa.types.is_dictionary(values.type):  # Drop values that are not used.
        values = values.dictionary.take(values.indices).dictionary_encode()
    decoded = decode_entry_values(values, stored_schema(has_ordering=has_ordering), path=RECORD_INDEX)
    names = [f"{at.partition}/{at.file_id}" if at.partition else at.file_id for at in decoded.locations]
    places = pa.array(names, pa.string()).take(pa.array(decoded.ids))
    keys = entries.keys.cast(pa.string())
    ordering = pa.nulls(len(keys), pa.int64()) if decoded.ordering is None else decoded.ordering
    both = pc.binary_join_element_wise(keys, places, "\0")
    return pa.table({"key": keys, "place": places, "both": both, "ordering": ordering})


def _compare_places(indexed: pa.Table, stored: pa.Table, tally: Tally) -> None:
    tally.checked += stored.num_rows
    missing = stored.filter(pc.invert(pc.is_in(stored["key"], value_set=_one(indexed["key"]))))
    extra = indexed.filter(pc.invert(pc.is_in(indexed["key"], value_set=_one(stored["key"]))))
    is_shared = pc.is_in(indexed["key"], value_set=_one(stored["key"]))
    other = indexed.filter(pc.and_not(is_shared, pc.is_in(indexed["both"], value_set=_one(stored["both"]))))
    tally.add(MISSING, missing.num_rows, ((key, None, place) for key, place in _rows(missing)))
    tally.add(EXTRA, extra.num_rows, ((key, place, None) for key, place in _rows(extra)))
    tally.add(DIFFERENT, other.num_rows, ((k, place, _place_of(stored, k)) for k, place in _rows(other)))
    _compare_ordering(indexed, stored, tally)
    counts = pc.value_counts(stored["key"])
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
    tally.add(REPEATED, len(repeated), ((key, None, _place_of(stored, key)) for key in repeated))


def _compare_ordering(indexed: pa.Table, stored: pa.Table, tally: Tally) -> None:
    """Ordering values in the index may be below those of rows, but not above: updates would be dropped as late."""
    known = indexed.filter(indexed["ordering"].is_valid())
    if not known.num_rows:
        return
    rows = pc.index_in(known["both"], value_set=_one(stored["both"]))
    known, theirs = known.filter(rows.is_valid()), stored["ordering"].take(rows.drop_null())
    above = pc.fill_null(pc.greater(known["ordering"], theirs), True)
    pairs = pa.table({"key": known["key"], "ours": known["ordering"], "theirs": theirs}).filter(above)
    tally.add(DIFFERENT, pairs.num_rows, (_ordering_example(*row.values()) for row in pairs.to_pylist()))


def _ordering_example(key: str, ours: int, theirs: int | None) -> tuple[str, str, str]:
    return key, f"ordering value {ours}", f"ordering value {theirs}"


def _rows(table: pa.Table) -> Iterator[tuple[str, str]]:
    for batch in table.select(["key", "place"]).to_batches(max_chunksize=100):
        yield from zip(batch["key"].to_pylist(), batch["place"].to_pylist(), strict=True)


def _place_of(stored: pa.Table, key: str) -> str:
    return " and ".join(stored.filter(pc.equal(stored["key"], key))["place"].to_pylist())


def _one(column: pa.ChunkedArray) -> ArrowArray:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _groups_with(metadata: MetadataTable, keys: ArrowArray, partition: str) -> Iterator[FileGroupId]:
    """The file groups that have some of the keys, which are of one data partition."""
    if len(keys):
        found = locate_keys(metadata, keys, pa.repeat(partition, len(keys)).dictionary_encode(), cache=default_cache())
        yield from (found.places[code] for code in np.unique(found.codes[found.codes >= 0]))
