"""Those who create the index of keys on the live table, and drop it."""

from __future__ import annotations

from lakebed.errors import LakebedError
from lakebed.index.build import IndexRequest
from lakebed.options import IndexOptions
from lakebed.services.indexing.create import create_index, run_index, schedule_index
from lakebed.services.indexing.drop import drop_index
from lakebed.services.indexing.plans import settle, settle_plans
from lakebed.timeline.config import load_config

from ..actor import Actor, register
from ..client import Client
from ..index import sim_codec
from ..table import INDEX


def run_indexer(client: Client, rounds: int, delay_ms: int) -> None:
    """Creates the index if the table lacks it; else builds it anew, perhaps over other shards, or drops it."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            is_there = INDEX in load_config(client.storage).metadata_partitions
            if is_there and client.dice.random() < 0.5:
                drop_index(client.transactions, INDEX)
                client.world.reached["index dropped"] += 1
            else:
                _create(client, rebuild=is_there)
                client.world.reached["index rebuilt" if is_there else "index created"] += 1
        except LakebedError as error:
            client.world.reached[f"indexer told {type(error).__name__}"] += 1
        finally:
            client.context.handle.forget()


def _create(client: Client, *, rebuild: bool) -> None:
    """At once, or planned now and built some time later; some build what another has planned."""
    request = IndexRequest(INDEX, "sim", shards=client.dice.randint(1, 3), rebuild=rebuild)
    state, codec, options = client.context.handle.state(), sim_codec(client.world.token), IndexOptions()
    if rebuild or client.dice.random() < 0.6:
        create_index(client.transactions, state, request, options, codec=codec)
        return
    if client.dice.random() < 0.8:
        schedule_index(client.transactions, state, request, options)
        client.world.reached["index planned"] += 1
        client.world.scheduler.sleep(client.dice.randint(1, 2_000))
        client.context.handle.forget()
    run_index(client.transactions, client.context.handle.state(), INDEX, options, codec=codec)
    client.world.reached["planned index built"] += 1


def _finish(client: Client) -> None:
    """Completes indexing instants of indexes that are there, and clears away what is left of others.

    A plan that nobody runs may stay for ever; here, too, somebody must want to be rid of it.
    """
    if client.setup.indexers and client.setup.keeps_metadata:
        with client.transactions.section() as section:
            settle(client.transactions, section)
            settle_plans(section, unused=None)


register(
    Actor(
        "indexer",
        lambda setup: setup.indexers if setup.keeps_metadata else 0,
        lambda client, number: run_indexer(client, number + 1, 4_000),
        finish=_finish,
    )
)
