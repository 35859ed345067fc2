"""A kind of index: all that the rest of the engine asks of it, in one value.

A kind has a folder of its own, with its codec of entries, how they are merged, built, looked up and checked. Nothing
outside the folder and `KINDS` names it: whoever needs an index loops over `KINDS`, or asks `kind_of` a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.errors import UnsupportedTableError
from lakebed.index.change import MetadataChange
from lakebed.index.partition_stats.current import StatsReader
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.metadata.entries import Entries, split_entries
from lakebed.metadata.merging import MergeRule, NewestWins
from lakebed.metadata.shard_writes import Groups, ShardWrite
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class Update:
    """The circumstances of a change: the instant, which indexes there are, and what they know so far.

    `partitions` are the metadata-table partitions to bring up to date, `groups` their file groups, `instant_ms` the
    instant in milliseconds since 1970. A partitioned record index gives new data partitions `groups_per_partition`.
    With `others_write`, another engine has a write under way, whose statistics may come to stand below these. Of
    partitions that are still `building`, nobody can read what they know.
    """

    instant: InstantTime
    instant_ms: int
    partitions: Sequence[str]
    groups: Groups
    definitions: Mapping[str, IndexDefinition]
    stats: StatsReader
    groups_per_partition: int = 1
    others_write: bool = False
    building: frozenset[str] = frozenset()


class IndexKind:
    """What is common to all kinds of index; each overrides what it does in its own way."""

    partition: str
    """The metadata-table partition of the index; of a kind of which a table may have several, their common prefix."""
    words: tuple[str, ...] = ()
    """What users call it."""
    shards: int = 1
    """File groups of a new index, unless told otherwise."""
    is_kept: bool = True
    """Whether writes keep it up to date."""
    has_few: bool = False
    """Whether it has entries per file, not per row."""
    needs: tuple[str, ...] = ("files",)
    """Partitions that it is made of, or cannot be read without."""
    newest_request_wins: bool = False
    """Readers take the entry of the instant that was requested last, whenever it completed, for the whole truth."""
    merge: MergeRule = NewestWins()

    def matches(self, partition: str) -> bool:
        """Whether a metadata-table partition is an index of this kind."""
        return partition == self.partition

    @property
    def label(self) -> str:
        """What `explain` calls it."""
        return self.partition

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude, or why it was not used."""
        del query, slices
        return NotUsed("it does not exclude files")

    def is_defined(self, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Whether it is known what entries must say: without that, nothing can be written to the index."""
        del definitions
        return True

    def first_entries(self, file_ids: Sequence[str]) -> Iterable[tuple[str, Entries]]:
        """What an index of a table without data has, by shard."""
        del file_ids
        return ()

    def writes(self, partition: str, change: MetadataChange, update: Update) -> Sequence[ShardWrite]:
        """What a change writes to the shards of an index."""
        shards = split_entries(self.entries(partition, change, update), update.groups[partition])
        return [ShardWrite(partition, file_id, entries) for file_id, entries in shards.items()]

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """The entries that a change has for an index, of all shards."""
        del change, update
        raise unsupported(partition)


def unsupported(partition: str) -> UnsupportedTableError:
    """An index that a write cannot keep up to date."""
    return UnsupportedTableError(
        f"this write cannot update the index {partition}",
        hint="drop the index before the write and create it again afterwards",
    )
