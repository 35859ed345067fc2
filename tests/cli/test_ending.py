"""The installed command, as a process: what shells and scripts see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

LAKEBED = Path(sys.executable).with_name("lakebed")
COMPACTED = "hudi120_mor_part_compacted"


def run(*args: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(LAKEBED), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)


def test_exit_codes(unpack, tmp_path: Path) -> None:
    done = run("files", unpack(COMPACTED).path, "--json")
    assert (done.returncode, done.stderr, len(json.loads(done.stdout)["slices"])) == (0, "", 2)
    failed = run("files", tmp_path)
    assert (failed.returncode, failed.stdout, failed.stderr.startswith("error: ")) == (1, "", True)
    assert run("files").returncode == 2


def test_a_reader_that_has_seen_enough_is_no_failure(unpack) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [str(LAKEBED), "config", str(unpack(COMPACTED).path)]
    with os.fdopen(write_end, "wb") as closed_pipe:
        ended = subprocess.run(command, stdout=closed_pipe, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_text_that_the_encoding_lacks_is_escaped(unpack) -> None:
    real = unpack("hudi120_cow_nonpart_secondary_special_keys")
    assert any(not row["id"].isascii() for row in real.rows)
    shown = run("read", real.path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (shown.returncode, shown.stdout.count("\n")) == (0, 1 + len(real.rows))


def test_heavy_modules_wait_until_they_are_needed() -> None:
    code = "import sys, lakebed.cli.app; print(*({'pyspark', 'numba', 'sqlglot'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (loaded.stdout, loaded.stderr) == ("\n", "")


def test_an_interrupt_while_modules_load_is_quiet() -> None:
    code = (
        "import builtins, os, signal, sys\n"
        "from lakebed import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # A background job inherits it ignored.
        "load = builtins.__import__\n"
        "def interrupted(name, *rest):\n"
        "    if name == 'lakebed.cli.app': os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = interrupted\n"
        "cli.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
