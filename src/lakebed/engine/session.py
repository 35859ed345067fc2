"""A local Spark session for any machine with Python: Java is found, workers run our interpreter, all on loopback."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.engine.jvm import ensure_java_home
from lakebed.engine.workers import check_spark
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
