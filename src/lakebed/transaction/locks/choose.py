"""Which lock a table has: by the provider that the options name, else by where the table lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import xxhash

from lakebed.clock import Clock
from lakebed.errors import InvalidInputError
from lakebed.storage import Storage, open_storage
from lakebed.transaction.locks.file_system import LOCK_FILE, HudiFileLock
from lakebed.transaction.locks.kazoo_session import connector
from lakebed.transaction.locks.lease import StorageLease
from lakebed.transaction.locks.local import InProcessLock, LocalLock
from lakebed.transaction.locks.options import LockOptions, parse_lock_options
from lakebed.transaction.locks.zookeeper import ZooKeeperLock
from lakebed.transaction.ports import Background, Lock, Tokens

_PACKAGE = "org.apache.hudi.client.transaction.lock."
_DEFAULT_PORT = 2181
_HASH_SEED = 0xFFFFFFFF_DABADABA


@dataclass(frozen=True, slots=True)
class _Wanted:
    storage: Storage
    options: LockOptions
    clock: Clock
    background: Background
    tokens: Tokens


def choose_lock(
    storage: Storage, options: Mapping[str, str], clock: Clock, background: Background, tokens: Tokens
) -> Lock:
    """The lock of a table; nothing is asked of the store yet.

    `hoodie.write.lock.provider` names one of Apache Hudi's providers; all writers of a table must name the same.
    Without it, a table on a local disk has a lock of the operating system, which other engines do not know of, and
    a table in an object store the lease that Apache Hudi's StorageBasedLockProvider takes too.
    """
    wanted = _Wanted(storage, parse_lock_options(options), clock, background, tokens)
    provider = wanted.options.provider
    if provider is None:
        return _local(wanted) if _is_local(storage) else _lease(wanted)
    make = _PROVIDERS.get(provider.removeprefix(_PACKAGE))
    if make is None:
        raise InvalidInputError(
            f"the option hoodie.write.lock.provider={provider} is not supported",
            hint=f"use one of {', '.join(_PROVIDERS)} (of {_PACKAGE.rstrip('.')}) in all writers of the table",
        )
    return make(wanted)


def _local(wanted: _Wanted) -> Lock:
    return LocalLock(wanted.storage.url, wanted.clock, wanted.options.patience)


def _in_process(wanted: _Wanted) -> Lock:
    return InProcessLock(wanted.storage.url, wanted.clock, wanted.options.patience)


def _lease(wanted: _Wanted) -> Lock:
    return StorageLease(
        wanted.storage,
        wanted.clock,
        wanted.background,
        wanted.tokens,
        lease_s=wanted.options.lease_s,
        renew_s=wanted.options.renew_s,
        patience=wanted.options.patience,
    )


def _file(wanted: _Wanted) -> Lock:
    storage, path = _lock_file(wanted.storage, wanted.options.file_folder)
    if not _is_local(storage):
        raise InvalidInputError(
            f"{storage.url} cannot hold a lock file",
            hint=f"set hoodie.write.lock.provider to {_PACKAGE}StorageBasedLockProvider for tables in object stores",
        )
    return HudiFileLock(
        storage,
        wanted.clock,
        wanted.background,
        wanted.tokens,
        path=path,
        expire_s=wanted.options.file_expire_minutes * 60.0,
        patience=wanted.options.patience,
    )


def _lock_file(table: Storage, folder: str | None) -> tuple[Storage, str]:
    """The storage that the lock file is in, and its path there."""
    if folder is None:
        return table, LOCK_FILE
    own = open_storage(folder)
    if own.url.startswith(f"{table.url}/"):
        return table, f"{own.url[len(table.url) + 1 :]}/lock"
    return own, "lock"


def _is_local(storage: Storage) -> bool:
    return "://" not in storage.url


def _zookeeper(wanted: _Wanted) -> Lock:
    key = wanted.options.zookeeper_lock_key or wanted.options.table_name
    base = wanted.options.zookeeper_base_path
    if key is None or base is None:
        raise InvalidInputError(
            "the path of the lock in ZooKeeper is not set",
            hint="set hoodie.write.lock.zookeeper.base_path and hoodie.write.lock.zookeeper.lock_key",
        )
    return _zookeeper_at(f"{base}/{key}", wanted)


def _zookeeper_implicit(wanted: _Wanted) -> Lock:
    return _zookeeper_at(implicit_path(wanted.options.base_path or wanted.storage.url), wanted)


def _zookeeper_at(path: str, wanted: _Wanted) -> Lock:
    options = wanted.options
    connect = connector(
        _hosts(options),
        session_s=options.zookeeper_session_ms / 1000,
        connection_s=options.zookeeper_connection_ms / 1000,
    )
    # Apache Hudi leaves empty names out, too.
    joined = "/" + "/".join(part for part in path.split("/") if part)
    return ZooKeeperLock(joined, connect, wanted.clock, wanted.tokens, options.patience)


def implicit_path(base_path: str) -> str:
    """Where Apache Hudi has the lock of a table if it is told only the table's base path."""
    same_for_all = "s3" + base_path[3:] if base_path.lower().startswith("s3a://") else base_path
    return f"/tmp/{xxhash.xxh64_hexdigest(same_for_all.encode(), _HASH_SEED).upper()}/lock_key"


def _hosts(options: LockOptions) -> str:
    hosts, port = options.zookeeper_hosts, options.zookeeper_port
    if hosts is None:
        raise InvalidInputError(
            "the address of ZooKeeper is not set", hint="set hoodie.write.lock.zookeeper.url to host:port,host:port,..."
        )
    if port not in (None, _DEFAULT_PORT) and f":{port}" not in hosts:
        # Apache Hudi takes no notice of the port option: the two would lock in different places.
        raise InvalidInputError(
            f"hoodie.write.lock.zookeeper.url is {hosts!r}, which does not name the port {port}",
            hint=f"set it to host:{port}",
        )
    return hosts


_PROVIDERS: Mapping[str, Callable[[_Wanted], Lock]] = {
    "StorageBasedLockProvider": _lease,
    "FileSystemBasedLockProvider": _file,
    "ZookeeperBasedLockProvider": _zookeeper,
    "ZookeeperBasedImplicitBasePathLockProvider": _zookeeper_implicit,
    "InProcessLockProvider": _in_process,
}
