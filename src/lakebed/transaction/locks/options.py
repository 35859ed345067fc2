"""The `hoodie.write.lock.*` options that lakebed takes, with Apache Hudi's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.option_values import numbers, parse_value
from lakebed.transaction.locks.waiting import Patience

_PREFIX = "hoodie.write.lock."
_MOST = 10**12 - 1


def _text(key: str) -> Any:
    return field(default=None, metadata={"hoodie": (key,)})


def _number(default: int | None, *keys: str, least: int = 0) -> Any:
    return field(default=default, metadata={"hoodie": keys, "least": least})


@dataclass(frozen=True, slots=True, kw_only=True)
class LockOptions:
    """How to lock a table."""

    provider: str | None = _text(_PREFIX + "provider")
    wait_ms: int = _number(60_000, _PREFIX + "wait_time_ms")
    pause_ms: int = _number(1000, _PREFIX + "wait_time_ms_between_retry", least=1)
    rounds_more: int = _number(50, _PREFIX + "client.num_retries")
    round_pause_ms: int = _number(5000, _PREFIX + "client.wait_time_ms_between_retry")
    # Shorter ones would never last for a section: it wants ten seconds, and clocks and renewals need some more.
    lease_s: int = _number(300, _PREFIX + "storage.validity.timeout.secs", least=15)
    renew_s: int | None = _number(
        None, _PREFIX + "storage.renew.interval.secs", _PREFIX + "storage.heartbeat.poll.secs", least=1
    )
    file_folder: str | None = _text(_PREFIX + "filesystem.path")
    file_expire_minutes: int = _number(0, _PREFIX + "filesystem.expire")
    zookeeper_hosts: str | None = _text(_PREFIX + "zookeeper.url")
    zookeeper_port: int | None = _number(None, _PREFIX + "zookeeper.port", least=1)
    zookeeper_base_path: str | None = _text(_PREFIX + "zookeeper.base_path")
    zookeeper_lock_key: str | None = _text(_PREFIX + "zookeeper.lock_key")
    # Of a session two thirds count, see `ZooKeeperLock.remaining`.
    zookeeper_session_ms: int = _number(60_000, _PREFIX + "zookeeper.session_timeout_ms", least=16_000)
    zookeeper_connection_ms: int = _number(15_000, _PREFIX + "zookeeper.connection_timeout_ms", least=1)
    table_name: str | None = _text("hoodie.table.name")
    base_path: str | None = _text("hoodie.base.path")

    def __post_init__(self) -> None:
        if self.renew_s is not None and self.lease_s < 10 * self.renew_s:
            raise InvalidInputError(
                f"a lease of {self.lease_s} s is too short for renewals every {self.renew_s} s",
                hint=f"set {_PREFIX}storage.validity.timeout.secs to ten times the renewal interval, or leave that out",
            )

    @property
    def patience(self) -> Patience:
        """How long to wait: as long as Apache Hudi's lock manager does with the same options."""
        wait_ms = self.wait_ms * (1 + self.rounds_more) + self.round_pause_ms * self.rounds_more
        return Patience(wait_ms / 1000, self.pause_ms / 1000)


def parse_lock_options(options: Mapping[str, str]) -> LockOptions:
    """Lock options from their `hoodie.*` spellings; all others are left alone."""
    given: dict[str, Any] = {}
    for f in fields(LockOptions):
        for key in reversed(f.metadata["hoodie"]):
            if key in options:
                given[f.name] = _value(f, key, str(options[key]).strip())
    return LockOptions(**given)


def _value(f: Field[Any], key: str, text: str) -> object:
    least = f.metadata.get("least")
    return (text or None) if least is None else parse_value(key, text, numbers(least, _MOST))
