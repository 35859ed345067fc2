"""Staging area for base files of shards: a folder of this machine, until they become part of the table.

The content of a base file does not depend on its instant, only its name does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakebed.engine.engines import map_bounded
from lakebed.engine.randomness import new_write_token
from lakebed.format.arrow import pc
from lakebed.format.hfile import decode_hfile
from lakebed.format.metadata.datum import texts
from lakebed.index.build import Source, Target, join_unique, map_shards
from lakebed.metadata.bootstrap import store_encoded
from lakebed.metadata.entries import Entries, concat_texts
from lakebed.metadata.shard_writes import encode_base
from lakebed.model.commit import WriteStat
from lakebed.model.source import BytesSource
from lakebed.observe import Meter
from lakebed.storage.problems import os_errors_typed


@dataclass(frozen=True, slots=True)
class StagedShard:
    """A staged base file."""

    file_id: str
    path: Path
    entry_count: int


@dataclass(frozen=True, slots=True)
class Staging:
    """A folder for base files of an index; `has_ordering`: entries carry ordering values."""

    folder: Path
    created_ms: int
    has_ordering: bool

    def stage_all(self, source: Source, file_ids: Sequence[str], meter: Meter) -> dict[str, StagedShard]:
        """Stages base files of all shards, empty ones included; by file id."""
        staged = map_shards(source, file_ids, self._stage, meter, all_shards=True)
        return {shard.file_id: shard for shard in staged}

    def stage_changed(self, changed: Sequence[tuple[StagedShard | None, str, Entries]]) -> Iterator[StagedShard]:
        """Stages base files that merge newer entries into the staged ones, if any."""
        taken = sum(1 for _ in self.folder.iterdir())
        return map_bounded(
            enumerate(changed, taken), lambda task: self._stage(task[0], task[1][1], _with_newer(*task[1]))
        )

    def _stage(self, number: int, file_id: str, entries: Entries) -> StagedShard:
        data = encode_base(entries, created_ms=self.created_ms, in_order=True, has_ordering=self.has_ordering)
        path = self.folder / f"{number}.hfile"
        with os_errors_typed(str(path)):
            path.write_bytes(data)
        return StagedShard(file_id, path, len(entries.keys))


def store_staged(target: Target, shards: Sequence[StagedShard], meter: Meter, *, first: int) -> Iterator[WriteStat]:
    """Stores staged base files in the table; their write tokens are numbered from `first`."""

    def store(task: tuple[int, StagedShard]) -> WriteStat:
        number, shard = task
        return store_encoded(
            target.storage,
            target.mdt_partition,
            shard.file_id,
            shard.path.read_bytes(),
            instant=target.instant,
            token=new_write_token(number),
            entry_count=shard.entry_count,
        )

    for stat in map_bounded(enumerate(shards, first), store):
        meter.step()
        yield stat


def _with_newer(shard: StagedShard | None, file_id: str, newer: Entries) -> Entries:
    """The entries of a staged base file, replaced by newer ones of the same keys."""
    nothing = Entries.of({})
    added = Entries(newer.keys, newer.values, nothing.deletes)
    if shard is None or not shard.entry_count:
        return join_unique([added])
    batch = decode_hfile(BytesSource(shard.path.read_bytes(), file_id))
    keys = texts(batch["key"])
    stays = pc.invert(pc.is_in(keys, concat_texts([newer.keys, newer.deletes]).cast(keys.type)))
    return join_unique([Entries(keys.filter(stays), batch["value"].filter(stays), nothing.deletes), added])
