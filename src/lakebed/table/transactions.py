"""Transactions of this process: the protocol with this machine's clock, threads and randomness, and the table lock."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.clock import SystemClock
from lakebed.engine.engines import Threads
from lakebed.engine.randomness import new_token
from lakebed.storage import Storage
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.choose import choose_lock
from lakebed.transaction.ports import Ports
from lakebed.transaction.transactions import Transactions

_SHARED_SKEW_MS = 200
"""Maximum clock skew, in ms, of machines that share a store; on one machine there is only one clock."""


def open_ports(storage: Storage, lock_options: Mapping[str, str]) -> Ports:
    """The ports of one table for this process."""
    clock, background = SystemClock(), Threads()
    lock = choose_lock(storage, lock_options, clock, background, new_token)
    return Ports(storage, clock, lock, background, new_token)


def choose_timing(ports: Ports, *, heartbeat_ms: int, heartbeat_misses: int, service_delay_minutes: int = 10) -> Timing:
    """Timeouts of the protocol for a table; with clock skew only if other machines can hold its lock."""
    skew_ms = _SHARED_SKEW_MS if ports.lock.can_be_lost else 0
    delay = service_delay_minutes * 60.0
    return Timing(heartbeat_ms / 1000, heartbeat_misses, skew_ms, service_delay_seconds=delay)


def open_transactions(
    ports: Ports, *, heartbeat_ms: int, heartbeat_misses: int, service_delay_minutes: int = 10
) -> Transactions:
    """Transactions of this process on one table."""
    timing = choose_timing(
        ports,
        heartbeat_ms=heartbeat_ms,
        heartbeat_misses=heartbeat_misses,
        service_delay_minutes=service_delay_minutes,
    )
    return Transactions(ports, timing)
