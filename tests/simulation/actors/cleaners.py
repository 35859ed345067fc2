"""Those who roll back: what is dead, and what somebody wants undone."""

from __future__ import annotations

from lakebed.errors import InvalidInputError, LakebedError

from ..actor import Actor, never, register
from ..client import Client


def run_cleaner(client: Client, rounds: int, delay_ms: int) -> None:
    """Rolls back what is dead, a few times."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            client.transactions.rollbacks.run()
        except LakebedError:
            client.world.reached["cleaner gave up"] += 1
    client.check_no_timers()


def run_operator(client: Client, delay_ms: int) -> None:
    """Takes the newest completed write back."""
    client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
    rollbacks = client.transactions.rollbacks
    try:
        commits = client.view().timeline.commits()
        if len(commits) < 2:
            return
        target = commits[-1].requested_at
        client.invariants.asked.add(target)
        try:
            rollback = rollbacks.schedule_completed(target)
        except InvalidInputError:
            client.invariants.asked.discard(target)
            return
        client.world.reached["rollback of a completed write"] += 1
        rollbacks.execute(rollback)
    except LakebedError:
        client.world.reached["operator gave up"] += 1
    client.check_no_timers()


def _finish(client: Client) -> None:
    client.transactions.rollbacks.run()


register(
    Actor(
        "cleaner",
        lambda setup: setup.cleaners,
        lambda client, number: run_cleaner(client, number + 1, 60_000),
        finish=_finish,
    )
)
register(
    Actor("operator", lambda setup: setup.has_operator, lambda client, _: run_operator(client, 3_000), restarts=never)
)
