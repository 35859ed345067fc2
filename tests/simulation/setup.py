"""What a seed decides before the first call: the table, its lock, what goes wrong, and who works on the table.

What actors draw comes from seeds of their own (`child`), so that a new one leaves the setups of old seeds as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from .faults import Fault
from .scheduler import Style
from .table import Shape
from .world import LockKind

LEASE_MS = 10_000
SERVICES = (
    "compactor",
    "log compactor",
    "clusterer",
    "file cleaner",
    "archiver",
    "keeper",
    "executor",
    "canceller",
)
"""Who may look after the table besides writers and those who undo what is dead."""
ENGINES_FROM = 100_000_000
"""From this seed on schedules have more engines."""
OPERATIONS = ("upsert", "upsert", "upsert", "delete", "insert", "overwrite")


def child(seed: int, name: str) -> Random:
    """Dice of their own for each name."""
    return Random(f"{seed} {name}")


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
    """Whether another engine builds an index."""
    has_rival: bool = False
    """Whether another engine takes up compactions."""
    indexers: int = 0
    """How many create and drop the index of keys."""
    committers: int = 0
    """How many commit what dead writers prepared."""
    merges_logs: bool = False
    """Whether maintainers merge log files of the metadata table. Not drawn: mutants ask for it."""

    @property
    def lease_lasts(self) -> bool:
        """Whether the lock is never lost: an engine without tickets has nothing else to rest on."""
        return not (self.lock.can_be_lost and self.rates.get(Fault.PAUSE))

    @property
    def foreigners(self) -> frozenset[str]:
        """Actors of an engine that knows no tickets."""
        wanted = {"foreign": self.has_foreign, "configurator": self.has_configurator and self.shape.has_metadata}
        return frozenset(name for name, is_wanted in wanted.items() if is_wanted and self.lease_lasts)

    @property
    def keeps_metadata(self) -> bool:
        """Whether there is a metadata table, and nobody who may do away with it."""
        return self.shape.has_metadata and "keeper" not in self.services

    def count(self, service: str) -> int:
        """How many look after the table in this way."""
        return self.services.count(service)


Tweak = Callable[[Setup], Setup]


def same(setup: Setup) -> Setup:
    """The setup as drawn."""
    return setup


def draw_setup(seed: int) -> Setup:
    """The setup of a seed."""
    dice = Random(seed)
    is_cow = dice.random() < 0.5
    is_wild = dice.random() < 0.1
    rates = _draw_rates(dice, is_wild)
    lock = LockKind(can_be_lost=dice.random() < 0.6, lease_ms=LEASE_MS)
    setup = Setup(
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
    shape = replace(setup.shape, shards=child(seed, "shards").choice((0, 1, 1, 2, 3)))
    indexers = child(seed, "indexer").choice((0, 0, 0, 0, 0, 0, 0, 1, 1, 2))
    return replace(setup, shape=shape, indexers=indexers, committers=child(seed, "committer").choice((0, 0, 0, 0, 1)))


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
