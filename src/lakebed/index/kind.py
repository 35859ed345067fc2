"""A kind of index: all that the rest of the engine asks of it, in one value.

A kind has a folder of its own: its entries, and how they are merged, built, looked up, checked and used to prune.
Whoever needs an index loops over `KINDS`, or asks `kind_of` a partition, instead of naming a kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.index.build import Build, IndexRequest, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import StoredFile
from lakebed.index.facts import FileFacts
from lakebed.index.foreign import GroupScans
from lakebed.index.layout import Planned, ShardLayout
from lakebed.index.partition_stats.current import StatsReader
from lakebed.index.prune import Kept, NotUsed, Query, Slices
from lakebed.index.record.entries import KeyChanges
from lakebed.index.wanted import Wanted
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import group_ids
from lakebed.metadata.entries import Entries, split_entries
from lakebed.metadata.merging import MergeRule, NewestWins
from lakebed.metadata.shard_writes import Groups, ShardWrite
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId
from lakebed.model.index import EntryOrdering, IndexDefinition
from lakebed.model.instant import InstantTime
from lakebed.options import IndexOptions
from lakebed.table import TableState


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


@dataclass(frozen=True, slots=True)
class Expected:
    """The indexes that the facts of a write are enough for: those that the table had when it began.

    `columns` have statistics, `ordering` is that of entries of the record index. A partitioned one gives a new data
    partition `partition_shards`. `gathered` has the columns that other indexes were made of, by their partition.
    """

    partitions: frozenset[str] = frozenset()
    columns: tuple[str, ...] = ()
    ordering: EntryOrdering | None = None
    partition_shards: int = 1
    gathered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def grown(self, partitions: Iterable[str], definitions: Mapping[str, IndexDefinition]) -> Expected:
        """The same, with more indexes, and with all columns that definitions name."""
        named = (column for definition in definitions.values() for column in definition.source_fields)
        columns = tuple(dict.fromkeys((*self.columns, *named)))
        new = frozenset(partitions)
        made = {name: each.source_fields for name, each in definitions.items() if name in new}
        return replace(self, partitions=self.partitions | new, columns=columns, gathered={**self.gathered, **made})


class IndexKind:
    """What is common to all kinds of index; each overrides what it does in its own way."""

    partition: str
    """The metadata-table partition of the index; of a kind of which a table may have several, their common prefix."""
    words: tuple[str, ...] = ()
    """What users call it."""
    new_words: tuple[str, ...] = ()
    """Those of its words that create_table can be asked for."""
    other_names: ClassVar[Mapping[str, str]] = {}
    """What else users may call it, and the word that is meant."""
    switches: ClassVar[Mapping[str, str]] = {}
    """Options of Hudi that ask for it, or for none, and the word that is meant."""
    is_default: bool = False
    """Whether every new table has it."""
    needs_partitions: bool = False
    """Whether only a partitioned table can have it."""
    shards: int = 1
    """File groups of a new index, unless told otherwise."""
    is_kept: bool = True
    """Whether writes keep it up to date."""
    is_built: bool = True
    """Whether it can be built on an existing table."""
    takes_columns: bool = False
    """Whether users choose its columns."""
    keeps_its_form: bool = False
    """Whether a rebuild keeps what its definition says, unless told otherwise."""
    made_of: str = ""
    """The index from whose entries it is made: it is rebuilt with that one."""
    rests_on: str = ""
    """The index that reads of it need: that one cannot be dropped before it."""
    is_renewed: bool = False
    """Whether it can be rebuilt, or given other shards, while writers go on."""
    has_few: bool = False
    """Whether it has entries per file, not per row."""
    wants_keys: bool = False
    """Whether it has entries of record keys: of those that came into a file group, and those that left it."""
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

    def word(self, partition: str, *, is_partitioned: bool) -> str:
        """What create_table calls an index of this kind; `is_partitioned` is the table's index of keys."""
        del is_partitioned
        return self.words[0] if self.is_built and self.words else partition

    def describe(self, partition: str, definition: IndexDefinition | None) -> str:
        """What lists of indexes say of its kind."""
        return definition.kind if definition is not None else partition

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """The slices that it cannot exclude, or why it was not used."""
        del query, slices
        return NotUsed("it does not exclude files")

    def is_defined(self, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Whether it is known what entries must say: without that, nothing can be written to the index."""
        del definitions
        return True

    def wants(self, partition: str, definitions: Mapping[str, IndexDefinition]) -> Wanted | None:
        """What tasks gather of the rows of each file that they write; None if the facts of every file are enough."""
        del partition, definitions
        return None

    def is_expected(self, partition: str, expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Whether the facts of a write are enough to make its entries."""
        wanted = self.wants(partition, definitions)
        is_gathered = wanted is None or expected.gathered.get(partition) == wanted.columns
        return is_gathered and partition in expected.partitions

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """The facts of a file with what entries need, read from it: it was written before the index was there."""
        del stored, definitions
        return facts

    def complete_foreign(
        self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition], scans: GroupScans
    ) -> FileFacts:
        """The same for a file of another engine, of which no task told what it did to the keys of its group."""
        del scans
        return self.complete(facts, stored, definitions)

    def find_hidden_keys(self, replaced: Iterable[FileGroupId], scans: GroupScans) -> tuple[KeyChanges, ...]:
        """The keys of file groups that another engine's commit replaced."""
        del replaced, scans
        return ()

    def check_new(self, metadata: MetadataTable, facts: Sequence[FileFacts], replaced: Collection[FileGroupId]) -> None:
        """Raises if a write that began before the index was built brings what the index does not allow."""

    def first_entries(self, file_ids: Sequence[str]) -> Iterable[tuple[str, Entries]]:
        """What an index of a table without data has, by shard."""
        del file_ids
        return ()

    def marks(self, definition: IndexDefinition, *, kept: bool) -> Mapping[str, str]:
        """What each delta commit says of the index, if it is so; some of it only if a write has `kept` entries so."""
        del definition, kept
        return {}

    def define_new(
        self, config: TableConfig, schema: pa.Schema, word: str, options: IndexOptions
    ) -> IndexDefinition | None:
        """What index.json says of the index of a new table that was asked for by a word; None if nothing."""
        del config, schema, word, options
        return None

    def new_shards(self, word: str, options: IndexOptions) -> int:
        """How many shards the index of a new table begins with."""
        del word, options
        return self.shards

    def check_request(self, state: TableState, request: IndexRequest) -> None:
        """Raises if the table cannot have the index."""

    def plan_definition(
        self, state: TableState, request: IndexRequest, options: IndexOptions, known: IndexDefinition | None
    ) -> IndexDefinition | None:
        """What index.json is to say of a new index, None if nothing; one that keeps its form has a `known` one."""
        del state, request, options, known
        return None

    def derive(self, state: TableState) -> IndexDefinition | None:
        """The definition from what else tells of it, should index.json be lost; None if nothing does."""
        del state
        return None

    def plan_shards(self, build: Build) -> Planned:
        """The shards of a new index, and where the entries for these or other shards come from."""
        file_ids = group_ids(build.request.partition, build.request.shards or self.shards)
        return Planned(ShardLayout({}, file_ids), lambda layout: self.source(build, layout.file_ids))

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """Where the entries of a new index come from."""
        del file_ids
        raise unsupported(build.request.partition)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Compares an index with the data that it is of, both ways and completely."""
        del tally
        raise InvalidInputError(f"{checked.partition} cannot be validated", hint="validate another index")

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
