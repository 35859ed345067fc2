"""Readers: snapshots, some time apart."""

from __future__ import annotations

from lakebed.errors import CorruptTableError, LakebedError

from ..actor import Actor, never, register
from ..checker import Read
from ..client import Client
from ..invariants import require


def run_reader(client: Client, rounds: int, delay_ms: int) -> None:
    """Reads all rows, and looks each key up in each index."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        began = client.world.scheduler.steps
        try:
            view = client.view()
            rows, misplaced = view.rows(), view.misplaced()
        except LakebedError as error:
            if isinstance(error, CorruptTableError):
                client.invariants.check_may_miss_files("", began, error)
            continue
        require(not misplaced or client.invariants.vanished >= began, "I30", f"a reader found that {misplaced[:1]}")
        seen = view.seen | view.archived
        client.history.reads.append(Read(client.process.name, seen, rows, began, client.world.scheduler.steps))


register(Actor("reader", lambda setup: setup.readers, lambda client, _: run_reader(client, 2, 2_000), restarts=never))
