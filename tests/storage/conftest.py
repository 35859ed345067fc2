"""Storages of every kind for the contract tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import FaultyStorage
from storage.fake_s3 import Fake, start

_NAMES = itertools.count()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that a storage asked for; none takes place."""
    waits: list[float] = []
    monkeypatch.setattr("lakebed.storage.objects.time", SimpleNamespace(sleep=waits.append))
    return waits


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Fake]:
    fake, server = start()
    yield fake
    server.shutdown()
    server.server_close()


@pytest.fixture
def s3(s3_server: Fake) -> Fake:
    """An empty bucket that behaves."""
    s3_server.reset()
    return s3_server


@pytest.fixture(params=["local", "memory", "s3", "faulty local", "faulty memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty table, once for each kind of storage."""
    kinds: dict[str, Callable[[], Storage]] = {
        "local": lambda: open_storage(tmp_path / "table"),
        "memory": lambda: open_storage(f"memory://contract-{next(_NAMES)}"),
        "s3": lambda: _open_s3(request),
        "faulty local": lambda: FaultyStorage(open_storage(tmp_path / "table")),
        "faulty memory": lambda: FaultyStorage(open_storage(f"memory://contract-{next(_NAMES)}")),
    }
    return kinds[request.param]()


def _open_s3(request: pytest.FixtureRequest) -> Storage:
    request.getfixturevalue("slept")
    return open_storage("s3://bucket/warehouse/table", request.getfixturevalue("s3").options)
