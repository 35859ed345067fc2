"""What every process reads alike in the plan of a table service: whether it is removable, whether it is cancelled."""

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
"""In the extra metadata of a plan: `true` if a rollback takes the plan away too."""
CANCELLED = ".hoodie/.cancelled"
"""The folder of files that say which plans are cancelled."""
_NO_TIME = timedelta(0)


def is_recent(section: Section, plan: Instant) -> bool:
    """Whether a plan was requested so lately that it is left to whoever may be about to execute it."""
    return time_left(section, replace(plan, state=State.REQUESTED)) > _NO_TIME


def is_begun_elsewhere(section: Section, plan: Instant) -> bool:
    """Whether another engine may be executing a plan: it put it in flight not long ago, and its services do not beat.

    Whoever of us begins has a ticket, and a heartbeat. Two engines at one plan complete it twice. The age is that of
    the inflight file: a plan may have waited for long before it was begun.
    """
    instant = plan.requested_at
    if plan.state is not State.INFLIGHT or instant in section.heartbeats:
        return False
    return not section.ports.storage.find_tickets(instant) and time_left(section, plan) > _NO_TIME


def time_left(section: Section, instant: Instant) -> timedelta:
    """How long a state of a plan is yet to be left alone, by the clock of the store; none if its file is gone."""
    folder, _, name = section.path(instant).rpartition("/")
    age = load_ages(section.ports, folder).get(name)
    return _NO_TIME if age is None else timedelta(seconds=section.timing.service_delay_seconds) - age


def is_removable(section: Section, plan: Instant) -> bool:
    """Whether a rollback of a service takes its plan away; never that of a compaction, which readers may rely on."""
    return can_be_removed(section.ports.storage, section.config, plan)


def can_be_removed(storage: Storage, config: TableConfig, plan: Instant) -> bool:
    """`is_removable`, for those who only look."""
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
    """The file that says that a plan is cancelled."""
    return f"{CANCELLED}/{instant}"


def is_cancelled(storage: Storage, instant: InstantTime) -> bool:
    """Whether a plan must never complete."""
    return storage.find(cancel_marker(instant)) is not None
