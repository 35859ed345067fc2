"""Those who commit what another process prepared and did not live to commit."""

from __future__ import annotations

from lakebed.errors import CommitUnknownError, LakebedError
from lakebed.write.recommit import recommit

from ..actor import Actor, register
from ..checker import Told
from ..client import Client
from ..writes import SimPlane

_FOLDER = ".hoodie/.temp"


def run_committer(client: Client, rounds: int, delay_ms: int) -> None:
    """Looks for prepared commits of writes that are pending, a few times, and commits them."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            listed = client.storage.list(_FOLDER, recursive=True)
        except LakebedError:
            continue
        for path in [each.path for each in listed if each.path.endswith("/prepared.zip")]:
            _recommit(client, path)
    client.check_no_timers()


def _recommit(client: Client, path: str) -> None:
    record = client.history.writes[path.split("/")[2]]
    try:
        data = client.storage.find(path)
        if data is not None:
            recommit(client.context.handle, client.transactions, SimPlane(client), data, path=path)
            client.world.reached["recommitted"] += 1
            record.told = Told.OK
    except CommitUnknownError:
        client.world.reached["recommit unknown"] += 1
    except LakebedError as error:
        client.world.reached[f"committer told {type(error).__name__}"] += 1


register(Actor("committer", lambda setup: setup.committers, lambda client, _: run_committer(client, 3, 60_000)))
