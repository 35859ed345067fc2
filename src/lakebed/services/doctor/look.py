"""Reads everything that the doctor examines; writes nothing.

The order of reads matters, because others may write meanwhile. An instant has a heartbeat from before its request until
after its completion, and its markers and tickets are removed before the heartbeat. So instants are listed before and
after the heartbeats: one that is pending both times and alive had a heartbeat in between. Markers and tickets are
listed after the heartbeats: old ones whose instant has no heartbeat have no owner.

Ages are measured by the clock of this machine, because reading the store's clock means writing a file. Repairs use the
store's clock, under the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from lakebed.errors import CorruptTableError, LakebedError
from lakebed.format.file_names import encode_instant_name
from lakebed.format.timeline.metadata import decode_index_plan
from lakebed.format.timeline.plans import decode_clean_plan, decode_restore_plan, decode_rollback_plan
from lakebed.metadata import MetadataTable
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.services.indexing.definitions import defined_state
from lakebed.storage import Listed, Storage
from lakebed.storage.port import TICKETS, decode_ticket
from lakebed.table import TableHandle, TableState
from lakebed.table.definitions import load_definitions, undefined_indexes
from lakebed.timeline import Timeline
from lakebed.timeline.config import BACKUP, PROPERTIES, decode_config
from lakebed.timeline.timeline import list_instants, load_timeline
from lakebed.transaction.heartbeats import FOLDER as HEARTBEATS
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.index_plans import PendingPlan
from lakebed.transaction.leases import FOLDER as LEASES
from lakebed.transaction.locks.file_system import LOCK_FILE as HUDI_LOCK_FILE
from lakebed.transaction.locks.lease import LOCK_FILE as LEASE_FILE
from lakebed.transaction.locks.lease import Lease, decode_lease
from lakebed.transaction.markers import FOLDER as MARKERS
from lakebed.transaction.pending import planned_groups
from lakebed.transaction.plans import CANCELLED, SERVICES, can_be_removed
from lakebed.transaction.section import METADATA, instant_path
from lakebed.write.handover import StagedRows, list_staged

Times = Mapping[str, datetime]
"""Last modification times of files, by name or path."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of an examination, and the timeouts of the table."""

    now: datetime
    timing: Timing

    def is_dead(self, modified: datetime) -> bool:
        """Whether a heartbeat of that age has stopped."""
        return self.now - modified > self.timing.dead_after

    def is_overdue(self, modified: datetime) -> bool:
        """Whether a plan of that age should have been executed."""
        return self.now - modified > timedelta(seconds=self.timing.service_delay_seconds)


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The configuration file and its backup: what is wrong with each (None: nothing), and whether they exist."""

    problem: str | None
    backup_problem: str | None
    has_file: bool
    has_backup: bool
    backup_is_old: bool = False


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Files beside the timeline: of writes by instant, of readers by lease name."""

    heartbeats: Times
    tickets: frozenset[str]
    markers: Times
    cancelled: Times
    leases: Times
    staged: Mapping[str, StagedRows] = field(default_factory=dict)
    """Rows staged by saves, by folder."""
    staged_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size in bytes of rows staged by writes, by instant."""


@dataclass(frozen=True, slots=True)
class Locks:
    """Lock files: a lease that was not released, and the age of Hudi's lock file.

    `problem` says why a lease cannot be read.
    """

    lease: Lease | None = None
    problem: str | None = None
    file_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans of pending instants, by instant.

    `targets` are those of rollbacks and restores, `groups` the numbers of file groups that services claim, `builds`
    the plans of indexes, `cleaned` the files that cleans will delete. `unreadable` has the problems of plans that
    cannot be read.
    """

    targets: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    removable: frozenset[str] = frozenset()
    builds: Mapping[str, PendingPlan] = field(default_factory=dict)
    cleaned: frozenset[str] = frozenset()
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Definitions:
    """What is wrong with index definitions, if anything, and indexes whose definition cannot be derived completely.

    The `undefined` ones are missing in a definitions file that is readable.
    """

    problem: str | None = None
    unknown: tuple[str, ...] = ()
    without_window: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything read. `pending` are the instants that were pending before and after heartbeats were listed."""

    moment: Moment
    state: TableState
    pending: tuple[Instant, ...]
    plans: Plans
    written: Times
    metadata_timeline: Timeline
    metadata_written: Times
    metadata: MetadataTable | None
    metadata_problem: str | None
    leftovers: Leftovers
    locks: Locks
    definitions: Definitions

    @property
    def config(self) -> TableConfig:
        """The table's configuration."""
        return self.state.config

    def is_alive(self, instant: str) -> bool:
        """Whether the heartbeat of an instant is live."""
        beat = self.leftovers.heartbeats.get(instant)
        return beat is not None and not self.moment.is_dead(beat)


def look_at_config(storage: Storage, moment: Moment) -> ConfigFiles:
    """The configuration file and its backup."""
    found = {listed.path: listed.modified for listed in storage.list(".hoodie")}
    return ConfigFiles(
        _config_problem(storage, PROPERTIES),
        _config_problem(storage, BACKUP),
        PROPERTIES in found,
        BACKUP in found,
        BACKUP in found and moment.is_dead(found[BACKUP]),
    )


def _config_problem(storage: Storage, path: str) -> str | None:
    data = storage.find(path)
    if data is None:
        return "it is not there"
    try:
        decode_config(data, path)
    except CorruptTableError as error:
        return error.what
    return None


def take_look(storage: Storage, config: TableConfig, moment: Moment) -> Examination:
    """Reads a table whose configuration is intact."""
    first = list_instants(storage, config)
    heartbeats = by_name(storage.list(HEARTBEATS))
    state, definitions = _defined(TableHandle(storage, config).state())
    seen = {i.requested_at for i in Timeline.of(first).pending()}
    pending = tuple(i for i in state.timeline.pending() if i.requested_at in seen)
    metadata, problem = _metadata(state)
    return Examination(
        moment=moment,
        state=state,
        pending=pending,
        plans=_plans(storage, config, state.timeline.pending()),
        written=by_name(storage.list(config.timeline_path)),
        metadata_timeline=load_timeline(storage, config, METADATA),
        metadata_written=by_name(storage.list(f"{METADATA}{config.timeline_path}")),
        metadata=metadata,
        metadata_problem=problem,
        leftovers=look_at_leftovers(storage, heartbeats),
        locks=_locks(storage),
        definitions=definitions,
    )


def _defined(state: TableState) -> tuple[TableState, Definitions]:
    """The table with stored or derived definitions, and problems of the stored ones."""
    if not state.config.metadata_partitions:
        return state, Definitions()
    try:
        found, derived, error = defined_state(state)
    except LakebedError:  # The metadata table cannot be read, which is reported next.
        problem = _definitions_problem(state)
        return state if problem is None else state.with_definitions({}), Definitions(problem)
    if error is None:
        return found, Definitions(undefined=undefined_indexes(state.config, derived.definitions))
    return found, Definitions(error.what, derived.unknown, derived.without_window)


def _definitions_problem(state: TableState) -> str | None:
    try:
        load_definitions(state.storage, state.config)
    except CorruptTableError as error:
        return error.what
    return None


def _metadata(state: TableState) -> tuple[MetadataTable | None, str | None]:
    """The metadata table, or why it cannot be used although the configuration names indexes."""
    if not state.config.metadata_partitions:
        return None, None
    try:
        found = state.metadata
    except CorruptTableError as error:
        return None, error.what
    return (found, None) if isinstance(found, MetadataTable) else (None, found.reason)


def _plans(storage: Storage, config: TableConfig, pending: Iterable[Instant]) -> Plans:
    targets: dict[str, str] = {}
    groups: dict[str, int] = {}
    builds: dict[str, PendingPlan] = {}
    removable: set[str] = set()
    cleaned: set[str] = set()
    unreadable: dict[str, str] = {}
    for instant in pending:
        time, path = instant.requested_at, instant_path(config, replace(instant, state=State.REQUESTED))
        try:
            if instant.action is Action.ROLLBACK:
                targets[time] = decode_rollback_plan(storage.get(path), path=path).target.requested_at
            elif instant.action is Action.RESTORE:
                targets[time] = decode_restore_plan(storage.get(path), path=path).target
            elif instant.action is Action.CLEAN:
                files = decode_clean_plan(storage.get(path), path=path).files
                cleaned.update(path_of(partition, name) for partition, names in files.items() for name in names)
            elif instant.action is Action.INDEXING:
                builds[time] = PendingPlan(instant, decode_index_plan(storage.get(path), path=path))
            elif instant.action in SERVICES:
                groups[time] = len(planned_groups(storage, config, instant))
                removable.update([time] if can_be_removed(storage, config, instant) else [])
        except CorruptTableError as error:
            unreadable[time] = error.what
    return Plans(targets, groups, frozenset(removable), builds, frozenset(cleaned), unreadable)


def path_of(partition: str, name: str) -> str:
    """The path of a file in a partition."""
    return f"{partition}/{name}" if partition else name


def look_at_leftovers(storage: Storage, heartbeats: Times) -> Leftovers:
    """Files beside the timeline; `heartbeats` were listed before."""
    markers: dict[str, datetime] = {}
    staged_bytes: dict[str, int] = {}
    staged = list_staged(storage)
    for listed in storage.list(MARKERS, recursive=True):
        instant = listed.path.removeprefix(f"{MARKERS}/").partition("/")[0]
        if f"{MARKERS}/{instant}" in staged:
            continue
        markers[instant] = max(listed.modified, markers.get(instant, listed.modified))
        if listed.path.endswith(".arrow"):
            staged_bytes[instant] = staged_bytes.get(instant, 0) + listed.size
    cancelled, leases = by_name(storage.list(CANCELLED)), by_name(storage.list(LEASES))
    return Leftovers(heartbeats, _tickets(storage), markers, cancelled, leases, staged, staged_bytes)


def _tickets(storage: Storage) -> frozenset[str]:
    """Instants with live tickets, which are folders on a local disk and objects elsewhere."""
    paths = (*storage.list_folders(TICKETS), *(listed.path for listed in storage.list(TICKETS)))
    tickets = (decode_ticket(path.rpartition("/")[2]) for path in paths)
    return frozenset(ticket.instant for ticket in tickets if ticket is not None)


def _locks(storage: Storage) -> Locks:
    files = {listed.path: listed.modified for listed in storage.list(".hoodie")}
    since, data = files.get(HUDI_LOCK_FILE), storage.find(LEASE_FILE)
    if data is None:
        return Locks(file_since=since)
    try:
        lease = decode_lease(data)
    except CorruptTableError as error:
        return Locks(problem=error.what, file_since=since)
    return Locks(None if lease.expired else lease, file_since=since)


def written_at(times: Times, config: TableConfig, instant: Instant) -> datetime:
    """When the current file of an instant was written; long ago if it is gone."""
    long_ago = datetime.min.replace(tzinfo=timezone.utc)
    return times.get(encode_instant_name(instant, layout=config.timeline_layout), long_ago)


def by_name(files: Iterable[Listed]) -> dict[str, datetime]:
    """Modification times of files, by name."""
    return {listed.path.rpartition("/")[2]: listed.modified for listed in files}
