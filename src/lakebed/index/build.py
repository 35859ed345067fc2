"""Building an index: entries are gathered piece by piece, and base files stored on threads, a few shards at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from lakebed.engine.engines import map_bounded
from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.hfile import key_order
from lakebed.metadata.bootstrap import gather_shards, store_base
from lakebed.metadata.entries import Entries, concat_entries, split_entries
from lakebed.metadata.shard_writes import SHARD_CODEC, ShardCodec
from lakebed.model.commit import WriteStat
from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime
from lakebed.observe import Meter
from lakebed.options import IndexOptions
from lakebed.storage import Storage
from lakebed.table import TableState

R = TypeVar("R")
T = TypeVar("T")

Read = Callable[[Collection[str]], Iterable[Mapping[str, Entries]]]
"""Gives the entries of some shards piece by piece, by file id."""

Join = Callable[[Sequence[Entries]], Entries]
"""Makes one of the pieces of a shard: its entries in ascending order of their keys, each key once."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the entries of a partition come from: in `pieces` pieces, gathered in so many `passes`."""

    read: Read
    pieces: int
    join: Join
    passes: int = 1


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """An index to create. `shards` are those of the whole index, or of each data partition of a partitioned one.

    A record index with a `window` knows the keys of so many of the newest partitions; rows for others are handled as
    `outside` says. One that is built anew `keeps` its kind, window and ordering values unless told otherwise; so
    statistics may keep their columns.
    """

    partition: str
    kind: str
    columns: tuple[str, ...] = ()
    shards: int | None = None
    on_duplicate: str = "fail"
    rebuild: bool = False
    window: int | None = None
    outside: str = "scan"
    keeps: bool = False


class Scan(Protocol):
    """A scan of one file slice."""

    @property
    def file_slice(self) -> FileSlice:
        """What is read."""
        ...

    @property
    def config(self) -> TableConfig:
        """The table's configuration."""
        ...

    def read(self, columns: Sequence[str] | None = None, keys: frozenset[str] | None = None) -> pa.Table:
        """The rows, with other columns or of some keys only if that is asked for."""
        ...


class Scanner(Protocol):
    """Reads rows of a table; handed in by whoever builds or checks an index."""

    def __call__(self, state: TableState, columns: Sequence[str]) -> Sequence[Scan]:
        """A scan of each file slice of the newest snapshot."""
        ...


@dataclass(frozen=True, slots=True)
class Build:
    """What an index is built from: the table, what was asked for, and what its definition will say.

    `rows` has the number of rows of files by path, as far as they were counted before.
    """

    state: TableState
    request: IndexRequest
    definition: IndexDefinition | None
    options: IndexOptions
    scan: Scanner
    rows: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """The instant of a new partition, which its base files are of, and their codec; `has_ordering`: of its entries."""

    storage: Storage
    mdt_partition: str
    instant: InstantTime
    created_ms: int
    has_ordering: bool = False
    codec: ShardCodec = SHARD_CODEC


def store_shards(target: Target, source: Source, file_ids: Sequence[str], meter: Meter) -> tuple[WriteStat, ...]:
    """Stores a base file for each shard that has entries."""

    def store(number: int, file_id: str, entries: Entries) -> WriteStat:
        return store_base(
            target.storage,
            target.mdt_partition,
            file_id,
            entries,
            instant=target.instant,
            token=target.codec.new_token(number),
            created_ms=target.created_ms,
            in_order=True,
            has_ordering=target.has_ordering,
            codec=target.codec,
        )

    return tuple(map_shards(source, file_ids, store, meter))


def map_shards(
    source: Source,
    file_ids: Sequence[str],
    run: Callable[[int, str, Entries], R],
    meter: Meter,
    *,
    all_shards: bool = False,
) -> Iterator[R]:
    """Results of `run`, on threads, over the number, the file id and the entries of each shard that has any, or all."""

    def read(wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
        for piece in source.read(wanted):
            meter.step()
            yield piece

    def join(task: tuple[int, str, list[Entries]]) -> R:
        number, file_id, parts = task
        entries = source.join(parts)
        parts.clear()
        return run(number, file_id, entries)

    numbers = {file_id: number for number, file_id in enumerate(file_ids)}
    gathered = gather_shards(read, file_ids, passes=min(source.passes, max(len(file_ids), 1)))
    shards = _with_empty(gathered, file_ids) if all_shards else gathered
    for result in map_bounded(((numbers[file_id], file_id, parts) for file_id, parts in shards), join):
        meter.step()
        yield result


def join_unique(parts: Sequence[Entries]) -> Entries:
    """The entries of a shard in order. Two of one key mean that a file is listed twice."""
    entries, repeated = join_sorted(parts)
    if repeated.any():
        key = entries.keys[int(repeated.argmax())].as_py()
        raise CorruptTableError(f"there are two entries for {key!r}", path="<metadata table>")
    return entries


def join_sorted(parts: Sequence[Entries]) -> tuple[Entries, ArrowArray]:
    """The entries of a shard in order, and (as a numpy array) whether the next one has the same key."""
    entries = concat_entries(parts) if parts else Entries.of({})
    order = pa.array(key_order(entries.keys))
    keys = entries.keys.take(order)
    repeated = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return Entries(keys, entries.values.take(order), entries.deletes), repeated


def pieces_source(items: Sequence[T], entries: Callable[[T], Entries], file_ids: Sequence[str]) -> Source:
    """Entries of items, made piece by piece on threads and hashed over shards; no key occurs twice."""

    def read(wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
        split = partial(split_entries, file_ids=file_ids, wanted=wanted)
        return map_bounded(items, lambda item: split(entries(item)))

    return Source(read, len(items), join_unique)


def _with_empty(
    gathered: Iterable[tuple[str, list[Entries]]], file_ids: Sequence[str]
) -> Iterator[tuple[str, list[Entries]]]:
    seen = set()
    for file_id, parts in gathered:
        seen.add(file_id)
        yield file_id, parts
    yield from ((file_id, []) for file_id in file_ids if file_id not in seen)
