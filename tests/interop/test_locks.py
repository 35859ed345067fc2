"""lakebed and Apache Hudi exclude each other by each of the locks that both know."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from interop.peer import HERE, HOME
from lakebed.clock import SystemClock
from lakebed.engine.engines import Threads
from lakebed.engine.session import find_java_home
from lakebed.errors import LockUnavailableError
from lakebed.storage import open_storage
from lakebed.transaction.locks import choose_lock
from lakebed.transaction.locks.choose import implicit_path
from lakebed.transaction.locks.lease import LOCK_FILE, Lease, StorageLease, decode_lease, encode_lease
from lakebed.transaction.locks.local import LocalLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Lock

pytestmark = pytest.mark.interop

PACKAGE = "org.apache.hudi.client.transaction.lock."
ROUNDS = 25


class HudiLocks:
    """Apache Hudi in a process of its own."""

    def __init__(self, log: Path) -> None:
        (jar,) = sorted(HOME.glob("hudi-spark*.jar"))[-1:]
        python = HOME / "venv" / "bin" / "python"
        settings = {"JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
        with log.open("w") as messages:
            self._process = subprocess.Popen(
                [python, HERE / "hudi_locks.py", jar],
                env={**os.environ, **settings, "PYTHONPATH": ""},
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                text=True,
            )
        assert self._answer() == {"ready": True}, log

    def ask(self, do: str, **request: Any) -> Any:
        self.send(do, **request)
        return self.answer()

    def send(self, do: str, **request: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        answer = self._answer()
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def stop(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError("Apache Hudi ended")


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HudiLocks]:
    peer = HudiLocks(tmp_path_factory.mktemp("hudi-locks") / "log")
    yield peer
    peer.stop()


@dataclass(frozen=True)
class ZooKeeper:
    """A server, and where it listens."""

    address: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper server on loopback, from the jars that come with the peer's Spark."""
    pytest.importorskip("kazoo", reason="the ZooKeeper lock needs kazoo: pip install 'lakebed[zookeeper]'")
    folder = tmp_path_factory.mktemp("zookeeper")
    port = free_port()
    (jars,) = (HOME / "venv").glob("lib/python3*/site-packages/pyspark/jars")
    config = {"dataDir": folder, "clientPortAddress": "127.0.0.1", "clientPort": port, "admin.enableServer": "false"}
    (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    command = [f"{find_java_home()}/bin/java", "-cp", f"{jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain"]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([*command, folder / "zoo.cfg"], cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for(port)
        yield ZooKeeper(f"127.0.0.1:{port}", server)
    finally:
        server.kill()
        server.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    for _ in range(300):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
            probe.sendall(b"srvr")
            if b"Mode" in probe.recv(10_000):
                return
        time.sleep(0.1)
    raise AssertionError("ZooKeeper does not start")


@pytest.fixture(
    params=[
        "StorageBasedLockProvider",
        "FileSystemBasedLockProvider",
        "ZookeeperBasedLockProvider",
        "ZookeeperBasedImplicitBasePathLockProvider",
    ]
)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Options for a table of its own, as both engines take them."""
    found = {
        "hoodie.write.lock.provider": PACKAGE + request.param,
        "hoodie.base.path": str(tmp_path),
        "hoodie.write.lock.wait_time_ms": "100",
        "hoodie.write.lock.client.num_retries": "0",
        "hoodie.write.lock.filesystem.expire": "0",
    }
    if request.param.startswith("Zoo"):
        found["hoodie.write.lock.zookeeper.url"] = request.getfixturevalue("zookeeper").address
        found["hoodie.write.lock.zookeeper.base_path"] = "/hudi/locks"
        found["hoodie.write.lock.zookeeper.lock_key"] = tmp_path.name
    (tmp_path / ".hoodie").mkdir()
    return found


def open_both(hudi: HudiLocks, options: dict[str, str], **changes: str) -> Lock:
    """The lock of lakebed; that of Apache Hudi is named by the table's path."""
    provider = options["hoodie.write.lock.provider"].removeprefix(PACKAGE)
    hudi.ask("open", name=options["hoodie.base.path"], provider=provider, options=options)
    return lakebed_lock({**options, **changes})


def lakebed_lock(options: dict[str, str]) -> Lock:
    numbers = iter(range(10**6))
    storage = open_storage(options["hoodie.base.path"])
    return choose_lock(storage, options, SystemClock(), Threads(), lambda: f"{os.getpid()}x{next(numbers)}")


def test_they_exclude_each_other(hudi: HudiLocks, options: dict[str, str]) -> None:
    name = options["hoodie.base.path"]
    lock = open_both(hudi, options)
    for _ in range(2):
        assert hudi.ask("try_lock", name=name, wait_ms=500)
        with pytest.raises(LockUnavailableError):
            lock.acquire()
        assert lock.remaining() == 0
        hudi.ask("unlock", name=name)
        lock.acquire()
        assert lock.remaining() > 5
        assert not hudi.ask("try_lock", name=name)
        lock.release()
    assert hudi.ask("try_lock", name=name, wait_ms=500)
    hudi.ask("close", name=name)
    lock.acquire()
    lock.release()


def wait_ms(options: dict[str, str]) -> int:
    """How long one attempt of Apache Hudi takes: in ZooKeeper it queues, otherwise it looks and sleeps for long."""
    return 60_000 if "Zookeeper" in options["hoodie.write.lock.provider"] else 1


def test_no_step_is_lost_between_them(hudi: HudiLocks, options: dict[str, str], tmp_path: Path) -> None:
    name, counter = options["hoodie.base.path"], tmp_path / "counter"
    counter.write_text("0")
    patient = {"hoodie.write.lock.wait_time_ms": "60000", "hoodie.write.lock.wait_time_ms_between_retry": "8"}
    lock = open_both(hudi, options, **patient)
    hudi.send("count", name=name, counter=str(counter), rounds=ROUNDS, wait_ms=wait_ms(options))
    for _ in range(ROUNDS):
        lock.acquire()
        number = int(counter.read_text())
        time.sleep(0.001)
        counter.write_text(str(number + 1))
        assert lock.remaining() > 0
        lock.release()
    hudi.answer()
    assert counter.read_text() == str(2 * ROUNDS)
    hudi.ask("close", name=name)


def storage_options(tmp_path: Path) -> dict[str, str]:
    return {
        "hoodie.write.lock.provider": PACKAGE + "StorageBasedLockProvider",
        "hoodie.base.path": str(tmp_path),
        "hoodie.write.lock.storage.validity.timeout.secs": "15",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
        "hoodie.write.lock.wait_time_ms": "0",
        "hoodie.write.lock.client.num_retries": "0",
    }


def test_the_lease_is_spelt_alike(hudi: HudiLocks) -> None:
    for lease in (Lease("a", 1_700_000_000_000), Lease('ü"\\', 0, True)):
        theirs = hudi.ask("lease_bytes", owner=lease.owner, until=lease.valid_until_ms, expired=lease.expired)
        assert theirs.encode() == encode_lease(lease)
        read = hudi.ask("read_lease", text=encode_lease(lease).decode())
        assert read == [lease.owner, lease.valid_until_ms, lease.expired]


def test_apache_hudi_renews_the_lease_that_we_wait_for(hudi: HudiLocks, tmp_path: Path) -> None:
    lock = open_both(hudi, storage_options(tmp_path))
    storage = open_storage(tmp_path)
    assert hudi.ask("try_lock", name=str(tmp_path))
    first = decode_lease(storage.get(LOCK_FILE))
    while decode_lease(storage.get(LOCK_FILE)) == first:
        time.sleep(0.1)
    with pytest.raises(LockUnavailableError):
        lock.acquire()
    hudi.ask("unlock", name=str(tmp_path))
    given_up = decode_lease(storage.get(LOCK_FILE))
    assert (given_up.owner, given_up.expired) == (first.owner, True)


def test_apache_hudi_takes_over_a_lease_that_ran_out(hudi: HudiLocks, tmp_path: Path) -> None:
    class Paused:
        """A process that does not come to its renewals."""

        def later(self, action: Any) -> None:
            action()

        def drain(self) -> None:
            pass

        def every(self, seconds: float, action: Any) -> Any:
            return lambda: None

    storage = open_storage(tmp_path)
    hudi.ask("open", name=str(tmp_path), provider="StorageBasedLockProvider", options=storage_options(tmp_path))
    lock = StorageLease(storage, SystemClock(), Paused(), lambda: "ours", lease_s=1, patience=Patience(0))
    lock.acquire()
    assert not hudi.ask("try_lock", name=str(tmp_path))
    while lock.remaining() > 0:
        time.sleep(0.05)
    assert not hudi.ask("try_lock", name=str(tmp_path)), "the drift between clocks is not over"
    time.sleep(1.1)
    assert hudi.ask("try_lock", name=str(tmp_path))
    lock.release()
    taken = decode_lease(storage.get(LOCK_FILE))
    assert (taken.owner.startswith("hudi-"), taken.expired) == (True, False)
    hudi.ask("close", name=str(tmp_path))


def test_any_closing_client_of_apache_hudi_removes_the_lock_file(hudi: HudiLocks, tmp_path: Path) -> None:
    options = {
        "hoodie.write.lock.provider": PACKAGE + "FileSystemBasedLockProvider",
        "hoodie.base.path": str(tmp_path),
        "hoodie.write.lock.filesystem.expire": "0",
    }
    lock = open_both(hudi, options)
    lock.acquire()
    assert lock.remaining() > 0
    hudi.ask("close", name=str(tmp_path))
    assert lock.remaining() == 0
    lock.release()


def test_the_implicit_path_in_zookeeper_is_the_same(hudi: HudiLocks) -> None:
    for base_path in ("s3a://bucket/t", "s3://bucket/t", "S3A://bucket/t", "/data/t", "file:/data/t", "gs://b/ü"):
        assert hudi.ask("implicit_path", base_path=base_path) == implicit_path(base_path)


def zookeeper_options(address: str) -> dict[str, str]:
    return {
        "hoodie.write.lock.provider": PACKAGE + "ZookeeperBasedLockProvider",
        "hoodie.base.path": "/data/t",
        "hoodie.write.lock.zookeeper.url": address,
        "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
        "hoodie.write.lock.zookeeper.lock_key": "t",
    }


def test_a_zookeeper_that_falls_silent_gives_no_time(zookeeper: ZooKeeper) -> None:
    lock = lakebed_lock(zookeeper_options(zookeeper.address))
    lock.acquire()
    assert lock.remaining() > 10
    zookeeper.process.send_signal(signal.SIGSTOP)
    try:
        assert lock.remaining() == 0
    finally:
        zookeeper.process.send_signal(signal.SIGCONT)
    while lock.remaining() == 0:
        time.sleep(0.1)
    lock.release()


def test_a_zookeeper_that_is_not_there_is_named() -> None:
    pytest.importorskip("kazoo")
    address = f"127.0.0.1:{free_port()}"
    options = {**zookeeper_options(address), "hoodie.write.lock.zookeeper.connection_timeout_ms": "500"}
    with pytest.raises(LockUnavailableError, match=address):
        lakebed_lock(options).acquire()


@pytest.mark.parametrize("version", [6, 9])
def test_our_local_lock_does_not_disturb_apache_hudi(hudi: HudiLocks, tmp_path: Path, version: int) -> None:
    lock = LocalLock(str(tmp_path / "t"), SystemClock(), Patience(0))
    assert hudi.ask("write", path=str(tmp_path / "t"), version=version) == 1
    lock.acquire()
    assert hudi.ask("write", path=str(tmp_path / "t"), version=version) == 1
    lock.release()
