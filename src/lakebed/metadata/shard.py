"""One file group of an MDT partition: a base HFile, and on top of it log blocks that add or delete keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakebed.format.hfile import HFile, decode_hfile
from lakebed.format.log.blocks import decode_deletes, hfile_content, holds_bytes
from lakebed.format.log.file import BlockKind
from lakebed.model.files import FileSlice
from lakebed.model.source import ByteSource
from lakebed.storage import Storage
from lakebed.view.blocks import BlockFilter, FiledBlock, load_blocks


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The bytes stored under a key, and what is needed to decode them."""

    value: bytes
    schema: str
    path: str


class Decoder(Protocol):
    """Decodes records of one MDT partition type: `keys` and `values` of an HFile, and the values' Avro schema."""

    def __call__(self, keys: pa.Array, values: pa.Array, schema: str, *, path: str) -> pa.Table:
        """One row per record or more."""
        ...


@dataclass(frozen=True, slots=True)
class EntryLayer:
    """Entries of one HFile: a base file or a log block."""

    hfile: HFile
    source: ByteSource

    def stored(self, value: bytes) -> StoredValue:
        """A value of this layer, with its schema."""
        return StoredValue(value, self.hfile.schema or "", self.source.path)

    def decode(self, decode: Decoder) -> pa.Table:
        """All entries, as a decoder of metadata records gives them."""
        batch = decode_hfile(self.source)
        keys, values = batch["key"], batch["value"]
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        return decode(keys, values, self.hfile.schema or "", path=self.source.path)


class DeleteLayer:
    """Keys that one delete block removes from the layers below. They are decoded when somebody asks."""

    def __init__(self, filed: FiledBlock) -> None:
        self._filed = filed

    @cached_property
    def keys(self) -> frozenset[str]:
        """All of them."""
        return frozenset(decode_deletes(self._filed.block, path=self._filed.path)["key"].to_pylist())

    def remove_from(self, found: dict[str, list[StoredValue]]) -> None:
        """Take out what is deleted; a block in which the bytes of no key occur is not decoded."""
        if "keys" in self.__dict__ or any(holds_bytes(self._filed.block, key.encode()) for key in found):
            for key in self.keys & found.keys():
                del found[key]


Layer = EntryLayer | DeleteLayer


class Shard:
    """The entries of one file group, as layers from oldest to newest."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self._layers = layers

    def find_many(self, keys: Iterable[str]) -> dict[str, list[StoredValue]]:
        """For each key that is there, its values from oldest to newest since it was last deleted."""
        wanted = {key.encode(): key for key in keys}
        found: dict[str, list[StoredValue]] = {}
        for layer in self._layers:
            if isinstance(layer, DeleteLayer):
                layer.remove_from(found)
            else:
                for raw, value in layer.hfile.find_many(wanted).items():
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
        """All entries, decoded layer by layer; of several entries of one key the newest counts. None if there are none.

        `decode` gives a table with a column `key`, one row per entry.
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
    """The shard stored in a file slice of the MDT; HFiles are opened, not read."""
    layers: list[Layer] = []
    if file_slice.base is not None:
        path = f"{root}{file_slice.path(file_slice.base.name)}"
        layers.append(_entry_layer(storage.source(path, file_slice.base.size)))
    for filed in load_blocks(storage, file_slice, layout=layout, counts=counts, root=root):
        layers.extend(block_layers(filed))
    return Shard(tuple(layers))


def block_layers(filed: FiledBlock) -> Iterator[Layer]:
    """What one log block adds to a shard, or takes from it."""
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
