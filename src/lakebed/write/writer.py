"""Writes to one table: begin, plan, declare, execute, prepare, commit. A write that fails leaves nothing visible."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lakebed.commit.commit import commit
from lakebed.engine.engines import shared_threads
from lakebed.errors import CommitUnknownError, LakebedError
from lakebed.metadata.upkeep.maintenance import is_due
from lakebed.model.instant import InstantTime
from lakebed.model.words import State
from lakebed.storage import Requests
from lakebed.table import TableHandle, TableState
from lakebed.timeline import Timeline
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.transactions import Transactions
from lakebed.write.metrics import Phases, read_metrics
from lakebed.write.plane import DataPlane, Request, Written

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: its instant, how many rows, the files that it made, and what it cost.

    `inserted` and `deleted` rows were not there before, or are not there after it. An update that turns out to be older
    than what is stored is not among the `updated` of a copy-on-write table; of a merge-on-read table it is, as only
    readers find that out. `jobs` are Spark jobs; `requests` those of this process to the store, up to the commit.
    `metrics` has milliseconds by phase and, if keys were found through the record index, how many were asked for, were
    found, and what that took.
    """

    instant: InstantTime
    completed_at: InstantTime
    operation: str
    inserted: int
    updated: int
    deleted: int
    files: tuple[str, ...] = field(repr=False)
    jobs: int = 0
    requests: Requests = field(default_factory=Requests, repr=False)
    metrics: Mapping[str, int] = field(default_factory=dict, repr=False)


class Writer:
    """Writes of one process to one table."""

    def __init__(
        self,
        handle: TableHandle,
        transactions: Transactions,
        plane: DataPlane[Any, Any, Any],
        log_blocks: int | None = None,
    ) -> None:
        self._handle, self._transactions, self._plane = handle, transactions, plane
        self._log_blocks = log_blocks
        """Log files of a metadata-table shard from which on they are merged; None: never."""

    def write(self, request: Request) -> WriteResult:
        """Carries out a write, or raises and leaves nothing visible."""
        plane, transactions, counts = self._plane, self._transactions, self._handle.storage.counts
        before, phases = counts.snapshot(), Phases()
        plane.check(self._handle.last_look)
        attempt = transactions.begin(request.operation.action(self._handle.config))
        with undone_on_failure(transactions, attempt), shared_threads():
            state = self._state_of(attempt)
            planned = plane.plan(state, attempt.instant, request)
            phases.end("plan")
            transactions.declare(attempt, planned.declaration)
            written = plane.execute(state, planned)
            phases.end("write")
            prepared = plane.prepare(state, planned, written, phases.milliseconds)
            entries, recheck = plane.entries(state, prepared, written), partial(plane.recheck, state, prepared, written)
            completed_at = commit(transactions, attempt, prepared, entries, check=recheck)
            phases.end("commit")
        result = WriteResult(
            instant=attempt.instant,
            completed_at=completed_at,
            operation=request.operation.name,
            inserted=sum(file.stat.num_inserts for file in written.facts),
            updated=sum(file.stat.num_updates for file in written.facts),
            deleted=sum(file.stat.num_deletes if file.deleted is None else file.deleted for file in written.facts),
            files=tuple(file.stat.path for file in written.facts),
            requests=counts.snapshot() - before,
            metrics=read_metrics(prepared.of_rows[0].extra_metadata) | phases.milliseconds,
        )
        self._look_after(attempt, written)
        return result

    def _state_of(self, attempt: Attempt) -> TableState:
        """The table as the attempt's section left it, without reading it again."""
        if attempt.look is None:
            return self._handle.state()
        return self._handle.state_at(attempt.look, attempt.in_state(State.REQUESTED))

    def _look_after(self, attempt: Attempt, written: Written) -> None:
        """Fills caches and maintains the metadata table. If that fails, the next write does it."""
        look = attempt.look
        assert look is not None, "the attempt has completed"
        timeline = Timeline.of(look.metadata_instants)
        completed_at = timeline.completion_of(attempt.instant)
        if completed_at is not None:
            self._plane.keep(self._handle.storage, written, completed_at)
        is_maintained = bool(look.config.metadata_partitions) and is_due(timeline, self._log_blocks)
        self._handle.state_at(look, is_maintained=is_maintained)
        if is_maintained:
            try:
                self._plane.maintain(self._transactions, written)
            except LakebedError as error:
                _LOG.warning("the metadata table was not maintained: %s", error)


@contextmanager
def undone_on_failure(transactions: Transactions, attempt: Attempt) -> Iterator[None]:
    """Rolls a write back if the body raises, unless its commit may have taken place."""
    try:
        yield
    except CommitUnknownError:
        attempt.heartbeat.rest()  # Nothing may be deleted. If it did not take place, others find it dead.
        raise
    except BaseException:
        transactions.abandon(attempt)
        raise
