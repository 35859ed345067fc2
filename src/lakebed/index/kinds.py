"""All kinds of index, in the order in which Hudi builds them with a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from lakebed.index.bloom.kind import BLOOM_FILTERS
from lakebed.index.column_stats.kind import COLUMN_STATS
from lakebed.index.expression.kind import EXPRESSION
from lakebed.index.files.kind import FILES
from lakebed.index.kind import IndexKind
from lakebed.index.partition_stats.kind import PARTITION_STATS
from lakebed.index.record.kind import RECORD_INDEX
from lakebed.index.secondary.kind import SECONDARY
from lakebed.index.wanted import Wanted
from lakebed.metadata.bootstrap import EmptyPartition, group_ids
from lakebed.metadata.merging import PLAIN, Form, Merged, MergedLogs, MergeRule
from lakebed.metadata.shard import Shard
from lakebed.model.index import IndexDefinition

KINDS: tuple[IndexKind, ...] = (
    FILES,
    COLUMN_STATS,
    BLOOM_FILTERS,
    RECORD_INDEX,
    PARTITION_STATS,
    SECONDARY,
    EXPRESSION,
)


PRUNING: tuple[IndexKind, ...] = (PARTITION_STATS, RECORD_INDEX, SECONDARY, EXPRESSION, COLUMN_STATS, BLOOM_FILTERS)
"""Kinds that exclude file slices, in the order in which they are asked: the cheapest first."""


_ADDED: list[IndexKind] = []
_INSTEAD: list[tuple[IndexKind, ...]] = []


def all_kinds() -> tuple[IndexKind, ...]:
    """Every kind, those added for a while last."""
    return _INSTEAD[-1] if _INSTEAD else (*KINDS, *_ADDED)


def pruning_kinds() -> tuple[IndexKind, ...]:
    """Kinds that exclude file slices, in the order in which they are asked."""
    return _INSTEAD[-1] if _INSTEAD else (*PRUNING, *_ADDED)


@contextmanager
def added_kind(kind: IndexKind) -> Iterator[IndexKind]:
    """Adds a kind in this process, for all threads, as long as the context lasts."""
    _ADDED.append(kind)
    try:
        yield kind
    finally:
        _ADDED.remove(kind)


@contextmanager
def only_kinds(*kinds: IndexKind) -> Iterator[None]:
    """Makes these the only kinds in this process, for simulations whose indexes have no real entries."""
    _INSTEAD.append(kinds)
    try:
        yield
    finally:
        _INSTEAD.pop()


def lookup_kind() -> IndexKind:
    """The kind that finds rows by their record key."""
    return RECORD_INDEX


def kind_of(partition: str) -> IndexKind:
    """The kind of the index that a metadata-table partition is; one that nobody knows is kept by no write."""
    return next((kind for kind in all_kinds() if kind.matches(partition)), _Unknown(partition))


def named_partitions() -> dict[str, str]:
    """The metadata-table partition, which is the index's name, by what users call each kind that can be built."""
    return {word: kind.partition for kind in all_kinds() if kind.is_built for word in kind.words}


def is_index_name(partition: str) -> bool:
    """Whether a metadata-table partition of that name could be an index of a known kind."""
    is_known = any(kind.matches(partition) and (kind.is_built or partition != kind.partition) for kind in all_kinds())
    return is_known and "/" not in partition and "," not in partition


def wanted_of(partitions: Iterable[str], definitions: Mapping[str, IndexDefinition]) -> tuple[Wanted, ...]:
    """What the indexes of these metadata-table partitions want of files that are written."""
    found = (kind_of(name).wants(name, definitions) for name in dict.fromkeys(partitions))
    return tuple(wanted for wanted in found if wanted is not None)


def empty_partitions(shards: Mapping[str, int]) -> list[EmptyPartition]:
    """Partitions of the metadata table of a table without data, with so many shards each, as Hudi orders them."""
    found = []
    for kind in all_kinds():
        for name in filter(kind.matches, shards):
            file_ids = group_ids(name, shards[name])
            found.append(EmptyPartition(name, file_ids, tuple(kind.first_entries(file_ids))))
    return found


def merge_rule(partition: str) -> MergeRule:
    """How the entries of a metadata-table partition are merged."""
    return kind_of(partition).merge


def merge_shard(shard: Shard, partition: str, *, has_base: bool, form: Form = PLAIN) -> Merged:
    """The entries of a shard; with `has_base` its first layer is a base file."""
    return merge_rule(partition).shard(shard, has_base=has_base, form=form)


def merge_logs(shard: Shard, partition: str, *, form: Form = PLAIN) -> MergedLogs:
    """What the layers of a shard without a base file come to."""
    return merge_rule(partition).logs(shard, form=form)


class _Unknown(IndexKind):
    """A partition of a newer Hudi, or one that Hudi never had."""

    is_kept = False

    def __init__(self, partition: str) -> None:
        self.partition = partition
