"""Comparing an index with the data, completely and in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.index.build import Scanner
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import PLAIN, Form, Merged, MergeRule, merged_shards
from lakebed.observe import Observer
from lakebed.table import TableState

MISSING, EXTRA, DIFFERENT, REPEATED = "missing", "extra", "different", "repeated"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key for which index and data differ: `indexed` is what the index has, `stored` what the data has."""

    what: str
    key: str
    indexed: str | None
    stored: str | None


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """The result of comparing an index with the data.

    `missing` keys are not in the index, `extra` ones not in the data, `different` ones have another value in the index,
    `repeated` ones occur more than once in the data of a record index. `problem` is set if index definitions are lost
    or broken: then a definition derived from the entries was used.
    """

    name: str
    checked: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    repeated: int = 0
    examples: tuple[Difference, ...] = field(default=(), repr=False)
    problem: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether there is no difference and no other problem."""
        return not (self.missing or self.extra or self.different or self.repeated or self.problem)


class Tally:
    """Counts differences as they are found."""

    def __init__(self, name: str, examples: int) -> None:
        self._name, self._examples_max, self.checked = name, examples, 0
        self._counts = dict.fromkeys((MISSING, EXTRA, DIFFERENT, REPEATED), 0)
        self._examples: list[Difference] = []

    def add(self, what: str, count: int, examples: Iterable[tuple[str, str | None, str | None]]) -> None:
        """Adds differences of one sort, with examples as (key, indexed, stored)."""
        room = self._examples_max - self._counts[what]
        self._counts[what] += count
        for _, example in zip(range(room), examples, strict=False):
            self._examples.append(Difference(what, *example))

    def compare(self, indexed: Mapping[str, str], stored: Mapping[str, str]) -> None:
        """Adds the differences between two mappings of names to descriptions."""
        self.checked += len(stored.keys() | indexed.keys())
        missing, extra = sorted(stored.keys() - indexed.keys()), sorted(indexed.keys() - stored.keys())
        other = sorted(key for key in stored.keys() & indexed.keys() if stored[key] != indexed[key])
        self.add(MISSING, len(missing), ((key, None, stored[key]) for key in missing))
        self.add(EXTRA, len(extra), ((key, indexed[key], None) for key in extra))
        self.add(DIFFERENT, len(other), ((key, indexed[key], stored[key]) for key in other))

    def result(self, problem: str | None = None) -> IndexCheck:
        """The differences found, and any other problem."""
        counts = self._counts
        return IndexCheck(
            self._name,
            self.checked,
            counts[MISSING],
            counts[EXTRA],
            counts[DIFFERENT],
            counts[REPEATED],
            tuple(self._examples),
            problem,
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """An index and its table at one moment."""

    state: TableState
    metadata: MetadataTable
    partition: str
    rule: MergeRule
    scan: Scanner
    observer: Observer

    def merged(self, file_id: str, form: Form = PLAIN) -> Merged:
        """The merged entries of a shard."""
        file_slice = next(s for s in self.metadata.slices(self.partition) if s.group.file_id == file_id)
        shard = self.metadata.shard(self.partition, file_id)
        return self.rule.shard(shard, has_base=file_slice.base is not None, form=form)

    def payloads(self, form: Form = PLAIN) -> Iterator[tuple[str, object]]:
        """Keys and payloads of all entries."""
        for merged in merged_shards(self.metadata, self.partition, self.rule, form):
            for key, value in zip(merged.keys.to_pylist(), merged.values.to_pylist(), strict=True):
                yield key, decode_metadata_record(value, stored_schema(), path=self.partition).payload
