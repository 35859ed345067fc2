"""Writing to shards of the metadata table: one log file per shard that an instant touches.

Planning is pure and gives one write per shard, so that they can be encoded wherever there is room. Nothing written
counts before the metadata table's own instant is published, which is not done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from lakebed.engine.engines import map_large
from lakebed.engine.randomness import new_write_token
from lakebed.errors import WriteConflictError
from lakebed.format.file_names import encode_log_file_name
from lakebed.format.hfile.layout import Packing
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.shard_files import encode_placeholder_log, encode_shard_base, encode_shard_log
from lakebed.metadata.entries import Entries
from lakebed.metadata.table import ROOT
from lakebed.model.commit import NO_LOGS, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.storage.confirm import create_files

FIRST_TOKEN = "0-0-0"
"""The write token of placeholders, which no task has."""

_FEW_ENTRIES = 1000
"""Entries of a shard up to which starting a thread takes longer than encoding them."""

Groups = Mapping[str, tuple[str, ...]]
"""File ids of the file groups of metadata-table partitions, in shard order."""


class StoredEntries(Protocol):
    """Entries of a shard that are still in files."""

    @property
    def bytes(self) -> int:
        """About how many bytes they have."""
        ...

    def load(self) -> Entries:
        """Reads them."""
        ...


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """The entries that an instant has for one shard; of a shard that `is_new`, also none. Some are yet to be loaded.

    `has_ordering`: they are entries of a record index, of the schema with ordering values. `packing`: how many of them
    are compressed, if that is known already.
    """

    mdt_partition: str
    file_id: str
    entries: Entries | StoredEntries
    is_new: bool = False
    has_ordering: bool = False
    packing: Packing | None = None

    @property
    def at_hand(self) -> Entries:
        """The entries, which must have been loaded."""
        assert isinstance(self.entries, Entries), self.file_id
        return self.entries

    def loaded(self) -> ShardWrite:
        """The same, with the entries at hand."""
        return self if isinstance(self.entries, Entries) else replace(self, entries=self.entries.load())


class Companion(Protocol):
    """Something made from the entries of a shard beside its log file, on the same thread."""

    def build(self, write: ShardWrite) -> object | None:
        """Builds it; None if this shard has none."""
        ...

    def add(self, stat: WriteStat, built: object) -> None:
        """Takes what was built, once its log file is stored."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """A write to a shard as the bytes of its log file, none without entries; and its companion, if there is one."""

    write: ShardWrite
    data: bytes
    companion: object | None = None


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The new files of a shard, by path, and what the delta commit says of them; None if there are no entries."""

    files: Mapping[str, bytes]
    stat: WriteStat | None = None


class EncodeShard(Protocol):
    """Encodes what a write has for a shard; `created_ms` is the time of day."""

    def __call__(
        self, write: ShardWrite, *, instant: InstantTime, created_ms: int, beside: Companion | None = None
    ) -> EncodedShard:
        """The log file of the shard, and what is built `beside` it."""
        ...


def encode_shard(
    write: ShardWrite, *, instant: InstantTime, created_ms: int, beside: Companion | None = None
) -> EncodedShard:
    """The log file of a shard, and what is built `beside` it. `created_ms` is the time of day."""
    entries = write.at_hand
    if not len(entries):
        return EncodedShard(write, b"")
    data = encode_shard_log(
        instant,
        entries.keys,
        entries.values,
        entries.deletes,
        mdt_partition=write.mdt_partition,
        schema=stored_schema(has_ordering=write.has_ordering),
        created_ms=created_ms,
        in_order=entries.in_order,
        packing=write.packing,
    )
    return EncodedShard(write, data, None if beside is None else beside.build(write))


class EncodeBase(Protocol):
    """Encodes all entries of a shard; `created_ms` is the time of day."""

    def __call__(self, entries: Entries, *, created_ms: int, in_order: bool, has_ordering: bool) -> bytes:
        """The base file of the shard."""
        ...


def encode_base(entries: Entries, *, created_ms: int, in_order: bool = False, has_ordering: bool = False) -> bytes:
    """The base file of a shard, of entries whose keys are unique, given in ascending order or in any.

    `has_ordering`: they are entries of a record index, of the schema with ordering values.
    """
    assert not len(entries.deletes), "a base file has nothing to delete"
    schema = stored_schema(has_ordering=has_ordering)
    return encode_shard_base(entries.keys, entries.values, schema=schema, created_ms=created_ms, in_order=in_order)


@dataclass(frozen=True, slots=True)
class ShardCodec:
    """How entries become files of shards, and what makes the names of these unique.

    It is handed in, so that the protocol around it runs without HFiles and without chance.
    """

    encode: EncodeShard = encode_shard
    encode_base: EncodeBase = encode_base
    new_token: Callable[[int], str] = new_write_token


SHARD_CODEC = ShardCodec()


def name_files(shard: EncodedShard, *, instant: InstantTime, token: str) -> NewFiles:
    """The log file of a shard, if it has entries, and its placeholder, if it is new.

    `token` is unique per attempt of an instant.
    """
    assert token != FIRST_TOKEN, token
    write, data = shard.write, shard.data
    folder = f"{ROOT}{write.mdt_partition}"
    placeholder = {}
    if write.is_new:
        placeholder = {f"{folder}/{_placeholder(write.file_id, instant)}": encode_placeholder_log(instant)}
    if not data:
        return NewFiles(placeholder)
    name = encode_log_file_name(write.file_id, instant, 1, token)
    group, entries = FileGroupId(write.mdt_partition, write.file_id), write.at_hand
    count, gone = len(entries.keys), len(entries.deletes)
    stat = log_stat(group, name, prev_commit=instant, entries=count, deletes=gone, size=len(data))
    return NewFiles({**placeholder, f"{folder}/{name}": data}, stat)


def write_shards(
    storage: Storage,
    writes: Iterable[ShardWrite],
    *,
    instant: InstantTime,
    token: str,
    created_ms: int,
    beside: Companion | None = None,
    ready: Iterable[Future[EncodedShard]] = (),
    encode: EncodeShard = encode_shard,
) -> tuple[WriteStat, ...]:
    """Stores the log files of shards; the write stats of those that have entries.

    Those with many entries are encoded on threads, while `writes` that come after them are still being planned; some
    may be `ready`, or are about to be.
    """
    run = partial(encode, instant=instant, created_ms=created_ms, beside=beside)
    encoded = map_large(writes, run, lambda write: len(write.at_hand) > _FEW_ENTRIES)
    shards = [*(future.result() for future in ready), *encoded]
    named = [name_files(shard, instant=instant, token=token) for shard in shards]
    store_files(storage, {path: data for each in named for path, data in each.files.items()})
    for shard, each in zip(shards, named, strict=True):
        if beside is not None and shard.companion is not None and each.stat is not None:
            beside.add(each.stat, shard.companion)
    return tuple(each.stat for each in named if each.stat is not None)


def store_placeholder(storage: Storage, mdt_partition: str, file_id: str, instant: InstantTime) -> None:
    """Brings a shard into being."""
    path = f"{ROOT}{mdt_partition}/{_placeholder(file_id, instant)}"
    store_file(storage, path, encode_placeholder_log(instant))


def store_file(storage: Storage, path: str, data: bytes) -> None:
    """Creates a data file whose name is its writer's alone."""
    store_files(storage, {path: data})


def store_files(storage: Storage, files: Mapping[str, bytes]) -> None:
    """Creates data files whose names are their writer's alone."""
    if not create_files(storage, files):
        raise WriteConflictError(
            f"{storage.url}: one of {', '.join(sorted(files)[:3])} already exists with different content",
            hint="run the write again as a new attempt",
        )


def _placeholder(file_id: str, instant: InstantTime) -> str:
    return encode_log_file_name(file_id, instant, 1, FIRST_TOKEN)


def log_stat(
    group: FileGroupId, name: str, *, prev_commit: InstantTime, entries: int, deletes: int, size: int
) -> WriteStat:
    """What a delta commit says of the one log file that it adds to a shard."""
    return WriteStat(
        file_id=group.file_id,
        path=f"{group.partition}/{name}",
        partition=group.partition,
        prev_commit=prev_commit,
        num_writes=entries,
        num_updates=entries,  # Hudi counts all entries of a log file so, new keys or not.
        num_deletes=deletes,
        total_write_bytes=size,
        file_size=size,
        base_file="",
        log_files=(name,),
        log_version=1,
        log_offset=0,
        extra=NO_LOGS,
    )
