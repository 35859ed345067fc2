"""Apache Hudi's lock providers, driven by lines of JSON: one request in, one answer out.

usage: hudi_locks.py BUNDLE_JAR

Runs on the peer's interpreter (Spark 3.5). {"do": "open", "name": ..., "provider": ..., "options": {...}} makes a
provider; try, unlock, close and count act on it by its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

LOCKS = "org.apache.hudi.client.transaction.lock"


class FolderLockClient:
    """The store that Apache Hudi's storage-based provider swaps its lock file in: a folder of this machine.

    Its own clients speak to S3, GCS and Azure. Like lakebed's local storage, this one compares and renames under a
    lock on the folder, and names a version by the digest of its bytes.
    """

    class Java:
        implements = (f"{LOCKS}.StorageLockClient",)

    def __init__(self, jvm: Any, path: str) -> None:
        self._jvm = jvm
        self._models = jvm.org.apache.hudi.client.transaction.lock.models
        self._file = Path(path)
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def readCurrentLockFile(self) -> Any:  # noqa: N802
        data = self._read()
        if data is None:
            return self._pair(self._models.LockGetResult.NOT_EXISTS, None)
        return self._pair(self._models.LockGetResult.SUCCESS, self._lock_file(data))

    def tryUpsertLockFile(self, new: Any, previous: Any) -> Any:  # noqa: N802
        data = bytes(self._models.StorageLockFile.toByteArray(new))
        expected = previous.get().getVersionId() if previous.isPresent() else None
        if not self._swap(expected, data):
            return self._pair(self._models.LockUpsertResult.ACQUIRED_BY_OTHERS, None)
        return self._pair(self._models.LockUpsertResult.SUCCESS, self._lock_file(data))

    def readObject(self, path: str, check_first: bool) -> Any:  # noqa: N802
        return self._option(None)

    def writeObject(self, path: str, text: str) -> bool:  # noqa: N802
        return False

    def close(self) -> None:
        """Nothing is open."""

    def _swap(self, expected: str | None, data: bytes) -> bool:
        folder = os.open(self._file.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            now = self._read()
            if (None if now is None else _version(now)) != expected:
                return False
            staged = self._file.with_name(f".{os.getpid()}-{time.monotonic_ns()}")
            staged.write_bytes(data)
            if expected is not None:
                staged.replace(self._file)
                return True
            try:
                os.link(staged, self._file)
            except FileExistsError:
                return False
            finally:
                staged.unlink()
            return True
        finally:
            os.close(folder)

    def _read(self) -> bytes | None:
        try:
            return self._file.read_bytes()
        except FileNotFoundError:
            return None

    def _lock_file(self, data: bytes) -> Any:
        stream = self._jvm.java.io.ByteArrayInputStream(data)
        return self._models.StorageLockFile.createFromStream(stream, _version(data))

    def _pair(self, left: Any, right: Any) -> Any:
        return self._jvm.org.apache.hudi.common.util.collection.Pair.of(left, self._option(right))

    def _option(self, value: Any) -> Any:
        return self._jvm.org.apache.hudi.common.util.Option.ofNullable(value)


class Function3:
    """A Python function where Apache Hudi takes one of three arguments."""

    class Java:
        implements = ("org.apache.hudi.common.util.Functions$Function3",)

    def __init__(self, function: Any) -> None:
        self._function = function

    def apply(self, first: Any, second: Any, third: Any) -> Any:
        return self._function(first, second, third)


class Peer:
    """The providers that were opened, and what can be asked of them."""

    def __init__(self, jar: str) -> None:
        spark = SparkSession.builder.master("local[1]").appName("locks")
        for key, value in {
            "spark.driver.extraClassPath": jar,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.ui.enabled": "false",
        }.items():
            spark = spark.config(key, value)
        self._spark = spark.getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        self._gateway = self._spark.sparkContext._gateway
        self._jvm = self._gateway.jvm
        ensure_callback_server_started(self._gateway)
        self._providers: dict[str, Any] = {}

    def open(self, name: str, provider: str, options: dict[str, str]) -> None:
        """A provider made as Apache Hudi's lock manager makes it; the storage-based one with our client."""
        config = self._jvm.org.apache.hudi.common.config
        properties = config.TypedProperties()
        for key, value in options.items():
            properties.setProperty(key, value)
        if provider == "StorageBasedLockProvider":
            self._providers[name] = self._storage_based(properties)
            return
        hadoop = self._spark.sparkContext._jsc.hadoopConfiguration()
        storage = self._jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(hadoop)
        make = getattr(self._jvm.org.apache.hudi.client.transaction.lock, provider)
        self._providers[name] = make(config.LockConfiguration(properties), storage)

    def try_lock(self, name: str, wait_ms: int = 0) -> bool:
        """One attempt. The storage-based provider makes none without a time, the ZooKeeper ones refuse by raising."""
        lock = self._providers[name]
        try:
            return bool(lock.tryLock(max(1, wait_ms), self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS))
        except Py4JJavaError:
            return False

    def unlock(self, name: str) -> None:
        self._providers[name].unlock()

    def close(self, name: str) -> None:
        self._providers.pop(name).close()

    def count(self, name: str, counter: str, rounds: int, wait_ms: int) -> int:
        """Adds to a number in a file, under the lock, so many times; how often the lock was not to be had."""
        refused = 0
        for _ in range(rounds):
            while not self.try_lock(name, wait_ms):
                refused += 1
                time.sleep(0.002)
            add(Path(counter))
            self.unlock(name)
        return refused

    def lease_bytes(self, owner: str, until: int, expired: bool) -> str:
        models = self._jvm.org.apache.hudi.client.transaction.lock.models
        return bytes(models.StorageLockFile.toByteArray(models.StorageLockData(expired, until, owner))).decode()

    def read_lease(self, text: str) -> list[Any]:
        models = self._jvm.org.apache.hudi.client.transaction.lock.models
        stream = self._jvm.java.io.ByteArrayInputStream(text.encode())
        lease = models.StorageLockFile.createFromStream(stream, "v")
        return [lease.getOwner(), lease.getValidUntilMs(), lease.isExpired()]

    def implicit_path(self, base_path: str) -> str:
        provider = self._jvm.org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider
        return f"{provider.getLockBasePath(base_path)}/{provider.LOCK_KEY}"

    def write(self, path: str, version: int) -> int:
        """Writes a row to the table and reads it back: the number of rows."""
        rows = self._spark.createDataFrame([(1, "a")], "id int, v string")
        options = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.write.table.version": str(version),
        }
        rows.write.format("hudi").options(**options).mode("append").save(path)
        return int(self._spark.read.format("hudi").load(path).count())

    def _storage_based(self, properties: Any) -> Any:
        """By the constructor that takes the client, which Apache Hudi keeps for its own tests."""
        kind = self._jvm.java.lang.Class.forName(f"{LOCKS}.StorageBasedLockProvider")
        constructors = [each for each in kind.getDeclaredConstructors() if each.getParameterCount() == 6]
        constructors[0].setAccessible(True)
        manager = self._jvm.org.apache.hudi.client.transaction.lock.models.LockProviderHeartbeatManager
        array = self._gateway.new_array(self._jvm.java.lang.Object, 6)
        given = (
            f"hudi-{len(self._providers)}",
            properties,
            Function3(lambda owner, interval, renew: manager(owner, interval, renew)),
            Function3(lambda owner, path, config: FolderLockClient(self._jvm, path)),
            self._jvm.org.slf4j.LoggerFactory.getLogger("locks"),
        )
        for position, each in enumerate(given):
            self._jvm.java.lang.reflect.Array.set(array, position, each)
        return constructors[0].newInstance(array)


def add(counter: Path) -> None:
    """One more, with a moment for another to come in between if the lock lets it."""
    number = int(counter.read_text())
    time.sleep(0.001)
    counter.write_text(str(number + 1))


def _version(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def main(jar: str) -> None:
    """Answers until there is nothing more to read."""
    peer = Peer(jar)
    print(json.dumps({"ready": True}), flush=True)  # noqa: T201
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(peer, request.pop("do"))(**request)}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
