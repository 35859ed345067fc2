"""An S3 for a run: it answers wrongly, or not at all, now and then."""

from __future__ import annotations

import random
from collections import Counter

from tests.storage.fake_s3 import start

_FAULTS = ("500 before", "500 after", "drop after")
_PAGE = 1000


class FaultyStore:
    """A server in a thread of this process. One share of all requests fails, half-way through or without an effect."""

    def __init__(self, seed: int, faulty: float) -> None:
        self._chance, self._faulty = random.Random(seed), faulty
        self.counts: Counter[str] = Counter()
        self._fake, self._server = start()
        self._fake.page = _PAGE
        self._fake.misbehave = self._misbehave

    @property
    def url(self) -> str:
        """Where a table can be."""
        return "s3://bucket/table"

    @property
    def options(self) -> dict[str, str]:
        """How it is reached."""
        return self._fake.options

    def behave(self) -> None:
        """No faults from now on."""
        self._faulty = 0.0

    def _misbehave(self, method: str, key: str) -> str | None:
        del method, key
        self._fake.seen.clear()
        self.counts["requests"] += 1
        if self._chance.random() >= self._faulty:
            return None
        fault = self._chance.choice(_FAULTS)
        self.counts[f"requests with a fault ({fault})"] += 1
        return fault
