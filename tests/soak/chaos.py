"""Runs writers, table services and a reader as processes, kills and pauses them, and has the history judged."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from .audit import (
    count_late_files,
    derive_commits,
    find_ills,
    find_leftovers,
    find_unread,
    load_commits,
)
from .checker import CONFLICTS, find_anomalies
from .clients import Client, read_for_ever, write, write_for_ever
from .history import History, Log, Told, load_history
from .register import KEYS, LEASE_SECONDS, Place, create_register, open_for_reading, open_register
from .s3 import FaultyStore
from .services import count_services, find_service_errors, run_once, serve_for_ever

_FIRST, _LAST, _AFTER_SERVICES = (1, 2, 3), (4, 5, 6), (7, 8, 9)
"""The numbers of the write before the chaos, and of the one after it: a busy machine can make a heartbeat late."""
_NUMBERS_EACH = 100_000
"""The numbers that one process may use up."""
_KILLED_SHARE = 0.7
"""How often a victim is killed; else it is paused, and sometimes killed when it wakes."""
_KILLED_AWAKE_SHARE = 0.2
_UNAVAILABLE = "StorageUnavailableError"
"""What a client may be told whose store does not answer: the write did not take place."""
_LONG_SECONDS = 60
"""Runs from this length on end with a while in which nobody is disturbed."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What to run, in which folder."""

    folder: Path
    seconds: float
    writers: int
    seed: int
    table_type: str
    place: Place
    services: int = 0
    spark: bool = False
    store: FaultyStore | None = None
    """The object store that the table lies in; it behaves again when the chaos is over."""

    @property
    def logs(self) -> Path:
        """Where the logs of all processes lie."""
        return self.folder / "logs"

    @property
    def dead_after_seconds(self) -> float:
        """After this time everybody takes a process that was killed for dead."""
        return max(self.place.dead_after_seconds, 0 if self.place.lock == "local" else LEASE_SECONDS) + 1.5

    @property
    def calm_seconds(self) -> tuple[float, float]:
        """How long nothing happens to anybody; short runs have their victims, too. A Spark takes long to start."""
        if self.spark:
            return 10.0, 40.0
        if self.store is not None:  # Whoever dies with the lock leaves it to nobody for as long as a lease lasts.
            return 2.0, 20.0
        return 0.5, min(5.0, max(self.seconds / 5, 1.0))

    @property
    def victims(self) -> tuple[str, ...]:
        """Who is killed and paused."""
        writers = (f"writer-{number}" for number in range(self.writers))
        return (*writers, *(f"service-{number}" for number in range(self.services)))

    @property
    def pause_seconds(self) -> tuple[float, float]:
        """How long a victim sleeps: shorter than others wait for it, or longer."""
        return 0.5, 2.0 * self.place.dead_after_seconds if self.place.lock == "local" else LEASE_SECONDS + 3.0


@dataclass(frozen=True, slots=True)
class Result:
    """What is wrong, and how much was done to find it."""

    anomalies: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)


def run(setup: Setup) -> Result:
    """One run: chaos, then one write that finds the dead and puts the table in order, then judgement."""
    setup.logs.mkdir(parents=True)
    create_register(setup.place, setup.table_type, indexes=("record",) if setup.services else ())
    log = Log(setup.logs, "parent")
    began = _write_alone(setup, log, _FIRST)
    stage = _Stage(setup, log)
    try:
        stage.run_chaos(random.Random(setup.seed))
        stuck = _find_stuck(setup)
    finally:
        stage.end()
    if setup.store is not None:
        setup.store.behave()
    time.sleep(setup.dead_after_seconds)
    ended = began and _write_alone(setup, log, _LAST)
    if setup.services:
        stuck += run_once(setup.place)
        # Somebody may have died after planning a clustering: until it is executed it keeps its rows for itself.
        ended = began and (ended or _write_alone(setup, log, _AFTER_SERVICES))
    if not ended:
        stuck.append("stuck: a write fails while nobody else is at work")
    return _judge(setup, stage, stuck)


def _write_alone(setup: Setup, log: Log, numbers: Sequence[int]) -> bool:
    """Whether one of a few tries to write to all keys comes through."""
    table = open_register(setup.place)
    return any(write(setup.place, table, log, number, KEYS) for number in numbers)


def _find_stuck(setup: Setup) -> list[str]:
    """Writes that stay pending while everybody works undisturbed: a living process keeps them alive for nothing.

    Plans of table services may wait for a process that executes them.
    """
    if setup.seconds < _LONG_SECONDS:
        return []
    before = {i for i in open_for_reading(setup.place).timeline.pending() if i.action.changes_data}
    time.sleep(3 * setup.dead_after_seconds)
    return [f"stuck: {i}" for i in open_for_reading(setup.place).timeline.pending() if i in before]


_BODIES: dict[str, Callable[[Client], None]] = {
    "reader": read_for_ever,
    "writer": write_for_ever,
    "service": serve_for_ever,
}


class _Stage:
    """The processes of a run."""

    def __init__(self, setup: Setup, log: Log) -> None:
        self._setup = setup
        self._log = log
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([f"{__package__}.services", f"{__package__}.warm"])
        self._alive: dict[str, BaseProcess] = {}
        self._started = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    def run_chaos(self, chance: random.Random) -> None:
        """Starts everybody and lets nobody live long."""
        for role in ("reader", *self._setup.victims):
            self._start(role)
        until = time.monotonic() + self._setup.seconds
        while time.monotonic() < until:
            time.sleep(min(chance.uniform(*self._setup.calm_seconds), max(until - time.monotonic(), 0)))
            victim = chance.choice(self._setup.victims)
            if not self._alive[victim].is_alive():
                pass  # By itself, which is told below.
            elif chance.random() < _KILLED_SHARE:
                self._kill(victim)
            else:
                self._pause(victim, chance.uniform(*self._setup.pause_seconds))
                if chance.random() < _KILLED_AWAKE_SHARE:
                    self._kill(victim)
            for role in sorted(self._alive):
                self._restart_if_dead(role)

    def end(self) -> None:
        """Kills everybody."""
        for role in sorted(self._alive):
            self._restart_if_dead(role, starts=False)
            self._alive[role].kill()
            self._alive[role].join()

    def _start(self, role: str) -> None:
        self._started += 1
        body = _BODIES[role.partition("-")[0]]
        number, setup = self._started, self._setup
        name = f"{role}.{number}"
        client = Client(name, setup.place, setup.logs, number * _NUMBERS_EACH, setup.seed + number, setup.spark)
        process = self._context.Process(target=body, args=(client,), name=name)
        process.start()
        self._alive[role] = process
        self._note("start", role)

    def _kill(self, role: str) -> None:
        self._note("kill", role)
        self._alive[role].kill()
        self._alive[role].join()

    def _pause(self, role: str, seconds: float) -> None:
        self._signal(role, signal.SIGSTOP)
        time.sleep(seconds)
        self._signal(role, signal.SIGCONT)

    def _signal(self, role: str, number: signal.Signals) -> None:
        self._note(number.name, role)
        pid = self._alive[role].pid
        assert pid is not None
        os.kill(pid, number)

    def _restart_if_dead(self, role: str, *, starts: bool = True) -> None:
        process = self._alive[role]
        if process.is_alive():
            return
        if process.exitcode != -signal.SIGKILL:
            self.problems.append(f"ended by itself: {process.name} with code {process.exitcode}")
        if starts:
            self._start(role)

    def _note(self, event: str, role: str) -> None:
        self.counts[event] += 1
        self._log.add(event, client=self._alive[role].name)


def _judge(setup: Setup, stage: _Stage, stuck: Sequence[str]) -> Result:
    history = load_history(setup.logs)
    allowed = [*CONFLICTS, *(["LockUnavailableError"] if setup.place.lock != "local" else [])]
    allowed += [_UNAVAILABLE] if setup.store is not None else []
    found = [*stage.problems, *stuck]
    found += find_leftovers(setup.place)
    if setup.services:
        history.commits = derive_commits(setup.place, history)
        found += find_unread(setup.place, history.commits)
        found += [*find_service_errors(setup.logs, allowed), *find_ills(open_register(setup.place))]
    else:
        history.commits = load_commits(setup.place)
    judged = find_anomalies(history, allowed)
    # A clustering is a conflict, too, and none of the commits that the checker knows.
    found += [one for one in judged if not (setup.services and one.startswith("needless conflict"))]
    if setup.store is not None:
        stage.counts.update(setup.store.counts)
    return Result(tuple(found), stage.counts + _count(setup, history) + count_services(setup.logs))


def _count(setup: Setup, history: History) -> Counter[str]:
    counts = Counter({"commits": len(history.commits), "reads": len(history.reads), "writes": len(history.writes)})
    committed = {row.numbers[-1] for commit in history.commits for row in commit.rows}
    for write_ in history.writes.values():
        kind = write_.error.partition(":")[0] or ("killed" if write_.told is Told.UNKNOWN else "")
        fate = " and committed" if write_.told is Told.UNKNOWN and write_.number in committed else ""
        counts[f"writes told {write_.told.value}{f' ({kind})' if kind else ''}{fate}"] += 1
    counts["files made after a rollback"] = count_late_files(setup.place)
    timeline = open_for_reading(setup.place).timeline
    counts["rollbacks"] = sum(instant.action == "rollback" for instant in timeline.completed())
    return counts
