"""Putting an index build on the timeline: one section, after which every commit of lakebed keeps the index up to date.

    1  leftovers           of dead builds are cleared away; an index that is rebuilt is taken out of the configuration
    2  shards              empty, all of them, in files of the instant x that the plan is to have
    3  definition          index.json
    4  plan x              names the index and the number of shards: from here on writers owe it their entries

A crash before 4 leaves files that nobody reads, which the next creation clears away; after it, a plan with a dead
heartbeat, which whoever comes next takes back. A plan without one waits for a process that runs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from lakebed.errors import CorruptTableError, InvalidInputError, LakebedError
from lakebed.format.timeline.metadata import encode_index_plan
from lakebed.index.build import Build, IndexRequest, Scanner
from lakebed.index.kinds import kind_of
from lakebed.index.layout import Planned, ShardLayout, layout_of
from lakebed.index.obliged import find_groups, planned_shards
from lakebed.metadata.bootstrap import create_shards
from lakebed.metadata.shard_writes import SHARD_CODEC, ShardCodec
from lakebed.metadata.table import ROOT
from lakebed.model.commit import IndexedPartition, IndexPlan
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action, State
from lakebed.observe import SILENT, Observer
from lakebed.options import IndexOptions
from lakebed.services.indexing.plans import abort, find_waiting, settle
from lakebed.services.indexing.request import check_request, plan_definition, resting_on
from lakebed.services.indexing.scans import scan_table
from lakebed.services.indexing.steps import (
    check_no_rollback,
    clear_partition,
    fresh_state,
    set_building,
    set_ready,
    store_definition,
)
from lakebed.table import TableState
from lakebed.timeline import Timeline
from lakebed.transaction.attempt import Attempt, begin_attempt, put_in_flight, start_attempt
from lakebed.transaction.heartbeats import Heartbeat
from lakebed.transaction.index_plans import BUILD, ON_DUPLICATE, SHARDS, PendingPlan, plans_of
from lakebed.transaction.leases import start_lease
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.pending import foreign_work
from lakebed.transaction.section import Section
from lakebed.transaction.times import format_time, timeline_zone
from lakebed.transaction.transactions import Transactions


@dataclass(frozen=True, slots=True)
class IndexWork:
    """What it takes to build an index of a table; `codec` makes files of the metadata table, `scan` reads rows.

    `rows` were counted before the section, file by file: under the lock few are left.
    """

    transactions: Transactions
    table: TableState
    options: IndexOptions
    observer: Observer = SILENT
    codec: ShardCodec = SHARD_CODEC
    scan: Scanner = scan_table
    rows: dict[str, int] = field(default_factory=dict)

    def build(self, state: TableState, request: IndexRequest, definition: IndexDefinition | None) -> Build:
        """What an index is built from, with the rows that were counted before."""
        return Build(state, request, definition, self.options, self.scan, self.rows)


@dataclass(frozen=True, slots=True)
class Flight:
    """What began with a build: the lease on the snapshot that it reads; and what `others` were at, of other engines.

    Those may not know of the index. What they begin later finds it marked in the configuration.
    """

    lease: Heartbeat
    others: frozenset[InstantTime]


@dataclass(frozen=True, slots=True)
class Begun:
    """A build in flight: its plan, and what it is built from and into."""

    attempt: Attempt
    plan: PendingPlan
    request: IndexRequest
    definition: IndexDefinition | None
    state: TableState
    planned: Planned
    flight: Flight

    @property
    def build(self) -> InstantTime:
        """The delta commit of the metadata table that builds the partition."""
        instant = self.plan.build_of(self.request.partition)
        assert instant is not None
        return instant


def plan_build(work: IndexWork, request: IndexRequest) -> PendingPlan:
    """Plans a build that any process may run; from here on writers add their entries."""
    if isinstance(work.transactions.ports.lock, InProcessLock):
        raise InvalidInputError(
            "other processes do not see the lock of this table, so none of them can run the build",
            hint="build the index in this process, or use a lock that all share: hoodie.write.lock.provider",
        )
    _count_ahead(work, request)
    with work.transactions.section() as section:
        look = _look(work, section, request)
        attempt = begin_attempt(section, Action.INDEXING)
        with _taken_back_on_failure(section, attempt):
            plan = _schedule(section, attempt, look)
    attempt.leave(work.transactions.ports)
    return plan


def begin_build(work: IndexWork, request: IndexRequest) -> Begun:
    """Plans a build and puts it in flight, in one section."""
    _count_ahead(work, request)
    with work.transactions.section() as section:
        look = _look(work, section, request)
        attempt = begin_attempt(section, Action.INDEXING)
        with _taken_back_on_failure(section, attempt):
            plan = _schedule(section, attempt, look)
            flight = _put_in_flight(section, attempt, request.partition)
    return Begun(attempt, plan, request, look.definition, look.state, look.planned, flight)


def take_up_build(work: IndexWork, partition: str) -> Begun:
    """Puts a planned build in flight. Raises if there is none, or if somebody is at it."""
    with work.transactions.section() as section:
        plan = find_waiting(work.transactions, section, partition)
        check_no_rollback(section)
        state = fresh_state(work.table, section)
        request = IndexRequest(partition, partition, on_duplicate=plan.on_duplicate_of(partition))
        definition = state.definitions.get(partition)
        definition = None if definition is None else definition.as_finished()
        source = kind_of(partition).plan_shards(work.build(state, request, definition)).source
        planned = Planned(_made_layout(section, state, partition), source)
        attempt = start_attempt(section, plan.instant.requested_at, Action.INDEXING)
        with attempt.given_up_on_failure():
            flight = _put_in_flight(section, attempt, partition)
    return Begun(attempt, plan, request, definition, state, planned, flight)


def _made_layout(section: Section, state: TableState, partition: str) -> ShardLayout:
    """The shards that a plan made, and those that writers added since."""
    storage = section.ports.storage
    made = planned_shards(storage, section.config, section.timeline).get(partition)
    file_ids = find_groups(storage, partition, (), made)
    layout = None if file_ids is None else layout_of(file_ids, state.files)
    definition = state.definitions.get(partition)
    window = definition.window if definition is not None else None
    if layout is None or any(p not in layout.shards for p in state.files if window is None or window.holds(p)):
        raise CorruptTableError(
            "a shard is missing", path=f"{ROOT}{partition}", hint=f"drop the index {partition}, then create it again"
        )
    return layout


@dataclass(frozen=True, slots=True)
class _Look:
    """What a section finds and decides before it plans a build."""

    request: IndexRequest
    state: TableState
    definition: IndexDefinition | None
    planned: Planned


def _count_ahead(work: IndexWork, request: IndexRequest) -> None:
    """Counts rows without the lock, as far as planning needs them."""
    with suppress(LakebedError):  # Whatever is wrong with the request is told in the section.
        check_request(work.table, request)
        definition = plan_definition(work.table, request, work.options)
        kind_of(request.partition).plan_shards(work.build(work.table, request, definition))


def _look(work: IndexWork, section: Section, request: IndexRequest) -> _Look:
    settle(work.transactions, section, request.partition)
    check_no_rollback(section)
    state = fresh_state(work.table, section)
    check_request(state, request)
    definition = plan_definition(state, request, work.options)
    planned = kind_of(request.partition).plan_shards(work.build(state, request, definition))
    return _Look(request, state, definition, planned)


def _put_in_flight(section: Section, attempt: Attempt, partition: str) -> Flight:
    """Begins the build, and leases the snapshot that it reads."""
    put_in_flight(section, attempt)
    section.ports.at("index.D6")
    set_building(section, partition, building=True)
    others = frozenset(foreign_work(section))
    lease = start_lease(section.ports, section.timing, section.timeline.last_completed_at or attempt.instant)
    return Flight(lease, others)


@contextmanager
def _taken_back_on_failure(section: Section, attempt: Attempt) -> Iterator[None]:
    try:
        yield
    except BaseException:
        attempt.heartbeat.rest()
        with suppress(LakebedError):
            for plan in plans_of(section):
                if plan.instant.requested_at == attempt.instant:
                    abort(section, plan)
            attempt.leave(section.ports)
        raise


def _schedule(section: Section, attempt: Attempt, look: _Look) -> PendingPlan:
    partition, definition, file_ids = look.request.partition, look.definition, look.planned.layout.file_ids
    section.take_on(attempt.instant, own=attempt.ticket)
    section.fence(attempt.ticket)
    section.ports.at("index.D3")
    _take_out(section, (partition, *resting_on(partition)))
    clear_partition(section, partition)
    # Under the time of the plan, as Apache Hudi builds, and without a delta commit as yet: its writers undo any that is
    # in flight in the metadata table, with all files.
    build = attempt.instant
    date = format_time(section.ports.clock.now_ms(), timeline_zone(section.config))
    create_shards(section.files, partition, file_ids, instant=build, date=date)
    section.ports.at("index.D5")
    if definition is not None:
        is_new = partition not in section.config.lost_partitions
        store_definition(section, partition, definition.as_unfinished() if is_new else definition)
    said = {SHARDS: str(len(file_ids)), BUILD: str(build)}
    if look.request.on_duplicate != "fail":
        said[ON_DUPLICATE] = look.request.on_duplicate
    plan = IndexPlan((IndexedPartition(partition, _newest_of_prefix(section.timeline), said),))
    requested = attempt.in_state(State.REQUESTED)
    section.request(requested, encode_index_plan(plan), attempt.ticket)
    return PendingPlan(requested, plan)


def _newest_of_prefix(timeline: Timeline) -> str:
    """The newest write before which every write has completed; none if there is no such write."""
    pending = [i.requested_at for i in timeline.pending() if i.action.when_completed.changes_data]
    done = (i.requested_at for i in timeline.commits() if not pending or i.requested_at < min(pending))
    return max(done, default="")


def _take_out(section: Section, partitions: Collection[str]) -> None:
    """Before its first file goes the configuration must not name an index, not even as one that is being built."""
    config = section.config
    if not {*config.metadata_partitions, *config.metadata_partitions_inflight}.isdisjoint(partitions):
        unbuilt = [name for name in partitions if name not in config.metadata_partitions]
        set_ready(section, [name for name in config.metadata_partitions if name not in partitions], dropped=unbuilt)
