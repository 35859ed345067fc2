"""Shared fixtures: real tables, unpacked once per run."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import memory_folder
from implementations import IMPLEMENTATIONS, using
from lakebed.kernels import choice

# Compiled code is built on first use, and the machine may be busy: time is for benchmarks, not for tests.
# One commit gives one verdict: examples are fixed; `make test ARGS=--hypothesis-profile=explore` looks for new ones.
settings.register_profile("lakebed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("lakebed")

DATA = Path(__file__).parent / "data" / "hudi"

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of every JVM that tests start: none lives long enough for what its second compiler makes to pay."""
LONG = ("model_based", "simulation", "soak")
"""Folders whose tests take minutes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first: tests are shared out among processes by file, in this order."""
    long = tuple(f"tests/{name}" for name in LONG)
    items.sort(key=lambda item: not _needs_spark(item) and not item.nodeid.startswith(long))


def _needs_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernels",
        choices=["plain", "compiled"],
        help="plain: no compiled code serves; compiled: it must lie ready (by default it serves if it does)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tests start no compiler: what serves is what lay ready before. Files go to memory if it has room."""
    wanted = config.getoption("--kernels")
    os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JVM)
    os.environ[choice.VARIABLE] = "plain" if wanted == "plain" else "off"
    if wanted == "compiled" and not choice.is_ready():
        raise pytest.UsageError("no compiled code lies ready: run `lakebed warm-up`")
    if config.option.basetemp is None:  # Workers have that of the process which started them.
        config.add_cleanup(memory_folder.use())


@dataclass(frozen=True)
class RealTable:
    """A table that Apache Hudi wrote, and the rows that it reads from it."""

    name: str
    path: Path
    about: dict[str, Any]
    schema: list[tuple[str, str]]
    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.name


def catalogue() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((DATA / "fixtures.json").read_text())["fixtures"]
    return entries


REAL_TABLES = [entry["zip"].removesuffix(".zip") for entry in catalogue()]
_ABOUT = {entry["zip"].removesuffix(".zip"): entry for entry in catalogue()}


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory: pytest.TempPathFactory):
    """Key tables of tests go where tests write, not into the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEBED_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """Tests see that a sync is asked for and of what; how long a disk takes for it is not theirs.

    `storage/test_local.py` syncs for real.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", os.fstat)
        yield


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def either_implementation(request: pytest.FixtureRequest):
    """Kernels of one kind serve all calls of a module's tests, then those of the other."""
    with using(request.param):
        yield request.param


@pytest.fixture(scope="module")
def compiled_kernels():
    """Compiled code serves all calls."""
    with using("compiled"):
        yield


@pytest.fixture(scope="session")
def unpack(tmp_path_factory: pytest.TempPathFactory):
    """A function from the name of a real table to the table, unpacked once. Treat it as read-only."""
    known: dict[str, RealTable] = {}
    root = tmp_path_factory.mktemp("real-tables")

    def get(name: str) -> RealTable:
        if name not in known:
            about = _ABOUT[name]
            with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
                archive.extractall(root / name)
            expected = json.loads((DATA / about["expected"]).read_text())
            schema = [tuple(column) for column in expected.get("schema", [])]
            known[name] = RealTable(name, root / name / about["table_dir"], about, schema, expected["rows"])
        return known[name]

    return get


@pytest.fixture(params=REAL_TABLES)
def real_table(request: pytest.FixtureRequest, unpack) -> RealTable:
    return unpack(request.param)


@pytest.fixture(scope="session")
def spark():
    """One local Spark session for the whole run; tests that use it carry the `spark` marker."""
    from lakebed.engine.session import local_session

    session = local_session("lakebed-tests", cores=2, options={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
