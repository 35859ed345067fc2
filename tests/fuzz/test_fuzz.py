"""A small part of what `python -m tests.fuzz` runs; inputs are the same in every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODECS = ("hfile", "avro", "log", "parquet", "key-table")
INPUTS = 3000


@pytest.mark.parametrize("codec", CODECS)
def test_inner_layers(codec: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--codec", codec, "--inputs", str(INPUTS), "--seed", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()[-1]
    assert said.startswith(f"{codec}: {INPUTS} inputs, "), said
    refused = int(said.split(", ")[1].split()[0])
    assert 0.1 * INPUTS < refused < 0.9 * INPUTS, f"{said}: inputs must be neither all sound nor all refused"
