"""Random tables and their histories, from one seed: what a table is like, and what is done to it, step by step.

Pure Python without Spark or lakebed, for the writer runs it on the peer's interpreter. Each trait of a table and each
kind of step is dealt from a shuffled deck that is used up before it is shuffled again: a dozen tables see every value
of every trait, and any number of tables sees them evenly.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Generic, TypeVar

T = TypeVar("T")

EVENT_TIME = "EVENT_TIME_ORDERING"
COMMIT_TIME = "COMMIT_TIME_ORDERING"


@dataclass(frozen=True)
class Column:
    """A column: its name, its type in Spark's words."""

    name: str
    type: str


@dataclass(frozen=True)
class Design:
    """What a table is like, as it is created."""

    name: str
    mor: bool
    version: int
    keys: tuple[str, ...]
    partitioned_by: tuple[Column, ...]
    partition_values: tuple[tuple[Any, ...], ...]
    hive_style: bool
    url_encoded: bool
    merge_mode: str
    metadata: bool
    indexes: frozenset[str]
    log_blocks: str
    positions: bool
    small_files: bool
    frugal: bool
    soft_deletes: bool
    shards: int
    compacts_metadata: bool
    moves_keys: bool


@dataclass(frozen=True)
class Step:
    """One thing done to a table: an operation with rows, or a table service. `draw` picks among what the table has."""

    action: str
    columns: tuple[Column, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    draw: float = 0.0


@dataclass
class Deck(Generic[T]):
    """Deals every card once, in random order, before it deals any of them again."""

    random: Random
    cards: tuple[T, ...]
    left: list[T] = field(default_factory=list)

    def deal(self, fits: Callable[[T], bool] = lambda _: True) -> T:
        """The next card that fits; those that do not stay on the deck for others."""
        for _ in range(2):
            for card in self.left:
                if fits(card):
                    self.left.remove(card)
                    return card
            self.left += self.random.sample(self.cards, len(self.cards))
        raise LookupError(f"no card fits: {self.cards}")


# How the partition path is spelled: columns, values of each partition, hive style, URL encoding.
_WORDS = ("us", "eu", "ap")
_ODD = ("a b", "x/y=z", "100%", "é€", "p:q+r", "it's", "[0]{1}", "#&?")
_DAYS = (date(1969, 12, 31), date(2024, 2, 29), date(2025, 1, 1))
PARTITIONINGS: tuple[tuple[str, tuple[str, ...], tuple[tuple[Any, ...], ...], bool, bool], ...] = (
    ("none", (), ((),), False, False),
    ("plain", ("string",), tuple((word,) for word in _WORDS), False, False),
    ("hive", ("string",), tuple((word,) for word in _WORDS), True, False),
    ("odd", ("string",), tuple((word,) for word in _ODD), False, True),
    ("none", (), ((),), False, False),
    ("odd-hive", ("string",), tuple((word,) for word in (*_ODD[:5], None)), True, True),
    ("days", ("date",), tuple((day,) for day in _DAYS), False, False),
    ("two", ("string", "int"), (("us", 1), ("us", 2), ("eu", 1), ("eu", -7)), True, False),
    ("numbers", ("int",), ((0,), (10,), (-3,)), True, False),
)
INDEXES: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "",
        "record",
        "column_stats",
        "record_partitioned",
        "record secondary",
        "bloom column_stats",
        "record column_stats secondary expression",
        "expression",
        "record bloom column_stats",
        "without_metadata",
    )
)
NEEDS_VERSION = {"record_partitioned": 9, "secondary": 8, "expression": 8}
KEYS = (("id",), ("id",), ("id", "sub"), ("num",))
LOGS = (("avro", False), ("parquet", False), ("avro", True))
STEPS = (
    "upsert",
    "delete",
    "cluster",
    "insert",
    "upsert",
    "insert_overwrite",
    "rollback",
    "soft_delete",
    "clean",
    "upsert",
    "crash_recover",
    "delete_partition",
    "bulk_insert",
    "evolve",
    "sql_update",
    "insert_overwrite_table",
    "savepoint_restore",
)
LAST_STEPS = ("upsert", "crash", "delete", "sql_update")
LOG_STEPS = ("compact", "schedule_compaction", "upsert", "compact", "delete", "schedule_compaction")
TAGS = ("red", "green", "a$b\\c", "", None)
VALUE_TYPES = (
    "string",
    "int",
    "bigint",
    "double",
    "float",
    "boolean",
    "decimal(10,2)",
    "decimal(25,7)",
    "date",
    "timestamp",
    "binary",
    "array<int>",
    "map<string,bigint>",
    "struct<x:int,y:string>",
    "array<struct<a:string,b:decimal(6,3)>>",
    "struct<when:timestamp,inner:struct<d:date,l:array<string>>>",
)


def histories(seed: int, count: int, length: int = 5) -> Iterator[tuple[Design, list[Step]]]:
    """`count` tables, each with a step that creates it and `length` more."""
    random = Random(seed)
    traits = Traits(random)
    for number in range(count):
        design = traits.design(f"t{number:02d}_{seed}")
        yield design, list(History(random, design, traits).steps(length))


class Traits:
    """The decks that tables and their steps are dealt from."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.mor = Deck(random, (False, True))
        self.version = Deck(random, (9, 9, 9, 8, 9, 6))
        self.keys = Deck(random, KEYS)
        self.partitioning = Deck(random, PARTITIONINGS)
        self.merge_mode = Deck(random, (EVENT_TIME, COMMIT_TIME))
        self.indexes = Deck(random, INDEXES)
        self.logs = Deck(random, LOGS)
        self.small_files = Deck(random, (False, True))
        self.frugal = Deck(random, (False, False, False, True))
        self.soft_deletes = Deck(random, (False, True))
        self.shards = Deck(random, (1, 3, 10, 2))
        self.compacts_metadata = Deck(random, (False, False, True))
        self.moves_keys = Deck(random, (True, False))
        self.types = Deck(random, VALUE_TYPES)
        self.steps = Deck(random, STEPS)
        self.log_steps = Deck(random, LOG_STEPS)
        self.last_steps = Deck(random, LAST_STEPS)

    def design(self, name: str) -> Design:
        """The next table."""
        version = self.version.deal()
        _, types, values, hive_style, url_encoded = self.partitioning.deal()
        indexes = self.indexes.deal(
            lambda some: (
                all(NEEDS_VERSION.get(index, 6) <= version for index in some)
                and (bool(types) or "record_partitioned" not in some)
            )
        )
        log_blocks, positions = self.logs.deal()
        return Design(
            name=name,
            mor=self.mor.deal(),
            version=version,
            keys=self.keys.deal(),
            partitioned_by=tuple(Column(f"part{i}", type_) for i, type_ in enumerate(types)),
            partition_values=values,
            hive_style=hive_style,
            url_encoded=url_encoded,
            merge_mode=self.merge_mode.deal(),
            metadata="without_metadata" not in indexes,
            indexes=indexes - {"without_metadata"},
            log_blocks=log_blocks,
            positions=positions,
            small_files=self.small_files.deal(),
            frugal=self.frugal.deal(),
            soft_deletes=self.soft_deletes.deal(),
            shards=self.shards.deal(),
            compacts_metadata=self.compacts_metadata.deal(),
            moves_keys="record" in indexes and self.moves_keys.deal(),
        )


class History:
    """Steps for one table, with the keys that live in it, so that updates and deletes hit."""

    def __init__(self, random: Random, design: Design, traits: Traits) -> None:
        self.random = random
        self.design = design
        self.traits = traits
        self.values = [Column(f"c{i}", traits.types.deal()) for i in range(4)]
        self.live: dict[int, tuple[Any, ...]] = {}
        self.next_key = 0
        self.clock = 1000

    def steps(self, length: int) -> Iterator[Step]:
        """The creating step, then `length` more."""
        yield self.write(self.random.choice(["insert", "bulk_insert", "upsert"]), self.fresh(40))
        for _ in range(length - 1):
            deck = self.traits.log_steps if self.design.mor and self.random.random() < 0.5 else self.traits.steps
            yield self.step(deck.deal(self.allowed))
        yield self.step(self.traits.last_steps.deal(self.allowed))

    def allowed(self, action: str) -> bool:
        """Whether Apache Hudi takes this step on such a table."""
        if action == "delete_partition":  # Fails under an expression index when no new file comes with it.
            return bool(self.design.partitioned_by) and not self.design.indexes & {"secondary", "expression"}
        if action in ("insert_overwrite", "insert_overwrite_table", "bulk_insert"):
            # The first two are refused; bulk_insert 1.2.0 takes, but leaves its rows out of the index.
            return "secondary" not in self.design.indexes
        if action in ("rollback", "savepoint_restore", "crash", "crash_recover"):
            return not self.design.compacts_metadata  # What the metadata table has compacted cannot be rolled back.
        return action != "soft_delete" or self.design.soft_deletes

    def step(self, action: str) -> Step:
        """A step of that kind, with rows where it takes rows."""
        if action in ("insert", "bulk_insert"):
            return self.write(action, self.fresh(15))
        if action == "evolve":
            self.values.append(Column(f"c{len(self.values)}", self.traits.types.deal()))
        if action in ("upsert", "evolve", "savepoint_restore", "rollback", "crash", "crash_recover"):
            return self.write(action, {**self.some(20), **self.fresh(8)})
        if action in ("delete", "soft_delete"):
            return self.write(action, self.some(8), gone=True)
        if action == "insert_overwrite":
            keep = self.random.choice(self.design.partition_values)
            self.live = {key: at for key, at in self.live.items() if at != keep}
            return self.write(action, dict.fromkeys(self.fresh(6), keep))
        if action == "insert_overwrite_table":
            self.live = {}
            return self.write(action, self.fresh(25))
        return Step(action, draw=self.random.random())

    def fresh(self, count: int) -> dict[int, tuple[Any, ...]]:
        """New keys and the partitions that they go to."""
        keys = range(self.next_key, self.next_key + count)
        self.next_key += count
        return {key: self.random.choice(self.design.partition_values) for key in keys}

    def some(self, count: int) -> dict[int, tuple[Any, ...]]:
        """Keys written before; a few of them under another partition."""
        keys = self.random.sample(sorted(self.live), min(count, len(self.live)))
        return {
            key: self.random.choice(self.design.partition_values) if self.random.random() < 0.15 else self.live[key]
            for key in keys
        }

    def write(self, action: str, keys: dict[int, tuple[Any, ...]], *, gone: bool = False) -> Step:
        """A writing step with a row for each key."""
        self.clock += 10
        if gone:
            keys = {key: self.live[key] for key in keys}
        rows = tuple(self.row(key, at, deleted=action == "soft_delete") for key, at in keys.items())
        self.live.update({} if gone else keys)
        columns = (
            Column("id", "string"),
            Column("sub", "string"),
            Column("num", "bigint"),
            Column("tag", "string"),
            Column("ts", "bigint"),
            *self.design.partitioned_by,
            *([Column("_hoodie_is_deleted", "boolean")] if self.design.soft_deletes else []),
            *self.values,
        )
        return Step(action, columns, rows)

    def row(self, key: int, partition: tuple[Any, ...], *, deleted: bool) -> tuple[Any, ...]:
        """One row; its ordering value is older than what the table holds every few rows."""
        late = self.random.random() < 0.2
        ordering = self.clock - self.random.randrange(5, 25) if late else self.clock + self.random.randrange(5)
        values = (random_value(self.random, column.type) for column in self.values)
        marks = (deleted,) if self.design.soft_deletes else ()
        tag = self.random.choice(TAGS)
        return (f"key-{key:04d}", f"s{key % 3}", key, tag, ordering, *partition, *marks, *values)


def random_value(random: Random, type_: str) -> Any:
    """A value of a Spark type, null now and then."""
    return None if random.random() < 0.15 else _some_value(random, type_)


def _some_value(random: Random, type_: str) -> Any:
    if type_ in _SCALARS:
        return _SCALARS[type_](random)
    head, _, rest = type_.partition("<")
    inner = rest[:-1]
    if type_.startswith("decimal"):
        digits, scale = (int(part) for part in type_[8:-1].split(","))
        return Decimal(random.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)
    if head == "array":
        return [_some_value(random, inner) for _ in range(random.randrange(4))]
    if head == "map":
        key, _, value = inner.partition(",")
        return {_some_value(random, key): random_value(random, value) for _ in range(random.randrange(3))}
    return tuple(random_value(random, field.partition(":")[2]) for field in split_fields(inner))


def split_fields(text: str) -> list[str]:
    """The fields of a struct type, split at the commas of its own level."""
    fields, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            fields.append("")
        else:
            fields[-1] += letter
    return fields


_SCALARS: dict[str, Callable[[Random], Any]] = {
    "string": lambda random: "".join(random.choices(string.ascii_lowercase + "é€\n'\"\\ ", k=random.randrange(6))),
    "int": lambda random: random.choice([random.randrange(-50, 50), random.randrange(-(2**31), 2**31)]),
    "bigint": lambda random: random.choice([random.randrange(50), random.randrange(-(2**63), 2**63)]),
    "double": lambda random: random.choice([random.randrange(20) / 2, random.uniform(-1e9, 1e9)]),
    "float": lambda random: random.randrange(-1000, 1000) / 8,
    "boolean": lambda random: random.random() < 0.5,
    "date": lambda random: date(1960, 1, 1) + timedelta(days=random.randrange(30000)),
    "timestamp": lambda random: datetime(1960, 1, 1) + timedelta(microseconds=random.randrange(2 * 10**15)),
    "binary": lambda random: bytearray(random.randbytes(random.randrange(5))),
}
