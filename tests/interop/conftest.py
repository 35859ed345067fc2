"""The tables of this run, written by Apache Hudi before the first test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.peer import SEEDS, TABLES, PeerTable, load_table, tables_folder, write_tables


@pytest.fixture(scope="session")
def peer_tables(request: pytest.FixtureRequest):
    """A function from a seed to the folder of its tables."""
    failures: dict[int, str] = {}

    def get(seed: int) -> Path:
        folder = tables_folder(seed)
        if not (folder / "done").exists() and seed not in failures:
            announce(request.config, f"Apache Hudi writes {TABLES} tables of seed {seed}, see {folder}.log")
            try:
                write_tables(folder, seed)
            except RuntimeError as error:
                failures[seed] = str(error)
        if seed in failures:
            pytest.fail(failures[seed])
        return folder

    return get


@pytest.fixture(
    params=[(seed, number) for seed in SEEDS for number in range(TABLES)],
    ids=lambda pair: f"seed{pair[0]}-t{pair[1]:02d}",
)
def peer_table(request: pytest.FixtureRequest, peer_tables) -> PeerTable:
    """One table; each test runs on all of them."""
    seed, number = request.param
    return load_table(peer_tables(seed), seed, number)


def announce(config: pytest.Config, line: str) -> None:
    """Show a line now, not at the end: the wait is long."""
    plugins = config.pluginmanager
    with plugins.getplugin("capturemanager").global_and_fixture_disabled():
        plugins.getplugin("terminalreporter").write(f"\n{line}\n", flush=True)
