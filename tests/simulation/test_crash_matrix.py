"""Every fault at every call of small scenarios, then recovery, then all checks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest

from .codecs import fast_codecs
from .faults import Fault, PlannedFault, PlannedFaults, possible_faults
from .scheduler import Style
from .schedules import run_schedule, simulated
from .setup import Setup, draw_setup
from .table import Shape
from .world import LockKind

# A crash after a call is one before the next.
FAULTS = (Fault.CRASH_BEFORE, Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.UNAVAILABLE, Fault.PAUSE)
METADATA_FILE = "create .hoodie/metadata/files/"
LONG_MS = 100_000
"""A pause of ten leases, past the age at which a heartbeat counts as dead."""


@dataclass(frozen=True)
class Scenario:
    """Who acts, whose calls are struck, and what happens anyway."""

    name: str
    victim: str
    writers: tuple[tuple[str, ...], ...] = (("upsert",),)
    cleaners: int = 0
    has_operator: bool = False
    maintainers: int = 0
    merges_logs: bool = False
    services: tuple[str, ...] = ()
    before: tuple[tuple[str, int | str, Fault], ...] = ()
    seed: int = 1
    reaches: tuple[str, ...] = ()
    """What happens with no fault, and the crash points that the faults hit: the proof that it is the case meant."""

    def __str__(self) -> str:
        return self.name


SCENARIOS = (
    Scenario("one upsert", "writer0", cleaners=1),
    Scenario("one overwrite", "writer0", writers=(("overwrite",),), cleaners=1),
    Scenario("two writers", "writer0", writers=(("upsert",), ("upsert",))),
    Scenario(
        "rollback of a dead writer",
        "cleaner0",
        cleaners=2,
        before=(("writer0", METADATA_FILE, Fault.CRASH_BEFORE),),
    ),
    Scenario("rollback of a completed write", "operator0", writers=(("upsert",),) * 2, cleaners=1, has_operator=True),
    Scenario("two look after the metadata table", "maintainer0", writers=(("upsert",) * 3,), maintainers=2),
)
TWICE = (("upsert", "upsert"),)
MOR, COW = "mor, lock, metadata", "cow, lease, metadata"
SERVICES = (
    (
        MOR,
        Scenario(
            "compaction", "compactor0", TWICE, services=("compactor",), reaches=("compaction", "C23", "C24", "C25")
        ),
    ),
    (
        MOR,
        Scenario(
            "log compaction", "log compactor0", TWICE, services=("log compactor",), reaches=("logcompaction", "C24")
        ),
    ),
    (
        COW,
        Scenario(
            "clustering", "clusterer0", TWICE, services=("clusterer",), reaches=("clustering", "C23", "C24", "C25")
        ),
    ),
    (
        MOR,
        Scenario(
            "cancel",
            "canceller0",
            TWICE,
            services=("clusterer", "canceller"),
            seed=4,
            reaches=("service.cancel", "C30"),
        ),
    ),
    (
        COW,
        Scenario(
            "clean",
            "file cleaner0",
            TWICE,
            services=("file cleaner", "keeper"),
            seed=3,
            reaches=("clean", "savepoint", "C24"),
        ),
    ),
    (COW, Scenario("archive", "archiver0", TWICE, services=("archiver",), maintainers=1, reaches=("archived",))),
    (
        COW,
        Scenario(
            "log compaction of the metadata table",
            "maintainer1",
            (("upsert",) * 4,),
            maintainers=2,
            merges_logs=True,
            seed=66,
            reaches=("metadata logcompaction",),
        ),
    ),
    (
        MOR,
        Scenario(
            "log compaction of the metadata table among writers",
            "maintainer1",
            (("upsert", "upsert"), ("insert", "upsert")),
            maintainers=2,
            merges_logs=True,
            cleaners=1,
            seed=155,
            reaches=("metadata logcompaction",),
        ),
    ),
    (COW, Scenario("restore", "keeper0", TWICE, services=("keeper",), seed=1, reaches=("restore", "C37", "C38"))),
    (
        MOR,
        Scenario(
            "restore of what is compacted",
            "keeper0",
            TWICE,
            services=("keeper",),
            maintainers=1,
            seed=4,
            reaches=("restore", "C39"),
        ),
    ),
)
TABLES = {
    "cow, lease, metadata": (Shape(True, True, ("p0",), 1, 4), LockKind(can_be_lost=True)),
    "mor, lock, metadata": (Shape(False, True, ("p0",), 1, 4), LockKind(can_be_lost=False)),
}


def _setup(scenario: Scenario, table: str, restarts: int) -> Setup:
    shape, lock = TABLES[table]
    return replace(
        draw_setup(scenario.seed),
        shape=shape,
        lock=lock,
        style=Style.STICKY,
        skew_ms=0,
        wild_ms=0,
        page_size=0,
        writers=scenario.writers,
        cleaners=scenario.cleaners,
        readers=1,
        has_operator=scenario.has_operator,
        services=scenario.services,
        maintainers=scenario.maintainers,
        merges_logs=scenario.merges_logs,
        has_foreign=False,
        has_configurator=False,
        restarts=restarts,
        is_real=False,
    )


@pytest.mark.parametrize(
    ("table", "restarts"),
    [("cow, lease, metadata", 0), ("cow, lease, metadata", 1), ("mor, lock, metadata", 0)],
    ids=["cow, lease, a stranger recovers", "cow, lease, the victim recovers", "mor, lock, a stranger recovers"],
)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_every_call_may_fail(scenario: Scenario, table: str, restarts: int) -> None:
    _check_all(scenario, _setup(scenario, table, restarts))


@pytest.mark.parametrize(("table", "scenario"), SERVICES, ids=[scenario.name for _, scenario in SERVICES])
def test_every_call_of_a_service_may_fail(table: str, scenario: Scenario) -> None:
    reached = _check_all(scenario, _setup(scenario, table, restarts=0))
    assert [name for name in scenario.reaches if not reached[name]] == []


def _check_all(scenario: Scenario, setup: Setup) -> Counter[str]:
    """Every fault at every call; what was reached."""
    reached: Counter[str] = Counter()
    with simulated() as forget, fast_codecs():
        calls = _list_calls(scenario, setup)
        assert len(calls) > 20
        for number, verb in enumerate(calls, start=1):
            for fault in FAULTS:
                if fault in possible_faults(verb):
                    reached.update(_check(scenario, setup, number, fault))
                    forget()
    return reached


def _check(scenario: Scenario, setup: Setup, number: int, fault: Fault) -> Counter[str]:
    planned = PlannedFault(scenario.victim, number, fault, pause=LONG_MS)
    result = run_schedule(setup, PlannedFaults((planned, *_before(scenario))))
    struck = f"{fault.value} at call {number} of {scenario.victim}: {planned.struck}"
    assert result.failure is None, f"{struck}: {result.failure}"
    return result.reached


def _before(scenario: Scenario) -> tuple[PlannedFault, ...]:
    return tuple(PlannedFault(process, number, fault) for process, number, fault in scenario.before)


def _list_calls(scenario: Scenario, setup: Setup) -> list[str]:
    result = run_schedule(setup, PlannedFaults(_before(scenario)))
    assert result.failure is None, result.failure
    return [str(verb) for _, process, verb, _, _ in result.world.trace if process == scenario.victim]
