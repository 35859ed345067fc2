"""A shard: one file group of an MDT partition, with a base HFile and log blocks that add or delete keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakebed.format.hfile import HFile, decode_hfile
from lakebed.format.hfile.arrow import all_records
from lakebed.format.hfile.reader import TAIL_BYTES
from lakebed.format.log.blocks import decode_deletes, hfile_content, holds_bytes
from lakebed.format.log.file import BlockKind
from lakebed.model.files import FileSlice
from lakebed.model.source import ByteSource, BytesSource
from lakebed.storage import Storage
from lakebed.view.blocks import BlockFilter, FiledBlock, load_blocks, without_replaced

_LAYOUT = 2
_FEW_KEYS = 4
"""Maximum number of keys to look up in a small log block without decoding all of it."""
_ENTRIES_MAX = 1024
"""Maximum number of entries of a small log block."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A stored value, with its schema and the path of its file."""

    value: bytes
    schema: str
    path: str


class Decoder(Protocol):
    """Decodes records of one MDT partition type: `keys` and `values` of an HFile, and the values' Avro schema."""

    def __call__(self, keys: pa.Array, values: pa.Array, schema: str, *, path: str) -> pa.Table:
        """A table with one or more rows per record."""
        ...


class EntryLayer:
    """Entries of one HFile, in a base file or a log block."""

    def __init__(self, hfile: HFile, source: ByteSource) -> None:
        self.hfile = hfile
        self.source = source

    @cached_property
    def _entries(self) -> dict[bytes, bytes]:
        return dict(self.hfile.items())

    def find_many(self, keys: Collection[bytes]) -> dict[bytes, bytes]:
        """Values of those keys that exist. A small log block is decoded once if several keys are looked up."""
        is_small = isinstance(self.source, BytesSource) and self.hfile.entry_count <= _ENTRIES_MAX
        if "_entries" in self.__dict__ or (is_small and len(keys) > _FEW_KEYS):
            return {key: self._entries[key] for key in keys if key in self._entries}
        return self.hfile.find_many(keys)

    def stored(self, value: bytes) -> StoredValue:
        """A value of this layer, with its schema."""
        return StoredValue(value, self.hfile.schema or "", self.source.path)

    def records(self) -> pa.RecordBatch:
        """Keys and values as stored."""
        return all_records(self.hfile) if isinstance(self.source, BytesSource) else decode_hfile(self.source)

    def decode(self, decode: Decoder) -> pa.Table:
        """All entries, decoded."""
        batch = self.records()
        keys, values = batch["key"], batch["value"]
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        return decode(keys, values, self.hfile.schema or "", path=self.source.path)


class DeleteLayer:
    """Keys that one delete block removes from the layers below, decoded on demand."""

    def __init__(self, filed: FiledBlock) -> None:
        self._filed = filed
        self.path = filed.path

    @cached_property
    def keys(self) -> frozenset[str]:
        """The deleted keys."""
        return frozenset(decode_deletes(self._filed.block, path=self._filed.path)["key"].to_pylist())

    def remove_from(self, found: dict[str, list[StoredValue]]) -> None:
        """Removes deleted keys; the block is not decoded if it contains the bytes of none of them."""
        if "keys" in self.__dict__ or any(holds_bytes(self._filed.block, key.encode()) for key in found):
            for key in self.keys & found.keys():
                del found[key]


Layer = EntryLayer | DeleteLayer


class Shard:
    """The entries of one file group, as layers from oldest to newest.

    `replaced` are instants whose log blocks were replaced by those of a log compaction.
    """

    def __init__(self, layers: tuple[Layer, ...], replaced: frozenset[str] = frozenset()) -> None:
        self._layers = layers
        self.replaced = replaced

    def find_many(self, keys: Iterable[str]) -> dict[str, list[StoredValue]]:
        """The values of each existing key since its last delete, oldest first."""
        wanted = {key.encode(): key for key in keys}
        found: dict[str, list[StoredValue]] = {}
        for layer in self._layers:
            if isinstance(layer, DeleteLayer):
                layer.remove_from(found)
            else:
                for raw, value in layer.find_many(wanted).items():
                    found.setdefault(wanted[raw], []).append(layer.stored(value))
        return found

    def scan_prefix(self, prefix: str) -> dict[str, list[StoredValue]]:
        """Like `find_many`, for all keys that start with `prefix`."""
        found: dict[str, list[StoredValue]] = {}
        for layer in self._layers:
            if isinstance(layer, DeleteLayer):
                layer.remove_from(found)
            else:
                for raw, value in layer.hfile.scan_prefix(prefix.encode()):
                    found.setdefault(raw.decode(), []).append(layer.stored(value))
        return found

    def read_all(self, decode: Callable[[EntryLayer], pa.Table]) -> pa.Table | None:
        """The newest entry of each key, decoded layer by layer; None if there are no entries.

        `decode` returns a table with a column `key` and one row per entry.
        """
        tables, keys, live = [], [], []
        for layer in self._layers:
            if isinstance(layer, DeleteLayer):
                keys.append(pa.array(sorted(layer.keys), pa.string()))
                live.append(np.zeros(len(layer.keys), bool))
            else:
                table = decode(layer)
                tables.append(table)
                keys.append(table["key"].combine_chunks().cast(pa.string()))
                live.append(np.ones(table.num_rows, bool))
        if not tables:
            return None
        newest = _newest_of_each(pa.chunked_array(keys, pa.string()))
        entries = np.concatenate(live)
        return pa.concat_tables(tables).filter(pa.array(newest[entries]))

    def layers(self) -> Iterator[Layer]:
        """The layers, oldest first."""
        return iter(self._layers)


def load_shard(storage: Storage, file_slice: FileSlice, *, layout: int, counts: BlockFilter, root: str) -> Shard:
    """Opens the shard in a file slice of the MDT; HFiles are opened, not read."""
    layers: list[Layer] = []
    if file_slice.base is not None:
        path = f"{root}{file_slice.path(file_slice.base.name)}"
        layers.append(_entry_layer(storage.source(path, file_slice.base.size)))
    for filed in load_blocks(storage, file_slice, layout=layout, counts=counts, root=root):
        layers.extend(_block_layers(filed))
    return Shard(tuple(layers))


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An opened file of a shard, in timeline layout 2: layers of a base file, or of each block of a log file.

    `nbytes` is its approximate size in memory.
    """

    base: tuple[Layer, ...]
    blocks: tuple[tuple[FiledBlock, tuple[Layer, ...]], ...]
    nbytes: int

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers."""
        return (*self.base, *(layer for _, layers in self.blocks for layer in layers))

    @property
    def replaced(self) -> frozenset[str]:
        """The instants whose blocks this file replaces."""
        return frozenset[str]().union(*(filed.replaced for filed, _ in self.blocks))


def parts_of(file_slice: FileSlice) -> Iterator[FileSlice]:
    """Splits a slice into slices of one file each, oldest first."""
    if file_slice.base is not None:
        yield replace(file_slice, logs=())
    for log in file_slice.logs:
        yield replace(file_slice, base=None, logs=(log,))


def open_file(storage: Storage, part: FileSlice, *, root: str) -> OpenFile:
    """Opens the only file of a slice."""
    if part.base is not None:
        return OpenFile(tuple(load_whole_shard(storage, part, root=root).layers()), (), TAIL_BYTES)
    blocks = load_blocks_of(storage, part, root=root)
    layers = tuple((filed, tuple(_block_layers(filed))) for filed in blocks)
    return OpenFile((), layers, sum(2 * len(filed.block.content) for filed in blocks))


def shard_of_files(files: Sequence[OpenFile]) -> Shard:
    """The shard made of these files, oldest first; files whose blocks are all replaced may be missing."""
    replaced = frozenset[str]().union(*(file.replaced for file in files))
    if not replaced:
        return Shard(tuple(layer for file in files for layer in file.layers))
    base = (layer for file in files for layer in file.base)
    layers = {id(filed): layers for file in files for filed, layers in file.blocks}
    counted = without_replaced(filed for file in files for filed, _ in file.blocks)
    return Shard((*base, *(layer for filed in counted for layer in layers[id(filed)])), replaced)


def load_whole_shard(storage: Storage, file_slice: FileSlice, *, root: str) -> Shard:
    """Opens the shard of a slice in timeline layout 2, where all blocks of its log files are visible."""
    return load_shard(storage, file_slice, layout=_LAYOUT, counts=_every, root=root)


def load_blocks_of(storage: Storage, file_slice: FileSlice, *, root: str) -> tuple[FiledBlock, ...]:
    """The log blocks of a slice in timeline layout 2, in merge order, without replaced ones."""
    return load_blocks(storage, file_slice, layout=_LAYOUT, counts=_every, root=root)


def shard_of_blocks(blocks: Iterable[FiledBlock]) -> Shard:
    """A shard of log blocks alone, without a base file."""
    return Shard(tuple(layer for filed in blocks for layer in _block_layers(filed)))


def _every(_instant: str) -> bool:
    return True


def _block_layers(filed: FiledBlock) -> Iterator[Layer]:
    """The layer of a log block, if it has one."""
    if filed.block.kind is BlockKind.HFILE_DATA:
        yield _entry_layer(hfile_content(filed.block, path=filed.path))
    elif filed.block.kind is BlockKind.DELETE:
        yield DeleteLayer(filed)


def _entry_layer(source: ByteSource) -> EntryLayer:
    return EntryLayer(HFile.open(source), source)


def _newest_of_each(keys: pa.ChunkedArray) -> np.ndarray:
    """Whether each element is the last with its key."""
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    last = np.zeros(codes.max(initial=-1) + 1, np.int64)
    order = np.arange(len(codes))
    np.maximum.at(last, codes, order)
    newest: np.ndarray = last[codes] == order
    return newest
