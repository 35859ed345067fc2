"""Who takes part in a schedule: actors, registered by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .client import Client
from .setup import Setup


def _nothing(client: Client) -> None:
    del client


@dataclass(frozen=True, slots=True)
class Actor:
    """Processes of one kind: `count` of them take part, each runs its program, and starts anew if it dies.

    In the end, when all are dead, a stranger does what it takes to `finish` what they left.
    """

    name: str
    count: Callable[[Setup], int]
    run: Callable[[Client, int], None]
    finish: Callable[[Client], None] = _nothing
    restarts: Callable[[Setup], int] = lambda setup: setup.restarts
    is_foreign: bool = False


ACTORS: dict[str, Actor] = {}
"""All actors by name, in the order in which they start and in which strangers finish their work."""


def register(actor: Actor) -> None:
    """Adds an actor."""
    assert actor.name not in ACTORS, actor.name
    ACTORS[actor.name] = actor


def never(setup: Setup) -> int:
    """Processes that do not start anew when they die."""
    del setup
    return 0


def once(setup: Setup) -> int:
    """Processes that start anew once."""
    del setup
    return 1
