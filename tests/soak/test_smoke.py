"""A short run of the crash test with real processes; `python -m tests.soak` has the long ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.12", "--seed", "3", "--table-type", "mor"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
