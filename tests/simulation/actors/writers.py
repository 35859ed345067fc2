"""Writers: one write after the other, by the writer that users run."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.errors import CommitUnknownError, CorruptTableError, LakebedError
from lakebed.write.writer import Writer

from ..actor import Actor, once, register
from ..checker import Told, Write
from ..client import Client
from ..table import DuplicateKeyError
from ..writes import SimPlane, SimRequest


def run_writer(client: Client, operations: Iterable[str]) -> None:
    """One write after the other; a write that lost a conflict is not run again."""
    plane = SimPlane(client, stores_prepared=client.setup.committers > 0)
    writer = Writer(client.context.handle, client.transactions, plane, client.log_blocks)
    for operation in operations:
        plane.record, plane.has_stored = None, False
        _write(client, writer, plane, operation)
    client.check_no_timers()


def _write(client: Client, writer: Writer, plane: SimPlane, operation: str) -> None:
    """One write, from begin to its end, whatever that is."""
    try:
        writer.write(SimRequest(operation))
        _tell(client, plane.record, Told.OK)
    except CommitUnknownError:
        client.world.reached["told CommitUnknownError"] += 1
        _tell(client, plane.record, _ask(client, plane.record))
    except (LakebedError, DuplicateKeyError) as error:
        record = plane.record
        # Who could not roll back what others may commit from its prepared value knows nothing.
        may_appear = plane.has_stored and error.__context__ is not None
        _tell(client, record, Told.UNKNOWN if may_appear else Told.FAILED)
        client.world.reached[f"told {type(error).__name__}" if record is not None else "begin gave up"] += 1
        if isinstance(error, CorruptTableError) and record is not None:
            client.invariants.check_may_miss_files(record.instant, record.began, error)
    finally:
        client.invariants.stops_reading(client.process)


def _tell(client: Client, record: Write | None, told: Told) -> None:
    if record is not None:
        record.told, record.answered = told, client.world.scheduler.steps


def _ask(client: Client, record: Write | None) -> Told:
    """What has become of a write whose commit nobody confirmed: it may still appear if it is not there."""
    try:
        assert record is not None
        return Told.OK if client.context.handle.state().latest.completion_of(record.instant) else Told.UNKNOWN  # type: ignore[arg-type]
    except LakebedError:
        return Told.UNKNOWN


register(
    Actor("writer", lambda setup: len(setup.writers), lambda client, n: run_writer(client, client.setup.writers[n]))
)
register(
    Actor(
        "foreign",
        lambda setup: "foreign" in setup.foreigners,
        lambda client, _: run_writer(client, ("upsert", "insert")),
        restarts=once,
        is_foreign=True,
    )
)
