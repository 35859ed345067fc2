"""Building an index while writers go on: from a plan in flight to an index that the table names.

    6  in flight           x is put in flight, the configuration marks the index as being built
    7  base files          of the rows of the section's snapshot, without the lock, by the ticket of x
    8  catching up         what engines have written since that do not keep the index up to date (see `catch_up`)
    9  delta commit x      of the metadata table: requested, in flight, completed
   10  configuration       names the index: the moment it is there
   11  plan x              completes: other processes look at the table again

Steps 8 to 11 are one section. A crash before 10 leaves the table without the index, after it with the index; whoever
comes next takes the rest back or finishes it. What fails is taken back at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from lakebed.errors import CommitUnknownError, LakebedError, LockUnavailableError, RolledBackError
from lakebed.format.timeline.metadata import encode_commit, encode_index_commit
from lakebed.index.build import IndexRequest, Target, store_shards
from lakebed.index.extra import next_extra
from lakebed.metadata.table import BUILD_OPERATION, ROOT
from lakebed.model.commit import CommitMetadata, WriteStat, stats_by_partition
from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.observe import Meter
from lakebed.services.indexing.catch_up import CatchUp
from lakebed.services.indexing.plans import abort
from lakebed.services.indexing.schedule import Begun, IndexWork, begin_build
from lakebed.services.indexing.steps import set_ready, store_definition, stored_definitions
from lakebed.storage import Outcome, Storage
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.index_plans import plans_of
from lakebed.transaction.section import Fenced, Section
from lakebed.transaction.transactions import Transactions

_RENEWALS = 3
"""Number of times that a ticket is renewed for one file."""


def build_live(work: IndexWork, request: IndexRequest) -> None:
    """Builds an index of a table that others write to."""
    finish_build(work, begin_build(work, request))


def finish_build(work: IndexWork, begun: Begun) -> None:
    """Does what is left of a build that is in flight: all but the plan."""
    request = begun.request
    try:
        _finish(work, begun, _fill(work, begun))
    except RolledBackError as error:
        begun.attempt.heartbeat.rest()
        raise RolledBackError(
            f"another process presumed the build of {request.partition} dead and took it back",
            hint="run it again; if its process was not paused, set a longer heartbeat interval",
        ) from error
    except CommitUnknownError:
        begun.attempt.heartbeat.rest()
        raise
    except BaseException:
        _give_up(work, begun)
        raise
    finally:
        begun.flight.lease.stop()


def _fill(work: IndexWork, begun: Begun) -> tuple[WriteStat, ...]:
    """Step 7."""
    source, file_ids = begun.planned.source(begun.planned.layout), begun.planned.layout.file_ids
    ordering = begun.definition.ordering if begun.definition is not None else None
    target = Target(
        cast(Storage, _TicketFiles(work.transactions, begun.attempt)),
        begun.request.partition,
        begun.build,
        work.transactions.ports.clock.now_ms(),
        has_ordering=ordering is not None,
        codec=work.codec,
    )
    work.transactions.ports.at("index.D7")
    meter = Meter(begun.request.partition, source.pieces * source.passes + len(file_ids), work.observer)
    return store_shards(target, source, file_ids, meter)


def _finish(work: IndexWork, begun: Begun, stats: tuple[WriteStat, ...]) -> None:
    """Steps 8 to 11."""
    attempt, catch_up = begun.attempt, CatchUp(work, begun)
    catch_up.look()
    while True:
        with work.transactions.section(opens=attempt) as section:
            work.transactions.check_alive(section, attempt)
            if catch_up.is_ready(section):
                section.fence(attempt.ticket)
                catch_up.write(section)
                outcome = _publish(section, begun, stats)
                break
        catch_up.get_ready()
    if outcome is not Outcome.DONE:
        attempt.heartbeat.rest()  # The index is there: whoever comes next completes the plan.
        return
    attempt.leave(work.transactions.ports)


def _publish(section: Section, begun: Begun, stats: tuple[WriteStat, ...]) -> Outcome:
    attempt, partition = begun.attempt, begun.request.partition
    section.ports.at("index.D8")
    for state in (State.REQUESTED, State.INFLIGHT):
        section.add(Instant(begun.build, Action.DELTA_COMMIT, state), root=ROOT)
    extra = next_extra(section, stored_definitions(section), built=partition)
    metadata = CommitMetadata(stats_by_partition(stats), operation=BUILD_OPERATION, extra_metadata=extra)
    done = Instant(begun.build, Action.DELTA_COMMIT, State.COMPLETED, section.next_time())
    outcome = attempt.publish(section, done, encode_commit(metadata, replace=False), ROOT)
    if outcome is Outcome.UNKNOWN:
        raise CommitUnknownError(
            f"the store did not confirm whether {begun.build} completed",
            hint="run the call again: it checks the outcome, and starts over if necessary",
        )
    if outcome is Outcome.REFUSED:
        raise LockUnavailableError(
            f"{section.ports.storage.url}: the table's lock was taken over", hint="run the call again"
        )
    section.ports.at("index.D10")
    set_ready(section, [*section.config.metadata_partitions, partition])
    if begun.definition is not None:
        store_definition(section, partition, begun.definition)
    section.ports.at("index.D10")
    plan = attempt.completed(section.next_time())
    return attempt.publish(section, plan, encode_index_commit(begun.plan.plan))


def _give_up(work: IndexWork, begun: Begun) -> None:
    """Takes back what was built, unless the index is there; if that fails, the next process does it."""
    attempt = begun.attempt
    attempt.heartbeat.rest()
    with suppress(LakebedError):
        with work.transactions.section() as section:
            plan = next((p for p in plans_of(section) if p.instant.requested_at == attempt.instant), None)
            if plan is not None and attempt.heartbeat.is_certain():
                abort(section, plan)
        attempt.leave(work.transactions.ports)


class _TicketFiles:
    """A store that creates files by the ticket of an attempt, and renews a ticket that a takeover of the lock revoked.

    So a build that was taken back cannot leave files that would count in the next one.
    """

    def __init__(self, transactions: Transactions, attempt: Attempt) -> None:
        self._transactions, self._attempt = transactions, attempt
        self._renewing = threading.Lock()

    def create(self, path: str, data: bytes) -> Outcome:
        """Creates a file; raises RolledBackError if the build was taken back."""
        for _ in range(_RENEWALS):
            ticket = self._attempt.ticket
            try:
                return Fenced(self._transactions.ports, ticket).create(path, data)
            except LockUnavailableError:
                with self._renewing:
                    if self._attempt.ticket == ticket:
                        self._renew()
        return Fenced(self._transactions.ports, self._attempt.ticket).create(path, data)

    def create_all(self, files: Mapping[str, bytes]) -> Mapping[str, Outcome]:
        """Creates files, one after the other."""
        return {path: self.create(path, data) for path, data in files.items()}

    def _renew(self) -> None:
        with self._transactions.section() as section:
            self._transactions.check_alive(section, self._attempt)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transactions.ports.storage, name)
