"""Comparing an index with what it is an index of: both ways, completely."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.index.build import Scanner
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import PLAIN, Form, Merged, MergeRule
from lakebed.observe import Observer
from lakebed.table import TableState

MISSING, EXTRA, DIFFERENT, REPEATED = "missing", "extra", "different", "repeated"


@dataclass(frozen=True, slots=True)
class Difference:
    """One key about which index and data disagree: `indexed` is what the index says of it, `stored` what is so."""

    what: str
    key: str
    indexed: str | None
    stored: str | None


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """How an index and the data compare.

    `missing` keys are not in the index, `extra` ones not in the data, `different` ones are elsewhere or other than the
    index says, `repeated` ones occur more than once in the data of a record index. `problem` says what is wrong with
    the definitions of indexes, if something is: then the index was compared by what its entries tell of it.
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
        """Whether nothing differs, and nothing else is wrong."""
        return not (self.missing or self.extra or self.different or self.repeated or self.problem)


class Tally:
    """Counts differences as they are found."""

    def __init__(self, name: str, examples: int) -> None:
        self._name, self._examples_max, self.checked = name, examples, 0
        self._counts = dict.fromkeys((MISSING, EXTRA, DIFFERENT, REPEATED), 0)
        self._examples: list[Difference] = []

    def add(self, what: str, count: int, examples: Iterable[tuple[str, str | None, str | None]]) -> None:
        """Counts differences of a sort, with some of them as (key, what is indexed, what is stored)."""
        room = self._examples_max - self._counts[what]
        self._counts[what] += count
        for _, example in zip(range(room), examples, strict=False):
            self._examples.append(Difference(what, *example))

    def compare(self, indexed: Mapping[str, str], stored: Mapping[str, str]) -> None:
        """What differs between two descriptions of the same things, by name."""
        self.checked += len(stored.keys() | indexed.keys())
        missing, extra = sorted(stored.keys() - indexed.keys()), sorted(indexed.keys() - stored.keys())
        other = sorted(key for key in stored.keys() & indexed.keys() if stored[key] != indexed[key])
        self.add(MISSING, len(missing), ((key, None, stored[key]) for key in missing))
        self.add(EXTRA, len(extra), ((key, indexed[key], None) for key in extra))
        self.add(DIFFERENT, len(other), ((key, indexed[key], stored[key]) for key in other))

    def result(self, problem: str | None = None) -> IndexCheck:
        """What was found, and what else is wrong."""
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
    """An index and the table that it is of, as they stood at one moment."""

    state: TableState
    metadata: MetadataTable
    partition: str
    rule: MergeRule
    scan: Scanner
    observer: Observer

    def merged(self, file_id: str, form: Form = PLAIN) -> Merged:
        """The entries of a shard."""
        file_slice = next(s for s in self.metadata.slices(self.partition) if s.group.file_id == file_id)
        shard = self.metadata.shard(self.partition, file_id)
        return self.rule.shard(shard, has_base=file_slice.base is not None, form=form)

    def payloads(self, form: Form = PLAIN) -> Iterator[tuple[str, object]]:
        """Keys and payloads of all entries."""
        for file_slice in self.metadata.slices(self.partition):
            merged = self.merged(file_slice.group.file_id, form)
            for key, value in zip(merged.keys.to_pylist(), merged.values.to_pylist(), strict=True):
                yield key, decode_metadata_record(value, stored_schema(), path=self.partition).payload
