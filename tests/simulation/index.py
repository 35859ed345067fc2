"""The kinds of index of simulated tables, and how their entries are spelled: names of files, and where keys live."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakebed.index.build import Build, Source
from lakebed.index.change import MetadataChange
from lakebed.index.data_files import StoredFile
from lakebed.index.facts import FileFacts
from lakebed.index.kind import IndexKind, Update
from lakebed.metadata.bootstrap import group_ids
from lakebed.metadata.entries import Entries
from lakebed.metadata.shard_writes import EncodedShard, ShardCodec, ShardWrite
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime

from .table import BUILT, FILES, INDEX, STATS, Places, decode_rows, encode_entries, shard_of_key

_CONTENT = "content"
"""The one key of the entries of a shard: all that is in them is one value."""


class Names(IndexKind):
    """Names of data files. Every commit writes here, so that one that leaves an index out is noticed."""

    partition = FILES
    words = ("files",)
    has_few = True

    def matches(self, partition: str) -> bool:
        """The list of files, and the index that another engine adds."""
        return partition in (FILES, STATS)

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """One log file, also if there is nothing to say."""
        paths = [f"{folder}/{name}" for folder, names in change.added.items() for name in names]
        entries = _entries(encode_entries(paths, {}, _gone(change)))
        return [ShardWrite(partition, file_id, entries) for file_id in update.groups[partition]]


class Keys(IndexKind):
    """Where each key lives, over shards by the hash of keys."""

    partition = INDEX
    words = ("sim",)
    shards = 2
    wants_keys = True

    def matches(self, partition: str) -> bool:
        """Ours, and the one that another engine builds."""
        return partition in (INDEX, BUILT)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """The keys of a file that was written before the index was there."""
        return replace(facts, inserted_keys=pa.array(decode_rows(stored.storage.get(stored.path))))

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """One log file for each shard that has a key of the change."""
        places: Places = {}
        for of_file in change.keys:
            assert of_file.inserted is not None, f"I14: nobody knows the keys of {of_file.file_id}"
            places.update(dict.fromkeys(of_file.inserted.to_pylist(), (of_file.partition, of_file.file_id)))
        return [
            ShardWrite(partition, file_id, _entries(encode_entries((), here)))
            for file_id, here in _by_shard(places, update.groups[partition]).items()
        ]

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """The keys of all slices, oldest file first, which read takes as many calls as there are files."""

        def read(wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
            places: Places = {}
            for each in build.state.latest_slices:
                for path in each.paths:
                    place = (each.group.partition, each.group.file_id)
                    places.update(dict.fromkeys(decode_rows(build.state.storage.get(path)), place))
            shards = _by_shard(places, file_ids)
            yield {file_id: _entries(encode_entries((), shards.get(file_id, {}))) for file_id in wanted}

        return Source(read, len(build.state.latest_slices), lambda parts: parts[0])


KINDS = (Names(), Keys())


def sim_codec(new_token: Callable[[], str]) -> ShardCodec:
    """Files of shards that are nothing but their content."""
    return ShardCodec(
        encode=_encode_log, encode_base=_encode_base, new_token=lambda number: f"{number}-0-{new_token()[1:]}"
    )


def index_groups(count: int) -> tuple[str, ...]:
    """The shards of the index of keys."""
    return group_ids(INDEX, count)


def _entries(content: bytes) -> Entries:
    return Entries(pa.array([_CONTENT]), pa.array([content], pa.binary()), _NO_DELETES)


_NO_DELETES = pa.array([], pa.string())


def _encode_log(write: ShardWrite, *, instant: InstantTime, created_ms: int, beside: Any = None) -> EncodedShard:
    del instant, created_ms, beside
    return EncodedShard(write, write.at_hand.values[0].as_py())


def _encode_base(entries: Entries, **_: Any) -> bytes:
    return entries.values[0].as_py()


def _by_shard(places: Places, file_ids: Sequence[str]) -> dict[str, Places]:
    found: dict[str, Places] = {}
    for key, place in places.items():
        found.setdefault(file_ids[shard_of_key(key, len(file_ids))], {})[key] = place
    return found


def _gone(change: MetadataChange) -> Iterator[str]:
    for partition, names in change.deleted.items():
        yield from (f"{partition}/{name}" for name in names)
    yield from (f"{partition}/" for partition in change.removed_partitions)
