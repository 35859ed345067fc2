"""Workers of a Spark job run the compiled code of its driver, and compile nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from implementations import using
from lakebed.engine import spark
from lakebed.engine.spark import PackedCode
from lakebed.kernels import cache, choice

JOB = """
import json, os, sys
from lakebed.engine.session import ensure_java_home
from pyspark.sql import SparkSession
ensure_java_home()
builder = SparkSession.builder.master("local-cluster[2,1,512]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
from lakebed.engine.spark import OnSpark
from engine.shipped_task import hash_many
print(json.dumps(OnSpark(spark).map([*range(4)], hash_many)))
spark.stop()
"""
TESTS = Path(__file__).parents[1]


@pytest.fixture
def packed() -> PackedCode:
    """The code of this host, compiled now if it has not been."""
    with using("compiled"):
        code = spark.pack_code()
    if code is None:  # Plain code is asked for by the environment, or the process looked before there was any.
        choice.forget()
        code = spark.pack_code()
    assert code is not None
    return code


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which nothing was compiled: no folder is known but one below this, still empty."""
    for name in (cache.FOLDER_VARIABLE, "XDG_CACHE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(cache.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(choice, "_PROCESS", type(choice._PROCESS)())
    monkeypatch.setenv(choice.VARIABLE, "off")
    assert cache.find_ready() is None
    return tmp_path


def test_code_is_stored_once(packed: PackedCode, empty_cache: Path) -> None:
    assert not choice.is_ready()
    assert spark.unpack_code(pickle.loads(pickle.dumps(packed)))
    assert choice.is_ready()
    folder = cache.find_ready()
    assert folder is not None
    assert folder.startswith(str(empty_cache))
    assert {path.name for path in Path(folder).iterdir()} == {*(name for name, _ in packed.files), "ready"}
    assert not spark.unpack_code(packed), "it is there"


def test_code_for_another_processor_is_ignored(packed: PackedCode, empty_cache: Path) -> None:
    assert not spark.unpack_code(replace(packed, key="0" * 32))
    assert not spark.unpack_code(None)
    assert cache.find_ready() is None


def test_names_do_not_lead_out_of_the_folder(packed: PackedCode, empty_cache: Path) -> None:
    first, *others = packed.files
    assert spark.unpack_code(replace(packed, files=(("../../" + first[0], first[1]), *others)))
    assert not [path for path in empty_cache.rglob(first[0]) if path.parent.name != packed.key]


def test_code_that_others_may_write_is_not_stored(packed: PackedCode, empty_cache: Path) -> None:
    for name in (cache.FOLDER_VARIABLE, "XDG_CACHE_HOME"):
        (empty_cache / name / "lakebed-kernels" / packed.key).mkdir(parents=True)
        (empty_cache / name / "lakebed-kernels" / packed.key).chmod(0o777)
    (empty_cache / f"lakebed-{os.getuid()}").write_bytes(b"")
    assert not spark.unpack_code(packed)
    assert cache.find_ready() is None


def test_nothing_is_shipped_where_plain_code_is_asked_for(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(choice.VARIABLE, "plain")
    assert spark.pack_code() is None


@pytest.mark.spark
def test_workers_with_an_empty_cache(packed: PackedCode, tmp_path: Path) -> None:
    folder = tmp_path / "executor"
    folder.mkdir(mode=0o700)
    places = {cache.FOLDER_VARIABLE: folder / "numba", "XDG_CACHE_HOME": folder / "cache", "HOME": folder}
    options = {f"spark.executorEnv.{name}": str(value) for name, value in places.items()}
    options |= {"spark.executorEnv.TMPDIR": str(folder), "spark.ui.enabled": "false", "spark.executor.memory": "512m"}
    path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    options["spark.executorEnv.PYTHONPATH"] = path
    env = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", JOB, json.dumps(options)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == 4
    for result in results:
        assert result["module"] == "lakebed.kernels.compiled.sharding"
        assert result["compilations"] == 0
        assert result["folder"].startswith(str(folder))
