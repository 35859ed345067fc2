"""Those who look after the metadata table, as writers do after their commits."""

from __future__ import annotations

from lakebed.errors import LakebedError
from lakebed.metadata.upkeep.maintenance import is_due, maintain_metadata
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.section import METADATA

from ..actor import Actor, register
from ..client import Client


def run_maintainer(client: Client, rounds: int, delay_ms: int) -> None:
    """Compacts, merges and cleans if that is due, a few times."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            _maintain(client)
        except LakebedError:
            client.world.reached["maintainer gave up"] += 1


def _maintain(client: Client) -> None:
    config = load_config(client.storage)
    if config.metadata_partitions:
        timeline = load_timeline(client.storage, config, METADATA)
        if is_due(timeline, client.log_blocks, client.upkeep.limits.delta_commits):
            finish_maintenance(client)


def finish_maintenance(client: Client) -> None:
    """Takes up what is pending in the metadata table, and does what is due."""
    maintain_metadata(client.transactions, client.upkeep, client.log_blocks)


register(
    Actor(
        "maintainer",
        lambda setup: setup.maintainers if setup.shape.has_metadata else 0,
        lambda client, number: run_maintainer(client, number + 1, 5_000),
        finish=finish_maintenance,
    )
)
