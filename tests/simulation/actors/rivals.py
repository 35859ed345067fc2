"""Another engine that takes up compactions, without heartbeats, and processes of ours that find them waiting."""

from __future__ import annotations

from contextlib import suppress

from lakebed.errors import LakebedError
from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.storage.confirm import create_file
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.section import Section

from ..actor import Actor, never, register
from ..client import Client
from ..invariants import require
from ..setup import Setup
from .services import execute_plan, plan_service


def run_rival(client: Client, delay_ms: int) -> None:
    """Plans a compaction, begins it when it has waited for long, is at it for less than the delay, and gives it up."""
    client.world.scheduler.sleep(client.dice.randint(1, 2_000))
    try:
        planned = plan_service(client, Action.COMPACTION)
        if planned is None:
            return
        plan = Instant(planned, Action.COMPACTION, State.REQUESTED)
        client.world.scheduler.sleep(delay_ms + 1_000)
        with client.transactions.section() as section:
            if not _is_free(section, plan):
                return
            inflight = Instant(planned, Action.COMPACTION, State.INFLIGHT)
            begun_ms = client.world.now_ms
            create_file(client.storage, section.path(inflight), b"")
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms // 2))
        is_there = section.path(inflight) in client.world.store.files
        stood_still = client.world.now_ms - begun_ms >= delay_ms
        require(
            is_there or stood_still, "I19 age", f"{inflight.requested_at} was undone while another engine was at it"
        )
        client.world.reached["plan begun elsewhere"] += 1
        with client.transactions.section() as section:
            # Who stood still may find another attempt in its place.
            if client.world.now_ms - begun_ms < delay_ms and inflight in section.timeline.pending():
                section.remove(inflight)
    except LakebedError:
        client.world.reached["rival gave up"] += 1


def run_late(client: Client, delay_ms: int) -> None:
    """Executes plans that have waited for long."""
    client.world.scheduler.sleep(delay_ms + client.dice.randint(1_000, delay_ms // 2))
    with suppress(LakebedError):
        pending = load_timeline(client.storage, load_config(client.storage)).pending()
        for plan in [i for i in pending if i.action is Action.COMPACTION]:
            execute_plan(client, plan)
    client.check_no_timers()


def _is_free(section: Section, plan: Instant) -> bool:
    return plan in section.timeline.pending() and plan.requested_at not in section.heartbeats


def _count(setup: Setup) -> int:
    return setup.has_rival and "keeper" not in setup.services  # Whose restores undo plans, too.


def _delay_ms(client: Client) -> int:
    return int(client.timing.service_delay_seconds * 1000)


register(Actor("rival", _count, lambda client, _: run_rival(client, _delay_ms(client)), restarts=never))
register(Actor("late executor", _count, lambda client, _: run_late(client, _delay_ms(client)), restarts=never))
