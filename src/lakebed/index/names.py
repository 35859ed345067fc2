"""Names of indexes: the words of create_table and `indexes.create`, and the switches among Hudi's options."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lakebed.index.kind import IndexKind
from lakebed.index.kinds import all_kinds, kind_of, named_partitions


def new_table_words() -> tuple[str, ...]:
    """The words that create_table accepts."""
    return tuple(word for kind in all_kinds() for word in kind.new_words)


def default_kinds(*, is_partitioned: bool) -> Iterator[IndexKind]:
    """The kinds of index that a new table gets by default."""
    return (kind for kind in all_kinds() if kind.is_default and (is_partitioned or not kind.needs_partitions))


def moot_words(*, is_partitioned: bool) -> frozenset[str]:
    """Words of indexes that a table cannot have: those that need partitions, if it has none."""
    kinds = () if is_partitioned else (kind for kind in all_kinds() if kind.needs_partitions)
    return frozenset(word for kind in kinds for word in kind.words)


def words_of(partitions: Collection[str], *, is_partitioned: bool) -> frozenset[str]:
    """The words for these metadata-table partitions; `is_partitioned` tells whether the index of keys is."""
    return frozenset(kind_of(name).word(name, is_partitioned=is_partitioned) for name in partitions)


def switched_word(option: str) -> str:
    """The word of the index that an option of Hudi switches on or off."""
    return next(kind.switches[option] for kind in all_kinds() if option in kind.switches)


def other_names() -> Mapping[str, str]:
    """Other names that users may give, and their words: metadata-table partitions, and Hudi's index types."""
    return {name: word for kind in all_kinds() for name, word in kind.other_names.items()}


def creating(word: str) -> str:
    """The arguments of `indexes.create` for the index of a word, as text."""
    partition = named_partitions().get(word, word)
    is_first = word in (partition, *kind_of(partition).words[:1])
    return repr(partition) if is_first else f"{partition!r}, kind={word!r}"
