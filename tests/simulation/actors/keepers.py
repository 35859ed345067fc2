"""Operators who put savepoints on writes, and set the table back to them."""

from __future__ import annotations

from contextlib import suppress

from lakebed.errors import LakebedError, TableRestoredError, WriteConflictError
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.restore import restore
from lakebed.services.savepoint import delete_savepoint, savepoint
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config

from ..actor import Actor, register
from ..client import Client


def run_keeper(client: Client, delay_ms: int) -> None:
    """Puts a savepoint on a write, and some time later removes it or sets the table back to it."""
    try:
        if finish_restore(client):
            return
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        commits = client.context.handle.state().timeline.commits()
        if not commits:
            return
        target = client.dice.choice(commits).requested_at
        needs_savepoint = client.dice.random() < 0.8
        if needs_savepoint:
            savepoint(client.context, target)
            client.world.reached["savepoint"] += 1
        client.world.scheduler.sleep(client.dice.randint(1, 30 * delay_ms))
        if client.dice.random() < 0.3:
            delete_savepoint(client.context, target)
        else:
            _set_back(client, target, needs_savepoint)
    except LakebedError as error:
        client.world.reached[f"keeper told {type(error).__name__}"] += 1
    client.check_no_timers()


def finish_restore(client: Client) -> bool:
    """Goes on with a restore that another process left; whether there is one."""
    pending = load_timeline(client.storage, load_config(client.storage)).pending()
    for instant in [i for i in pending if i.action is Action.RESTORE]:
        data = client.storage.get(f".hoodie/timeline/{instant.requested_at}.restore.requested")
        restore(client.context, InstantTime(client.invariants.codec.decode_restore_plan(data, path="").target))
        client.world.reached["restore taken up"] += 1
        return True
    return False


def _set_back(client: Client, target: InstantTime, needs_savepoint: bool) -> None:
    """The table must be idle: tried a few times."""
    for _ in range(3):
        with suppress(WriteConflictError, TableRestoredError):
            restore(client.context, target, needs_savepoint=needs_savepoint)
            client.world.reached["restore"] += 1
            return
        client.world.scheduler.sleep(client.dice.randint(1, 40_000))


def _finish(client: Client) -> None:
    finish_restore(client)


register(
    Actor("keeper", lambda setup: setup.count("keeper"), lambda client, _: run_keeper(client, 3_000), finish=_finish)
)
