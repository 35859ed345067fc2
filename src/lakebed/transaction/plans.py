"""Properties of a table service's plan that all processes agree on: whether it is removable or cancelled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from lakebed.format.timeline.metadata import decode_compaction_plan
from lakebed.format.timeline.plans import decode_clustering_plan
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.transaction.heartbeats import load_ages
from lakebed.transaction.section import Section, instant_path

SERVICES = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN)
"""Actions whose requested file is a plan that any process may execute."""
REMOVABLE = "lakebed.removable"
"""Key in the extra metadata of a plan: `true` if a rollback removes the plan too."""
CANCELLED = ".hoodie/.cancelled"
"""The folder of cancel markers."""
_NO_TIME = timedelta(0)


def is_recent(section: Section, plan: Instant) -> bool:
    """Whether a plan was requested so recently that another process may still execute it."""
    return time_left(section, replace(plan, state=State.REQUESTED)) > _NO_TIME


def is_begun_elsewhere(section: Section, plan: Instant) -> bool:
    """Whether another engine may be executing a plan: it was put in flight recently, without heartbeat and ticket.

    lakebed always has both. If two engines execute one plan, it completes twice. The age is that of the inflight file,
    because a plan may have waited for long before it was begun.
    """
    instant = plan.requested_at
    if plan.state is not State.INFLIGHT or instant in section.heartbeats:
        return False
    return not section.ports.storage.find_tickets(instant) and time_left(section, plan) > _NO_TIME


def time_left(section: Section, instant: Instant) -> timedelta:
    """How much longer a state of a plan is left alone, by the clock of the store; zero if its file is gone."""
    folder, _, name = section.path(instant).rpartition("/")
    age = load_ages(section.ports, folder).get(name)
    return _NO_TIME if age is None else timedelta(seconds=section.timing.service_delay_seconds) - age


def is_removable(section: Section, plan: Instant) -> bool:
    """Whether a rollback of a service removes its plan; never that of a compaction, which readers may rely on."""
    return can_be_removed(section.ports.storage, section.config, plan)


def can_be_removed(storage: Storage, config: TableConfig, plan: Instant) -> bool:
    """`is_removable` outside of a section."""
    if plan.action not in (Action.LOG_COMPACTION, Action.CLUSTERING):
        return False
    path = instant_path(config, Instant(plan.requested_at, plan.action, State.REQUESTED))
    data = storage.find(path)
    if data is None:
        return True  # A rollback was about to take it away.
    if plan.action is Action.CLUSTERING:
        return decode_clustering_plan(data, path=path).extra_metadata.get(REMOVABLE) == "true"
    return decode_compaction_plan(data, path=path).extra_metadata.get(REMOVABLE) == "true"


def cancel_marker(instant: InstantTime) -> str:
    """The path of a plan's cancel marker."""
    return f"{CANCELLED}/{instant}"


def is_cancelled(storage: Storage, instant: InstantTime) -> bool:
    """Whether a plan is cancelled and must never complete."""
    return storage.find(cancel_marker(instant)) is not None
