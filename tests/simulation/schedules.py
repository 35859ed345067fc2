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

from lakebed.errors import InvalidInputError, LakebedError, ServiceCancelledError, StorageUnavailableError
from lakebed.format.properties import PARTITION_METAFILE
from lakebed.model.words import Action
from lakebed.transaction.heartbeats import Timing

from .actors import (
    Client,
    finish_maintenance,
    run_cleaner,
    run_configurator,
    run_maintainer,
    run_operator,
    run_reader,
    run_writer,
)
from .checker import History, Read, Told, Write, find_anomalies
from .codecs import FAST, REAL, Codec, encode_lasting, fast_codecs, remembered_listings
from .engines import give_up_build, run_builder, run_late, run_rival
from .faults import Fault, Faults, SeededFaults
from .invariants import PLANS, Invariants, ViolationError, leftovers
from .jobs import UPKEEP, simulated_jobs
from .scheduler import Process, Scheduler, StuckError, Style
from .services import (
    execute_plan,
    finish_restore,
    run_archiver,
    run_canceller,
    run_executor,
    run_keeper,
    run_service,
)
from .table import FIRST, FIRST_DONE, DuplicateKeyError, Shape, new_table
from .world import LockKind, Store, World

START_MS = 1_720_000_000_000
LEASE_MS = 10_000
HEARTBEAT_S = 6.0
MERGED_COMMITS = 6
"""Where log files of the metadata table are merged it is compacted after so many delta commits, so that both happen."""
SERVICES: dict[str, Callable[[Client], None]] = {
    "compactor": lambda client: run_service(client, Action.COMPACTION, 1, 5_000),
    "log compactor": lambda client: run_service(client, Action.LOG_COMPACTION, 2, 5_000),
    "clusterer": lambda client: run_service(client, Action.CLUSTERING, 1, 5_000),
    "file cleaner": lambda client: run_service(client, Action.CLEAN, 2, 5_000),
    "archiver": lambda client: run_archiver(client, 2, 10_000),
    "keeper": lambda client: run_keeper(client, 3_000),
    "executor": lambda client: run_executor(client, 2, 30_000),
    "canceller": lambda client: run_canceller(client, 3, 5_000),
}
"""Who may look after the table besides writers and those who undo what is dead."""
ENGINES_FROM = 100_000_000
"""From this seed on schedules have more engines."""
OPERATIONS = ("upsert", "upsert", "upsert", "delete", "insert", "overwrite")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a seed decides before the first call."""

    seed: int
    shape: Shape
    lock: LockKind
    style: Style
    skew_ms: int
    wild_ms: int
    page_size: int
    rates: dict[Fault, float]
    writers: tuple[tuple[str, ...], ...]
    cleaners: int
    readers: int
    has_operator: bool
    services: tuple[str, ...]
    """Who looks after the table; some of SERVICES, and some twice."""
    maintainers: int
    has_foreign: bool
    has_configurator: bool
    restarts: int
    is_real: bool
    """Whether documents are encoded as on a real table."""
    has_builder: bool = False
    """Whether another engine builds an index, from `ENGINES_FROM` on: schedules of before stay as they are."""
    has_rival: bool = False
    """Whether another engine takes up compactions, likewise."""
    merges_logs: bool = False
    """Whether maintainers merge log files of the metadata table. Not drawn: schedules of before stay as they are."""

    @property
    def lease_lasts(self) -> bool:
        """Whether the lock is never lost: an engine without tickets has nothing else to rest on."""
        return not (self.lock.can_be_lost and self.rates.get(Fault.PAUSE))

    @property
    def foreigners(self) -> frozenset[str]:
        """Actors of an engine that knows no tickets."""
        wanted = {"foreign": self.has_foreign, "configurator": self.has_configurator and self.shape.has_metadata}
        return frozenset(name for name, is_wanted in wanted.items() if is_wanted and self.lease_lasts)


def draw_setup(seed: int) -> Setup:
    """The setup of a seed."""
    dice = Random(seed)
    is_cow = dice.random() < 0.5
    is_wild = dice.random() < 0.1
    rates = _draw_rates(dice, is_wild)
    lock = LockKind(can_be_lost=dice.random() < 0.6, lease_ms=LEASE_MS)
    return Setup(
        seed=seed,
        shape=Shape(
            is_cow,
            has_metadata=dice.random() < 0.6,
            partitions=("p0", "p1")[: dice.randint(1, 2)],
            groups=dice.randint(1, 4),
            keys=dice.randint(4, 12),
        ),
        lock=lock,
        style=dice.choice(list(Style)),
        skew_ms=200 if dice.random() < (0.5 if is_wild else 0.2) else 0,
        wild_ms=600_000 if is_wild else 0,
        page_size=dice.choice((0, 0, 0, 3, 7)),
        rates=rates,
        writers=tuple(
            tuple(dice.choice(OPERATIONS) for _ in range(dice.choice((1, 1, 1, 2))))
            for _ in range(dice.choice((1, 2, 2, 3)))
        ),
        cleaners=dice.choice((0, 0, 1, 1, 2)),
        readers=dice.choice((0, 1, 1)),
        has_operator=dice.random() < 0.1,
        services=_draw_services(dice, is_cow),
        maintainers=dice.choice((0, 0, 1, 1, 2)),
        has_foreign=dice.random() < 0.2,
        has_configurator=dice.random() < 0.2,
        restarts=dice.randint(0, 2),
        is_real=seed % 10 == 0,
        has_builder=seed >= ENGINES_FROM and seed % 3 == 0,
        has_rival=seed >= ENGINES_FROM and seed % 5 == 0,
    )


def _draw_services(dice: Random, is_cow: bool) -> tuple[str, ...]:
    """None in half of the schedules, so that writers have some to themselves."""
    if dice.random() < 0.5:
        return ()
    possible = [name for name in SERVICES if not is_cow or name not in ("compactor", "log compactor")]
    return tuple(dice.choice(possible) for _ in range(dice.randint(1, 5)))


def _draw_rates(dice: Random, is_wild: bool) -> dict[Fault, float]:
    """Each kind of fault is off in some schedules, so that plain ones exist, and ones with few kinds."""
    scale = dice.choice((0.0, 0.5, 1.0, 2.0))
    chances = {
        Fault.CRASH_BEFORE: 0.003,
        Fault.CRASH_AFTER: 0.003,
        Fault.LOST_BEFORE: 0.004,
        Fault.LOST_AFTER: 0.006,
        Fault.LATE: 0.002,
        Fault.UNAVAILABLE: 0.002,
        Fault.PAUSE: 0.02,
        Fault.NO_BEATS: 0.002,
        Fault.GHOST: 0.001,
        Fault.LOST_RELEASE: 0.001,
        Fault.CLOCK_BACK: 0.001 if is_wild else 0.0,
    }
    return {kind: rate * scale * (dice.random() < 0.6) for kind, rate in chances.items()}


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


Tweak = Callable[[Setup], Setup]


def same(setup: Setup) -> Setup:
    """The setup as drawn."""
    return setup


def run_schedule(setup: Setup, faults: Faults | None = None) -> Result:
    """Runs one schedule. Codecs are those that are patched in at the moment."""
    return Schedule(setup, faults).run()


class Schedule:
    """One run of a setup."""

    def __init__(self, setup: Setup, faults: Faults | None = None) -> None:
        self.setup = setup
        self.dice = Random(setup.seed ^ 0x5EED)
        self.codec: Codec = REAL if setup.is_real else FAST
        scheduler = Scheduler(self.dice, setup.style, START_MS)
        faults = faults or SeededFaults(self.dice, setup.rates, pause_max_ms=LEASE_MS * 10)
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
        setup = self.setup
        for number, operations in enumerate(setup.writers):
            self.start(f"writer{number}", lambda client, todo=operations: run_writer(client, todo), setup.restarts)
        for number in range(setup.cleaners):
            self.start(
                f"cleaner{number}",
                lambda client, rounds=number + 1: run_cleaner(client, rounds, 60_000),
                setup.restarts,
            )
        for number in range(setup.readers):
            self.start(f"reader{number}", lambda client: run_reader(client, 2, 2_000), 0)
        if setup.has_operator:
            self.start("operator", lambda client: run_operator(client, 3_000), 0)
        if "foreign" in setup.foreigners:
            self.start("foreign", lambda client: run_writer(client, ("upsert", "insert")), 1, is_foreign=True)
        for number, name in enumerate(setup.services):
            self.start(f"{name}{number}", SERVICES[name], setup.restarts)
        for number in range(setup.maintainers if setup.shape.has_metadata else 0):
            self.start(
                f"maintainer{number}",
                lambda client, rounds=number + 1: run_maintainer(client, rounds, 5_000),
                setup.restarts,
            )
        if setup.has_builder and setup.shape.has_metadata and "keeper" not in setup.services:
            self.start("builder", lambda client: run_builder(client, 6_000), 0)
        if setup.has_rival and "keeper" not in setup.services:  # Whose restores undo plans, too.
            delay_ms = int(self.timing.service_delay_seconds * 1000)
            self.start("rival", lambda client: run_rival(client, delay_ms), 0)
            self.start("late executor", lambda client: run_late(client, delay_ms), 0)
        if "configurator" in setup.foreigners:
            self.start("configurator", lambda client: run_configurator(client, 3_000), 1, is_foreign=True)

    def start(
        self,
        name: str,
        program: Callable[[Client], None],
        restarts: int = 0,
        delay_ms: int = 0,
        *,
        is_foreign: bool = False,
    ) -> Process:
        """A process with a program. When it dies another one takes its place, as often as told."""
        spread = self.setup.wild_ms or self.setup.skew_ms // 2
        process = Process(name, self.dice.randint(-spread, spread) if spread else 0, is_foreign)
        self.processes.append(process)

        def main() -> None:
            try:
                with suppress(StorageUnavailableError):  # Of opening the table: programs handle their own.
                    program(self.client(process))
            except InvalidInputError as error:
                raise ViolationError(f"C7: {process.name} finds no table: {error}") from error
            finally:
                if process.is_dead and restarts:
                    delay = self.dice.randint(1, 40_000)
                    self.start(f"{name}'", program, restarts - 1, delay, is_foreign=is_foreign)

        self.world.scheduler.start(process, main, delay_ms or self.dice.randint(0, 50))
        return process

    def client(self, process: Process) -> Client:
        """The protocol layer in a process."""
        client = Client(
            self.world, process, self.timing, self.dice, self.history, self.invariants, self.setup.shape.is_cow
        )
        if self.setup.merges_logs:
            client.upkeep = replace(UPKEEP, limits=replace(UPKEEP.limits, delta_commits=MERGED_COMMITS))
            # Strangers take up what others left, asked for or not.
            client.log_blocks = 2 if process.name != "stranger" else None
        return client

    def check_end(self) -> None:
        """Everyone stops, a stranger cleans up, and the table must be whole and the history legal."""
        self.settle()
        view = self.client(self._stranger).view()
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
                client = self.client(self._stranger)
                finish_restore(client)
                if self.setup.has_builder:
                    give_up_build(client)
                client.transactions.rollbacks.run()
                self._execute_plans(client, problems)
                finish_maintenance(client)
            except LakebedError as error:
                problems.append(error)
            if not any(self._leftovers()):
                return
            self.world.scheduler.sleep(300_000)

    def _execute_plans(self, client: Client, problems: list[LakebedError]) -> None:
        """Any process executes what waits, unless it is removable: that was begun and is to be rolled back."""
        client.context.engine.outlive = False  # type: ignore[attr-defined]
        for plan in self.invariants.timeline().pending():
            if plan.action in PLANS:
                problem = execute_plan(client, plan)
                if problem is not None and not isinstance(problem, ServiceCancelledError):
                    problems.append(problem)

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
    with _rare_collections(), simulated_jobs(), remembered_listings() as forget:
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
