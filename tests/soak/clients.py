"""What the processes of a run do, until they are killed; or until the run is, so that they never outlive it."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import lakebed
from lakebed.errors import CommitUnknownError, LakebedError

from .history import Log, Told, encode_rows
from .register import KEYS, Place, append, open_for_reading, open_register, partition_of, read_rows

_READER_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Client:
    """Who a process is: its name, which no other has, and the first of the numbers that are its own."""

    name: str
    place: Place
    logs: Path
    first_number: int
    seed: int
    spark: bool = False


def write_for_ever(client: Client) -> None:
    """Appends one number after the other, each to keys in several partitions."""
    chance, log = random.Random(client.seed), Log(client.logs, client.name)
    table = open_register(client.place)
    numbers = itertools.count(client.first_number)
    while runs():
        write(client.place, table, log, next(numbers), draw_keys(chance))


def write(place: Place, table: lakebed.Table, log: Log, number: int, keys: tuple[str, ...]) -> bool:
    """One write, with what was asked for logged before and what was told after; whether it was told to be done."""
    log.add("invoke", number=number, keys=keys)
    try:
        result = append(
            place,
            table,
            keys,
            number,
            lambda instant, saw: log.add("planned", number=number, instant=instant, saw=saw),
        )
    except CommitUnknownError as error:
        log.add(Told.UNKNOWN.value, number=number, error=describe(error))
    except Exception as error:
        # Whatever it is: that it is none of the errors that a writer may see is for the checker to say.
        log.add(Told.FAILED.value, number=number, error=describe(error))
    else:
        log.add(Told.OK.value, number=number, instant=result.instant, completed_at=result.completed_at)
        return True
    return False


def draw_keys(chance: random.Random) -> tuple[str, ...]:
    """Two or three keys, no two of them in one partition."""
    by_partition: dict[str, list[str]] = {}
    for key in KEYS:
        by_partition.setdefault(partition_of(key), []).append(key)
    partitions = chance.sample(sorted(by_partition), chance.choice((2, 2, 3)))
    return tuple(chance.choice(by_partition[partition]) for partition in partitions)


def read_for_ever(client: Client) -> None:
    """One snapshot after the other, by the listing of the metadata table and by that of the store in turns."""
    log = Log(client.logs, client.name)
    tables = itertools.cycle(open_for_reading(client.place, use_metadata=use) for use in (True, False))
    while runs():
        table, began = next(tables), time.monotonic_ns()
        try:
            log.add("read", began=began, rows=encode_rows(read_rows(table)), error="")
        except Exception as error:
            log.add("read", began=began, rows=[], error=describe(error))
        time.sleep(_READER_PAUSE_S)


def runs() -> bool:
    """Whether the run goes on: a process must not outlive it."""
    parent = multiprocessing.parent_process()
    return parent is not None and parent.is_alive()


def describe(error: Exception) -> str:
    """The error, with where it comes from unless it is one that calls for another try."""
    is_expected = isinstance(error, LakebedError) and error.retryable
    return f"{type(error).__name__}: {error}" + ("" if is_expected else f"\n{traceback.format_exc()}")
