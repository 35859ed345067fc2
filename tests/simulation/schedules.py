"""A schedule: everything that one seed decides, run from the first call to the last check."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import repeat
from multiprocessing import get_context
from random import Random

from lakebed.engine import engines
from lakebed.errors import InvalidInputError, LakebedError, StorageUnavailableError
from lakebed.format.properties import PARTITION_METAFILE
from lakebed.index.kinds import only_kinds
from lakebed.transaction.heartbeats import Timing

from . import actors  # noqa: F401 - registers all actors.
from .actor import ACTORS, Actor
from .checker import History, Read, Told, Write, find_anomalies
from .client import Client
from .codecs import FAST, REAL, Codec, encode_lasting, fast_codecs, remembered_listings
from .faults import Faults, SeededFaults
from .index import KINDS
from .invariants import Invariants, ViolationError, leftovers
from .plane import UPKEEP
from .scheduler import Process, Scheduler, StuckError
from .setup import LEASE_MS, Setup, Tweak, child, draw_setup, same
from .table import FIRST, FIRST_DONE, DuplicateKeyError, Shape, new_table
from .world import Store, World

START_MS = 1_720_000_000_000
HEARTBEAT_S = 6.0
MERGED_COMMITS = 6
"""Where log files of the metadata table are merged it is compacted after so many delta commits, so that both happen."""


@dataclass(slots=True)
class Result:
    """How a schedule went."""

    setup: Setup
    world: World
    history: History
    failure: str | None = None
    reached: Counter[str] = field(default_factory=Counter)
    effects: int = 0

    def describe(self) -> str:
        """What failed, and how to see it again."""
        return (
            f"seed {self.setup.seed}, trace {self.world.trace_hash()}: {self.failure}\n"
            f"  replay: python -m tests.simulation --seed {self.setup.seed}"
        )


def run_schedule(setup: Setup, faults: Faults | None = None) -> Result:
    """Runs one schedule. Codecs are those that are patched in at the moment."""
    return Schedule(setup, faults).run()


class Schedule:
    """One run of a setup. The scheduler, faults and each process have dice of their own."""

    def __init__(self, setup: Setup, faults: Faults | None = None) -> None:
        self.setup = setup
        self.codec: Codec = REAL if setup.is_real else FAST
        scheduler = Scheduler(child(setup.seed, "scheduler"), setup.style, START_MS)
        faults = faults or SeededFaults(child(setup.seed, "faults"), setup.rates, pause_max_ms=LEASE_MS * 10)
        self.world = World(scheduler, _template(setup.shape, setup.is_real).copy(), setup.lock, faults)
        self.world.page_size, self.world.is_wild = setup.page_size, bool(setup.wild_ms)
        self.history = History({FIRST: _first_write(setup.shape)})
        self.timing = Timing(HEARTBEAT_S, 2, setup.skew_ms, section_seconds=1.0, service_delay_seconds=30.0)
        self.invariants = Invariants(
            self.world, self.history, has_metadata=setup.shape.has_metadata, timing=self.timing, codec=self.codec
        )
        self.world.witness = self.invariants
        self.processes: list[Process] = []

    def run(self) -> Result:
        """From the first call to the last check."""
        result = Result(self.setup, self.world, self.history, reached=self.world.reached)
        try:
            self._run()
        except (ViolationError, StuckError, AssertionError, LakebedError, DuplicateKeyError, LookupError) as error:
            result.failure = f"{type(error).__name__}: {error}"
        finally:
            self.world.scheduler.close()
        result.effects = self.invariants.effects
        return result

    def _run(self) -> None:
        self.start_actors()
        self.world.scheduler.run()
        self.check_end()

    def start_actors(self) -> None:
        """All actors of the setup."""
        for actor in ACTORS.values():
            for number in range(actor.count(self.setup)):
                self.start(actor, number, f"{actor.name}{number}", actor.restarts(self.setup))

    def start(self, actor: Actor, number: int, name: str, restarts: int, delay_ms: int = 0) -> None:
        """A process of an actor. When it dies another one takes its place, as often as told."""
        spread, dice = self.setup.wild_ms or self.setup.skew_ms // 2, child(self.setup.seed, name)
        process = Process(name, dice.randint(-spread, spread) if spread else 0, actor.is_foreign)
        self.processes.append(process)

        def main() -> None:
            try:
                with suppress(StorageUnavailableError):  # Of opening the table: programs handle their own.
                    actor.run(self.client(process, dice), number)
            except InvalidInputError as error:
                raise ViolationError(f"C7: {process.name} finds no table: {error}") from error
            finally:
                if process.is_dead and restarts:
                    self.start(actor, number, f"{name}'", restarts - 1, dice.randint(1, 40_000))

        self.world.scheduler.start(process, main, delay_ms or dice.randint(0, 50))

    def client(self, process: Process, dice: Random) -> Client:
        """The product in a process."""
        client = Client(self.world, process, self.timing, dice, self.history, self.invariants, self.setup)
        if self.setup.merges_logs:
            client.upkeep = replace(UPKEEP, limits=replace(UPKEEP.limits, delta_commits=MERGED_COMMITS))
            # Strangers take up what others left, asked for or not.
            client.log_blocks = 2 if process.name != "stranger" else None
        return client

    def check_end(self) -> None:
        """Everyone stops, a stranger cleans up, and the table must be whole and the history legal."""
        self.settle()
        view = self.client(self._stranger, child(self.setup.seed, "end")).view()
        now = self.world.scheduler.steps
        self.history.reads.append(Read("the end", view.seen | view.archived, view.rows(), now, now))
        for check in (
            find_anomalies(self.history),
            (f"I30: in the end {what}" for what in view.misplaced()),
            (f"I15: {path} is listed and not there" for path in sorted(view.listed - self.world.store.files.keys())),
            self._stray_files(),
            self._stray_entries(),
            self._overlaps(),
        ):
            for anomaly in check:
                raise ViolationError(anomaly)

    def settle(self) -> None:
        """Quiescence: no faults, all processes gone, a cleaner that comes three times. Nothing may be left over."""
        scheduler = self.world.scheduler
        self.world.calm()
        scheduler.close()
        for process in self.processes:
            process.die(scheduler.now_ms)
        for hold in list(self.world.holds):
            self.world.finish(hold)
        self._stranger = Process("stranger")
        scheduler.now_ms += 600_000
        scheduler.steps_max = scheduler.steps + 5_000
        problems: list[LakebedError] = []
        scheduler.start(self._stranger, lambda: self._clean(problems))
        scheduler.run()
        for problem in problems:
            raise ViolationError(f"quiescence: {problem}")
        for leftover in self._leftovers():
            raise ViolationError(f"quiescence: {leftover} is left over")

    def _clean(self, problems: list[LakebedError]) -> None:
        for _ in range(3):
            problems.clear()  # What cannot be done yet may be done the next time.
            try:
                client = self.client(self._stranger, child(self.setup.seed, "stranger"))
                for actor in ACTORS.values():
                    actor.finish(client)
            except LakebedError as error:
                problems.append(error)
            if not any(self._leftovers()):
                return
            self.world.scheduler.sleep(300_000)

    def _leftovers(self) -> Iterator[str]:
        strays = self.invariants.zombie_files
        return leftovers(self.world, zombie_files=strays, all_have_tickets=not self.setup.foreigners)

    def _stray_files(self) -> Iterator[str]:
        """Files of writes that did not complete are gone, unless they appeared after their rollback was planned."""
        if self.setup.foreigners:
            return  # It revokes no tickets, so that nobody can tell when a rollback was planned.
        pending = {instant.requested_at for instant in self.invariants.timeline().pending()}
        for folder, files in self.world.store.folders.items():
            if not folder.startswith(".hoodie"):
                for name in files:
                    if name == PARTITION_METAFILE:
                        continue
                    instant = name.rpartition("_")[2].partition(".")[0] if name[0] != "." else name.split("_")[1][:17]
                    is_known = instant in self.invariants.completions or instant in pending
                    if not is_known and f"{folder}/{name}" not in self.invariants.zombie_files:
                        yield f"I22: {folder}/{name} is left of a write that is gone"

    def _stray_entries(self) -> Iterator[str]:
        """I13: readers take what the metadata table says of a write that is not pending for true."""
        known = self.invariants
        if not known.has_metadata:
            return
        others = {instant.requested_at for instant in known.timeline() if not instant.action.changes_data}
        others |= {instant.requested_at for instant in (*known.archived(), *known.timeline().pending())}
        others |= {instant for instant in known.metadata_completions if instant < FIRST}  # Of indexes that were built.
        for instant in sorted(known.metadata_completions.keys() - known.completions.keys() - others):
            yield f"I13: the metadata table has {instant}, which did not take place"

    def _overlaps(self) -> Iterator[str]:
        """I21: completed writes that changed the same file group did not overlap in time."""
        intervals: dict[str, list[tuple[str, str, bool]]] = {}
        for instant in self.invariants.timeline().commits():
            stored = self.world.store.get(
                f".hoodie/timeline/{instant.requested_at}_{instant.completed_at}.{instant.action}"
            )
            assert stored is not None
            metadata = self.codec.decode_commit(stored.data, path="")
            for stat in metadata.stats:
                interval = (instant.requested_at, instant.completed_at or "", metadata.compacted)
                intervals.setdefault(f"{stat.partition}/{stat.file_id}", []).append(interval)
        for group, found in intervals.items():
            for before, after in zip(sorted(found), sorted(found)[1:], strict=False):
                if before[1] > after[0] and not (before[2] or after[2]):
                    yield f"I21: {before[:2]} and {after[:2]} both changed {group}"


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Schedules make much garbage and few cycles: looking for them all the time is a tenth of the work."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@lru_cache(maxsize=1000)
def _template(shape: Shape, is_real: bool) -> Store:
    return new_table(shape, REAL.encode_commit if is_real else encode_lasting)


def _first_write(shape: Shape) -> Write:
    keys = {f"k{key}": True for key in range(shape.keys)}
    return Write(0, "the table's maker", FIRST, keys, told=Told.OK, completed_at=FIRST_DONE)


@contextmanager
def simulated() -> Iterator[Callable[[], None]]:
    """What schedules run in. Gives what is to be called between them, to free memory."""
    with _rare_collections(), only_kinds(*KINDS), engines.inline(), remembered_listings() as forget:
        yield forget


def run_seeds(
    seeds: Iterable[int], tweak: Tweak = same, *, stop_at_failure: bool = True
) -> tuple[Counter[str], list[Result]]:
    """Runs schedules; what they reached, and those that failed. Real and cheap codecs take turns as the seeds say."""
    reached: Counter[str] = Counter()
    failed: list[Result] = []
    with simulated() as forget, ExitStack() as stack:
        stack.enter_context(fast_codecs())
        for seed in seeds:
            setup = tweak(draw_setup(seed))
            if setup.is_real:
                stack.close()
            result = run_schedule(setup)
            if setup.is_real:
                stack.enter_context(fast_codecs())
            forget()
            reached.update(result.reached)
            reached["schedules"] += 1
            reached["calls"] += len(result.world.trace)
            reached["effects checked"] += result.effects
            if result.failure is not None:
                failed.append(result)
                if stop_at_failure:
                    break
    return reached, failed


def run_block(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Runs schedules with successive seeds; what they reached, and which failed, in a form that leaves the process."""
    reached, failed = run_seeds(range(first, first + count), stop_at_failure=False)
    return reached, [result.describe() for result in failed]


def run_blocks(first: int, blocks: int, per_block: int, jobs: int) -> Iterator[tuple[Counter[str], list[str]]]:
    """Runs blocks of schedules in so many processes; each seed gives the same schedule in whichever it runs."""
    starts = [first + number * per_block for number in range(blocks)]
    if jobs == 1:
        yield from (run_block(start, per_block) for start in starts)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run_block, starts, repeat(per_block))
