"""ZooKeeper sessions by the kazoo library, an extra of lakebed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lakebed.errors import InvalidInputError, LockUnavailableError, StorageUnavailableError
from lakebed.transaction.locks.zookeeper import Session

_SERVERS_LONGEST_S = 40.0
"""What a server grants at most unless it is told otherwise; the library does not say what was granted."""
_ANSWER_S = 10.0


def connector(hosts: str, *, session_s: float, connection_s: float) -> Callable[[], Session]:
    """A function that opens a session. InvalidInputError, at once, if the library is not installed."""
    kazoo = _kazoo()

    def connect() -> Session:
        client = kazoo.KazooClient(hosts=hosts, timeout=session_s)
        try:
            client.start(timeout=connection_s)
        except client.handler.timeout_exception as error:
            raise LockUnavailableError(
                f"ZooKeeper at {hosts} does not answer", hint="check hoodie.write.lock.zookeeper.url and the servers"
            ) from error
        return KazooSession(client, min(session_s, _SERVERS_LONGEST_S))

    return connect


class KazooSession:
    """An open session. Calls wait for an answer, but not for ever."""

    __slots__ = ("_client", "_errors", "timeout_s")

    def __init__(self, client: Any, timeout_s: float) -> None:
        self._client = client
        self._errors = importlib.import_module("kazoo.exceptions")
        self.timeout_s = timeout_s

    def children(self, path: str) -> Sequence[str]:
        """The names of the nodes under a path."""
        with self._answered(), suppress(self._errors.NoNodeError):
            return tuple(self._client.get_children_async(path).get(timeout=_ANSWER_S))
        return ()

    def append(self, path: str, prefix: str) -> None:
        """Creates an ephemeral node with the next number."""
        with self._answered():
            created = self._client.create_async(f"{path}/{prefix}", ephemeral=True, sequence=True, makepath=True)
            created.get(timeout=_ANSWER_S)

    def owns(self, path: str) -> bool:
        """Whether the node is there and belongs to this session."""
        with self._answered():
            found = self._client.exists_async(path).get(timeout=_ANSWER_S)
            return found is not None and found.ephemeralOwner == self._client.client_id[0]

    def close(self) -> None:
        """Ends the session."""
        with suppress(self._errors.KazooException):
            self._client.stop()
            self._client.close()

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except (self._errors.KazooException, self._client.handler.timeout_exception) as error:
            raise StorageUnavailableError(
                f"ZooKeeper did not answer ({type(error).__name__})", hint="run it again; check the servers"
            ) from error


def _kazoo() -> Any:
    try:
        return importlib.import_module("kazoo.client")
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "the lock provider ZooKeeper needs the kazoo library", hint="pip install 'lakebed[zookeeper]'"
        ) from error
