"""Compares a table with its model, in every way in which it can be asked."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.errors import InvalidInputError

from .model import COMMIT, Place, Row, Rows, key_of, spelled
from .world import World

_META = ("_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")


def check_some(world: World, chance: random.Random) -> None:
    """The newest rows, and one of the other checks."""
    check_rows(world)
    chance.choice(OTHERS)(world, chance)


def check_each(world: World, chance: random.Random) -> None:
    """The newest rows, all other checks, and the doctor, who validates every index."""
    check_rows(world)
    for check in OTHERS:
        if check is not check_indexes:
            check(world, chance)
    check_doctor(world)


def check_all(world: World, chance: random.Random) -> None:
    """All checks, and the rows as of every instant."""
    check_each(world, chance)
    check_indexes(world, chance)
    check_every_instant(world)


def check_rows(world: World) -> None:
    """The newest snapshot."""
    same(rows_of(world, world.table.to_arrow()), world.model.rows, "snapshot")


def check_without_metadata(world: World, chance: random.Random) -> None:
    """The newest snapshot as another process sees it that lists folders."""
    options = {**world.options, "hoodie.metadata.enable": "false"}
    same(rows_of(world, lakebed.open_table(world.path, options=options).to_arrow()), world.model.rows, "listed files")


def check_base_files(world: World, chance: random.Random) -> None:
    """Without log files: each row is one that was there at some time, and none is there twice.

    With a record index a key that comes back after a delete is new, to Apache Hudi as well, and goes to another file
    group: the base file of the old one has it, too, until it is compacted.
    """
    left = world.model.moved | world.model.deleted if world.model.had_record_index else set()
    found = rows_of(world, world.table.to_arrow(mode="read_optimized"), "read_optimized", may_repeat=left)
    if world.setup.kind == "cow":
        same(found, world.model.rows, "read_optimized")
    states = [*(rows for _, rows in world.model.history), world.model.rows]
    versions = {(place, as_written(row)) for rows in states for place, row in rows.items()}
    strange = [place for place, row in found.items() if (place, as_written(row)) not in versions]
    assert not strange, f"read_optimized has rows that never were: {strange[:3]!r} {[found[p] for p in strange[:3]]!r}"
    if world.model.is_global:
        elsewhere = world.model.moved | world.model.deleted  # Base files of the partition they left have them still.
        keys = Counter(key for _, key in found if key not in elsewhere)
        repeated = [key for key, count in keys.items() if count > 1]
        assert not repeated, f"read_optimized has keys twice: {repeated[:3]!r}"


def as_written(row: Row) -> tuple[tuple[str, str], ...]:
    """A row in a form that compares, whatever columns the table got since."""
    return spelled(row)


def check_instant(world: World, chance: random.Random) -> None:
    """The rows as of one instant."""
    if world.model.history:
        _check_instant(world, chance.randrange(len(world.model.history)))


def check_every_instant(world: World) -> None:
    """The rows as of every instant."""
    for number in range(len(world.model.history)):
        _check_instant(world, number)


def _check_instant(world: World, number: int) -> None:
    instant, rows = world.model.history[number]
    try:
        found = world.table.to_arrow(as_of=instant)
    except InvalidInputError:
        assert not must_be_readable(world, number), f"as of {instant} (number {number}) cannot be read"
        return
    same(rows_of(world, found), rows, f"as of {instant} (number {number})")


def must_be_readable(world: World, number: int) -> bool:
    """The newest instants that cleaning retains can be read, and savepoints; of others it may have removed files."""
    instant, _ = world.model.history[number]
    retained = int(world.setup.options["hoodie.clean.commits.retained"])
    return instant in world.model.savepoints or number >= world.model.peak - retained


def check_changes(world: World, chance: random.Random) -> None:
    """The rows that were written between two instants."""
    history = world.model.history
    if not history:
        return
    start = chance.randrange(-1, len(history))
    end = chance.choice((None, chance.randrange(max(start, 0), len(history))))
    since = "earliest" if start < 0 else history[start][0]
    until, rows = (None, world.model.rows) if end is None else history[end]
    later = {instant for instant, _ in history[start + 1 : None if end is None else end + 1]}
    expected = {place: row for place, row in rows.items() if row[COMMIT] in later}
    try:
        found = world.table.changes(since, until)
    except InvalidInputError:
        needed = end is None or must_be_readable(world, end)
        assert not needed, f"changes({since!r}, {until!r}) cannot be read"
        return
    same(rows_of(world, found), expected, f"changes({since!r}, {until!r})")


def check_lookup(world: World, chance: random.Random) -> None:
    """Rows by key, through the record index."""
    keys = [*chance.sample(world.setup.keys, 4), "absent", ""]
    if "record_index" not in world.indexes():
        try:
            world.table.lookup(keys)
        except InvalidInputError:
            return
        raise AssertionError("lookup without a record index")
    expected = {place: row for place, row in world.model.rows.items() if place[1] in keys}
    same(rows_of(world, world.table.lookup(keys)), expected, f"lookup({keys!r})")


def check_filter(world: World, chance: random.Random) -> None:
    """Rows by a condition, which statistics and indexes answer in part."""
    name = chance.choice(("id", "part", "num", "txt", "ts"))
    rows = world.model.rows
    value = chance.choice([row[name] for row in rows.values()] or [None])
    if value is None or isinstance(value, float):
        where, passes = f"{name} IS NULL", lambda found: found is None
    elif isinstance(value, int) and chance.random() < 0.5:
        where, passes = f"{name} > {value}", lambda found: found is not None and found > value
    else:
        where, passes = f"{name} = {_literal(value)}", lambda found: found == value
    expected = {place: row for place, row in rows.items() if passes(row[name])}
    same(rows_of(world, world.table.to_arrow(where=where)), expected, f"where {where}")


def check_indexes(world: World, chance: random.Random) -> None:
    """Every index agrees with the rows."""
    for index in world.table.indexes.list():
        name = index.name
        assert index.state == "ready", f"{name} is {index.state}"
        checked = world.table.indexes.validate(name)
        assert checked.is_sound, f"{checked} {checked.examples[:3]}"


def check_doctor(world: World) -> None:
    """Nothing is wrong, but plans may wait."""
    findings = [found for found in world.table.doctor() if str(found.kind) != "pending"]
    assert not findings, f"doctor: {findings[:3]}"


OTHERS: tuple[Callable[[World, random.Random], None], ...] = (
    check_without_metadata,
    check_base_files,
    check_instant,
    check_changes,
    check_lookup,
    check_filter,
    check_indexes,
)


def rows_of(world: World, found: pa.Table, what: str = "", *, may_repeat: Collection[str] = ()) -> Rows:
    """Rows by partition and key; none may be there twice, but for some keys."""
    rows: Rows = {}
    for row in found.to_pylist():
        key, path = row["_hoodie_record_key"], row["_hoodie_partition_path"]
        assert key == key_of(row), f"the record key of {row['id']!r} is {key!r}"
        place: Place = (world.model.partition_of(row), key)
        assert place not in rows or key in may_repeat, f"{what}: {place!r} is there twice"
        assert bool(path) == world.setup.partitioned, f"the partition path of {key!r} is {path!r}"
        rows[place] = {name: value for name, value in row.items() if name not in _META}
    return rows


def same(found: Rows, expected: Rows, what: str) -> None:
    """Both have the same rows."""
    one = {place: spelled(row) for place, row in found.items()}
    other = {place: spelled(row) for place, row in expected.items()}
    if one == other:
        return
    missing, extra = other.keys() - one.keys(), one.keys() - other.keys()
    differ = [place for place in one.keys() & other.keys() if one[place] != other[place]]
    told = [f"{what}: missing {_few(missing)}, too many {_few(extra)}, different {_few(differ)}"]
    told += [f"  {place!r} is {found[place]!r}, should be {expected[place]!r}" for place in differ[:3]]
    raise AssertionError("\n".join(told))


def _few(places: Iterable[Place]) -> list[Any]:
    return sorted(places, key=str)[:4]


def _literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value)
