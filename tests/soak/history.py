"""What clients asked for, were told and saw: written line by line while they run, read back as one history."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from .register import Row


class Told(Enum):
    """What the client of a write was told; a client that was killed was told nothing, which is UNKNOWN too."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Write:
    """One write. `saw` are the lists that it appended to; `began` and `ended` are moments of one clock for all."""

    number: int
    client: str
    keys: tuple[str, ...]
    began: int
    ended: int | None = None
    told: Told = Told.UNKNOWN
    instant: str | None = None
    completed_at: str | None = None
    error: str = ""
    saw: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """One snapshot, or the error that a reader got instead."""

    client: str
    began: int
    ended: int
    rows: tuple[Row, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """A completed write on the surviving timeline, and the rows that its snapshot shows as written by it."""

    instant: str
    completed_at: str
    rows: tuple[Row, ...]


@dataclass(slots=True)
class History:
    """Everything that happened. `commits` are in completion order, `writes` by number."""

    writes: dict[int, Write] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    commits: tuple[Commit, ...] = ()


class Log:
    """The log of one process. Each line is with the operating system before the call returns: a kill loses nothing."""

    def __init__(self, folder: Path, client: str) -> None:
        self._file = folder / f"{client}.jsonl"

    def add(self, event: str, **what: Any) -> None:
        """One more line."""
        line = json.dumps({"at": time.monotonic_ns(), "event": event, **what})
        with self._file.open("ab", buffering=0) as file:
            file.write(f"{line}\n".encode())


def load_history(folder: Path) -> History:
    """The logs of a folder as one history, without what the table itself says."""
    history = History()
    for file in sorted(folder.glob("*.jsonl")):
        for line in _lines(file):
            _add(history, file.stem, line)
    history.reads.sort(key=lambda read: read.began)
    return history


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; its last one may be torn by a kill."""
    *whole, _ = file.read_bytes().split(b"\n")
    return (json.loads(line) for line in whole)


def _add(history: History, client: str, line: dict[str, Any]) -> None:
    event, number = line["event"], line.get("number")
    if event == "invoke":
        history.writes[line["number"]] = Write(line["number"], client, tuple(line["keys"]), line["at"])
    elif event == "planned":
        write = history.writes[line["number"]]
        write.instant, write.saw = line["instant"], {key: tuple(numbers) for key, numbers in line["saw"].items()}
    elif event == "read":
        history.reads.append(Read(client, line["began"], line["at"], decode_rows(line["rows"]), line["error"]))
    elif number is not None:
        write = history.writes[number]
        write.ended, write.told, write.error = line["at"], Told(event), line.get("error", "")
        write.instant = line.get("instant", write.instant)
        write.completed_at = line.get("completed_at")


def encode_rows(rows: Iterable[Row]) -> list[Any]:
    """Rows as JSON has them."""
    return [[row.key, list(row.numbers), row.instant] for row in rows]


def decode_rows(rows: Iterable[Any]) -> tuple[Row, ...]:
    """Inverse of `encode_rows`."""
    return tuple(Row(key, tuple(numbers), instant) for key, numbers, instant in rows)
