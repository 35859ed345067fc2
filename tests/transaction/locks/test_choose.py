from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lakebed.errors import InvalidInputError
from lakebed.storage import open_storage
from lakebed.transaction.locks import LockOptions, choose_lock, parse_lock_options
from lakebed.transaction.locks.choose import implicit_path
from lakebed.transaction.locks.file_system import HudiFileLock
from lakebed.transaction.locks.lease import StorageLease
from lakebed.transaction.locks.local import InProcessLock, LocalLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.locks.zookeeper import ZooKeeperLock
from transaction.locks.fakes import FakeBackground, FakeClock, tokens

PACKAGE = "org.apache.hudi.client.transaction.lock."
LOCK = "hoodie.write.lock."


@pytest.fixture
def kazoo(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for the library; what it was asked to connect to."""
    asked: list[dict[str, Any]] = []

    def connector(hosts: str, **timeouts: float) -> None:
        asked.append({"hosts": hosts, **timeouts})

    monkeypatch.setattr("lakebed.transaction.locks.choose.connector", connector)
    return asked


def choose(url: str | Path, options: dict[str, str] | None = None) -> Any:
    return choose_lock(open_storage(url), options or {}, FakeClock(), FakeBackground(), tokens())


@pytest.mark.parametrize(
    ("url", "provider", "kind"),
    [
        ("/data/orders", None, LocalLock),
        ("file:///data/orders", None, LocalLock),
        ("memory://orders", None, StorageLease),
        ("s3://bucket/orders", None, StorageLease),
        ("/data/orders", "StorageBasedLockProvider", StorageLease),
        ("/data/orders", PACKAGE + "StorageBasedLockProvider", StorageLease),
        ("s3://bucket/orders", PACKAGE + "StorageBasedLockProvider", StorageLease),
        ("/data/orders", PACKAGE + "FileSystemBasedLockProvider", HudiFileLock),
        ("/data/orders", PACKAGE + "InProcessLockProvider", InProcessLock),
        ("s3://bucket/orders", PACKAGE + "InProcessLockProvider", InProcessLock),
    ],
)
def test_the_lock_goes_by_provider_and_place(url: str, provider: str | None, kind: type) -> None:
    assert type(choose(url, {} if provider is None else {LOCK + "provider": provider})) is kind


@pytest.mark.parametrize(
    "provider",
    [
        "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
        PACKAGE + "NoopLockProvider",
        "com.example.ZookeeperBasedLockProvider",
    ],
)
def test_an_unsupported_provider_is_refused(provider: str) -> None:
    with pytest.raises(InvalidInputError, match="StorageBasedLockProvider") as caught:
        choose("/data/orders", {LOCK + "provider": provider})
    assert provider in caught.value.what


def test_a_lock_file_in_an_object_store_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="StorageBasedLockProvider"):
        choose("memory://orders", {LOCK + "provider": PACKAGE + "FileSystemBasedLockProvider"})


@pytest.mark.parametrize(
    ("folder", "file"),
    [(None, "orders/.hoodie/lock"), ("{root}/orders/.hoodie/.aux", "orders/.hoodie/.aux/lock"), ("{root}/x", "x/lock")],
)
def test_the_folder_of_the_lock_file(tmp_path: Path, folder: str | None, file: str) -> None:
    options = {LOCK + "provider": PACKAGE + "FileSystemBasedLockProvider"}
    if folder:
        options[LOCK + "filesystem.path"] = folder.format(root=tmp_path)
    lock = choose(tmp_path / "orders", options)
    lock.acquire()
    assert (tmp_path / file).is_file()
    lock.release()
    assert not (tmp_path / file).exists()


ZOOKEEPER = {
    LOCK + "provider": PACKAGE + "ZookeeperBasedLockProvider",
    LOCK + "zookeeper.url": "zk1:2181,zk2:2181",
    LOCK + "zookeeper.base_path": "/hudi/locks",
    LOCK + "zookeeper.lock_key": "orders",
}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, "/hudi/locks/orders"),
        ({LOCK + "zookeeper.base_path": "/hudi//locks/"}, "/hudi/locks/orders"),
        ({LOCK + "zookeeper.lock_key": "", "hoodie.table.name": "t"}, "/hudi/locks/t"),
        ({LOCK + "provider": PACKAGE + "ZookeeperBasedImplicitBasePathLockProvider"}, "/tmp/45205BCC2F82AB53/lock_key"),
    ],
)
def test_the_path_in_zookeeper(kazoo: list[dict[str, Any]], changes: dict[str, str], path: str) -> None:
    lock = choose("s3a://b/t", {**ZOOKEEPER, **changes})
    assert type(lock) is ZooKeeperLock
    assert lock._path == path
    assert kazoo == [{"hosts": "zk1:2181,zk2:2181", "session_s": 60, "connection_s": 15}]


@pytest.mark.parametrize(
    ("base_path", "name"),
    [
        ("s3a://b/t", "45205BCC2F82AB53"),
        ("s3://b/t", "45205BCC2F82AB53"),
        ("s3://b/t/", "36CF872FFEE0062C"),
        ("/tmp/x", "11A474BD7A470A85"),
    ],
)
def test_the_implicit_path_is_that_of_apache_hudi(base_path: str, name: str) -> None:
    assert implicit_path(base_path) == f"/tmp/{name}/lock_key"


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({LOCK + "zookeeper.url": ""}, "zookeeper.url"),
        ({LOCK + "zookeeper.base_path": ""}, "zookeeper.base_path"),
        ({LOCK + "zookeeper.lock_key": ""}, "zookeeper.lock_key"),
        ({LOCK + "zookeeper.url": "zk1", LOCK + "zookeeper.port": "2182"}, "host:2182"),
    ],
)
def test_a_place_in_zookeeper_that_is_not_said_is_asked_for(
    kazoo: list[dict[str, Any]], changes: dict[str, str], hint: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        choose("/data/orders", {**ZOOKEEPER, **changes})
    assert hint in caught.value.hint


@pytest.mark.parametrize("changes", [{"port": "2181"}, {"url": "zk1:2182", "port": "2182"}], ids=str)
def test_a_port_that_agrees_is_fine(kazoo: list[dict[str, Any]], changes: dict[str, str]) -> None:
    choose("/data/orders", {**ZOOKEEPER, **{f"{LOCK}zookeeper.{key}": value for key, value in changes.items()}})
    assert len(kazoo) == 1


def test_the_defaults_are_those_of_apache_hudi() -> None:
    options = parse_lock_options({"hoodie.metadata.enable": "true", LOCK + "unheard.of": "x"})
    assert options == LockOptions()
    assert options.patience == Patience(wait_s=51 * 60 + 50 * 5, pause_s=1)
    assert (options.lease_s, options.renew_s) == (300, None)


def test_options_are_read() -> None:
    options = parse_lock_options(
        {
            LOCK + "wait_time_ms": "2000",
            LOCK + "client.num_retries": " 3 ",
            LOCK + "client.wait_time_ms_between_retry": "0",
            LOCK + "wait_time_ms_between_retry": "250",
            LOCK + "storage.validity.timeout.secs": "60",
            LOCK + "storage.heartbeat.poll.secs": "6",
            LOCK + "filesystem.expire": "2",
        }
    )
    assert options.patience == Patience(wait_s=8, pause_s=0.25)
    assert (options.lease_s, options.renew_s, options.file_expire_minutes) == (60, 6, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("wait_time_ms", "soon"),
        ("wait_time_ms", "-1"),
        ("wait_time_ms", "1.5"),
        ("wait_time_ms", "9" * 4301),
        ("client.num_retries", "٣"),
        ("wait_time_ms_between_retry", "0"),
        ("storage.validity.timeout.secs", "14"),
        ("zookeeper.session_timeout_ms", "15999"),
        ("storage.renew.interval.secs", "0"),
        ("storage.renew.interval.secs", "31"),
        ("filesystem.expire", ""),
    ],
)
def test_a_bad_value_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_lock_options({LOCK + key: value})


def test_options_reach_the_lease() -> None:
    lock = choose("memory://reach", {LOCK + "storage.validity.timeout.secs": "60"})
    lock.acquire()
    assert lock.remaining() == 59.5
    assert [seconds for seconds, _ in lock._background.tasks] == [6]


def test_nothing_is_asked_of_the_store() -> None:
    storage = SimpleNamespace(url="s3://bucket/orders")
    choose_lock(storage, {}, FakeClock(), FakeBackground(), tokens())  # type: ignore[arg-type]
