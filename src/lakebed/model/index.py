"""Index definitions: which indexes a table has, and on what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

ORDERING_FIELD, ORDERING_IS_CURRENT = "lakebed.orderingField", "lakebed.orderingIsCurrent"
"""Options in the definition of a record index whose entries carry ordering values."""


@dataclass(frozen=True, slots=True)
class EntryOrdering:
    """The column whose values the entries of a record index have; if `is_current`, updates write entries, too."""

    field: str
    is_current: bool = False


WINDOW_FIRST, WINDOW_NEWEST, WINDOW_OUTSIDE = "lakebed.window.first", "lakebed.window.newest", "lakebed.window.outside"
"""Options in the definition of a windowed record index, which covers only the newest partitions."""
_WINDOW = (WINDOW_FIRST, WINDOW_NEWEST, WINDOW_OUTSIDE)
WINDOW_KEPT: Mapping[str, str] = {"lakebed.window.kept": "true"}
"""Extra metadata of a delta commit that maintains a windowed index; other engines do not know the index."""
OUTSIDE = ("scan", "new", "refuse")
"""How to treat rows for partitions outside the window."""


UNFINISHED = "lakebed.unfinished"
"""Option in the definition of an index that is built for the first time, until the table config names it."""


@dataclass(frozen=True, slots=True)
class IndexWindow:
    """The data partitions that a record index covers: those whose path is not before `first`.

    When the window moves, it starts at the oldest of the `newest` partitions.
    """

    first: str
    newest: int
    outside: str = "scan"

    @classmethod
    def of(cls, partitions: Iterable[str], newest: int, outside: str) -> IndexWindow:
        """The window of the newest partitions, by the order of their paths, and all later ones."""
        last = sorted(set(partitions))[-newest:]
        return cls(last[0] if len(last) == newest else "", newest, outside)

    def holds(self, partition: str) -> bool:
        """Whether the index covers a partition."""
        return partition >= self.first


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """One entry of index.json. `name` is the metadata-table partition."""

    name: str
    kind: str
    function: str = ""
    source_fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str = "V1"

    @property
    def is_partitioned(self) -> bool:
        """Whether a record index keeps one set of shards per data partition."""
        return self.options.get("isPartitioned", "false").lower() == "true"

    @property
    def ordering(self) -> EntryOrdering | None:
        """The ordering values in the entries of a record index, if they have any."""
        field_name = self.options.get(ORDERING_FIELD)
        return EntryOrdering(field_name, self.options.get(ORDERING_IS_CURRENT) == "true") if field_name else None

    @property
    def window(self) -> IndexWindow | None:
        """The data partitions that a record index covers, if not all."""
        newest = self.options.get(WINDOW_NEWEST, "")
        if not newest.isdecimal():
            return None
        return IndexWindow(self.options.get(WINDOW_FIRST, ""), int(newest), self.options.get(WINDOW_OUTSIDE, "scan"))

    @property
    def is_unfinished(self) -> bool:
        """Whether the definition was written by a first build that has not finished."""
        return UNFINISHED in self.options

    def as_unfinished(self) -> IndexDefinition:
        """The definition, marked as a first build in progress."""
        return replace(self, options={**self.options, UNFINISHED: "true"})

    def as_finished(self) -> IndexDefinition:
        """The definition, without the mark of a first build."""
        return replace(self, options={name: value for name, value in self.options.items() if name != UNFINISHED})

    def without_window(self) -> IndexDefinition:
        """The definition, without a window."""
        options = {name: value for name, value in self.options.items() if name not in _WINDOW}
        return replace(self, options=options)


def settled_definitions(
    definitions: Mapping[str, IndexDefinition], shared: Collection[str]
) -> dict[str, IndexDefinition]:
    """Definitions as they apply now. An index that is `shared` with other engines is complete.

    So leftovers in its definition, of a window or of an unfinished build, are ignored.
    """
    return {n: each.without_window().as_finished() if n in shared else each for n, each in definitions.items()}


def lost_definitions(definitions: Mapping[str, IndexDefinition], named: Collection[str]) -> frozenset[str]:
    """Lost indexes: defined and once complete, but not named in the table config."""
    return frozenset(name for name, each in definitions.items() if name not in named and not each.is_unfinished)
