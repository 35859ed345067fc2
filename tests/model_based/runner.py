"""Runs steps from a seed, tells what went wrong, and leaves out steps as long as it still goes wrong."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from lakebed.engine import randomness

from .checks import check_all, check_some
from .steps import Setup, Step, Steps, make_setup
from .world import World

_SHRINK_SECONDS = 60

Check = Callable[[World, random.Random], None]


@dataclass(frozen=True)
class Failure:
    """What went wrong with a seed, and the steps that led there."""

    seed: int
    setup: Setup
    steps: tuple[Step, ...]
    what: str
    kind: str

    def __str__(self) -> str:
        steps = "\n".join(f"  {number}. {step}" for number, step in enumerate(self.steps, 1))
        return f"seed {self.seed}: {self.what}\n{self.setup}\n{steps}\n"


def run_seed(seed: int, steps: int, *, shrink: bool = False, check: Check = check_some) -> Failure | None:
    """Runs a seed, with `check` after each step; what went wrong, if something did."""
    setup = make_setup(random.Random(f"{seed} setup"))
    failure = _attempt(seed, setup, _Source(None, seed, steps), check)
    if failure is None or not shrink:
        return failure
    return _shrunk(failure)


class _Source:
    """Steps that are made as the model grows, or that are given."""

    def __init__(self, given: Sequence[Step] | None, seed: int, count: int) -> None:
        self._given, self._seed, self._count = given, seed, count

    def steps(self, world: World) -> Iterator[Step]:
        if self._given is not None:
            yield from (step for step in self._given if world.allows(step))
            return
        made = Steps(random.Random(f"{self._seed} steps"), world.setup, world.model)
        for _ in range(self._count):
            step = made.next()
            if world.allows(step):
                yield step


def _attempt(seed: int, setup: Setup, source: _Source, check: Check) -> Failure | None:
    folder, done = Path(tempfile.mkdtemp(prefix="lakebed-model-")), list[Step]()
    chance = random.Random(f"{seed} checks")
    try:
        with _same_names(seed):
            world = World.create(folder / "table", setup, chance)
            for step in source.steps(world):
                done.append(step)
                world.do(step)
                check(world, chance)
            check_all(world, chance)
    except Exception as error:
        return Failure(seed, setup, tuple(done), _told(error), _kind(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None


def _shrunk(failure: Failure) -> Failure:
    """The failure with as few steps as are found in a while; all checks run after each, so that it shows early."""
    best, began = failure, time.monotonic()
    for check in (check_all, check_some):
        again = _again(best, best.steps, check)
        if again is not None:
            best = again
            break
    else:
        return failure
    size = max(len(best.steps) // 2, 1)
    while size and time.monotonic() - began < _SHRINK_SECONDS:
        start = 0
        while start < len(best.steps) and time.monotonic() - began < _SHRINK_SECONDS:
            fewer = (*best.steps[:start], *best.steps[start + size :])
            found = _again(best, fewer, check)
            if found is None:
                start += size
            else:
                best = found
        size //= 2
    return best


def _again(failure: Failure, steps: Sequence[Step], check: Check) -> Failure | None:
    found = _attempt(failure.seed, failure.setup, _Source(steps, failure.seed, 0), check)
    return found if found is not None and found.kind == failure.kind else None


def _kind(error: Exception) -> str:
    """What failures have in common that are the same one."""
    text = str(error).partition(":")[0].partition("(")[0] if isinstance(error, AssertionError) else ""
    return f"{type(error).__name__} {text[:16]}"


def _told(error: Exception) -> str:
    if isinstance(error, AssertionError):
        return str(error)
    return f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-4:])}"


@contextmanager
def _same_names(seed: int) -> Iterator[None]:
    """File ids and tokens follow from the seed as well."""
    chance = random.Random(f"{seed} names")
    modules = randomness.uuid, randomness.secrets
    randomness.uuid = SimpleNamespace(uuid4=lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
    randomness.secrets = SimpleNamespace(
        token_hex=lambda size: chance.randbytes(size).hex(), randbelow=lambda limit: chance.randrange(limit)
    )
    try:
        yield
    finally:
        randomness.uuid, randomness.secrets = modules
