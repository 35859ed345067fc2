"""Repairs findings, with the same calls that writers use.

A repair does not trust the examination: it takes the table's lock and decides again, by the clock of the store. Files
that are deleted here, not by a rollback, are deleted within a section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakebed.engine.engines import InProcess
from lakebed.errors import LakebedError
from lakebed.format.index_definitions import encode_index_definitions
from lakebed.format.timeline.plans import decode_restore_plan
from lakebed.index.upkeep import maintain
from lakebed.metadata import MetadataTable
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.options import parse_index_options, parse_write_options
from lakebed.services.clean.run import delete_files
from lakebed.services.doctor.files import find_stray_files
from lakebed.services.doctor.finding import Finding, Remedy
from lakebed.services.doctor.leftovers import Ended
from lakebed.services.doctor.listing import (
    FoundFile,
    gather_facts,
    gather_metadata_facts,
    list_files,
    list_metadata_table_files,
)
from lakebed.services.doctor.look import Moment, by_name, look_at_config, look_at_leftovers, written_at
from lakebed.services.indexing.definitions import defined_state
from lakebed.services.indexing.drop import drop_index
from lakebed.services.indexing.plans import reclaim
from lakebed.services.indexing.rebuild import build_index
from lakebed.services.indexing.request import parse_request
from lakebed.services.indexing.steps import fresh_state
from lakebed.services.restore import restore
from lakebed.services.table_services import TableServices
from lakebed.services.values import ServiceContext
from lakebed.storage.confirm import delete_file, replace_shared_file
from lakebed.table import TableHandle, TableState
from lakebed.timeline.config import BACKUP, load_config
from lakebed.transaction.config import change_config
from lakebed.transaction.heartbeats import FOLDER as HEARTBEATS
from lakebed.transaction.heartbeats import Timing, storage_time
from lakebed.transaction.leases import leased_points
from lakebed.transaction.locks.choose import choose_lock
from lakebed.transaction.locks.file_system import LOCK_FILE as HUDI_LOCK_FILE
from lakebed.transaction.markers import FOLDER as MARKERS
from lakebed.transaction.markers import drop_markers
from lakebed.transaction.ports import Ports
from lakebed.transaction.rollback import targets_of_rollbacks
from lakebed.transaction.section import Section, revoke_tickets
from lakebed.transaction.transactions import Transactions
from lakebed.write.handover import sweep_rows

_AT_ONCE_OR_NEVER = {"hoodie.write.lock.wait_time_ms": "0", "hoodie.write.lock.client.num_retries": "0"}
"""Lock options: an expired lock can be taken at once, and a lock that was renewed meanwhile is not waited for."""
_AT_ONCE = 1000
"""Number of files deleted between two checks of the lock's lease."""


@dataclass(frozen=True, slots=True)
class Surgery:
    """The table to repair, and the means of repairs."""

    ports: Ports
    timing: Timing
    options: Mapping[str, str]

    @property
    def transactions(self) -> Transactions:
        """Transactions of this process on the table."""
        return Transactions(self.ports, self.timing)

    @property
    def context(self) -> ServiceContext:
        """The context of table services."""
        handle = TableHandle(self.ports.storage, load_config(self.ports.storage))
        return ServiceContext(handle, self.transactions, InProcess(), parse_write_options(self.options))


def repair(surgery: Surgery, findings: Sequence[Finding]) -> dict[Finding, str]:
    """Makes safe repairs; returns problems of findings whose repair failed."""
    problems: dict[Finding, str] = {}
    for remedy in Remedy:
        todo = [finding for finding in findings if finding.remedy is remedy]
        for together, work in _planned(surgery, remedy, todo):
            problem = _try(work)
            problems |= {} if problem is None else dict.fromkeys(together, problem)
    return problems


def _try(work: Callable[[], None]) -> str | None:
    try:
        work()
    except LakebedError as error:
        return f"{error.what}; {error.hint}"
    return None


def _planned(
    surgery: Surgery, remedy: Remedy, todo: list[Finding]
) -> Iterator[tuple[list[Finding], Callable[[], None]]]:
    """The calls to make, with the findings that each of them repairs."""
    if todo and remedy in _FOR_ALL:
        yield todo, partial(_FOR_ALL[remedy], surgery)
    elif remedy in _FOR_EACH:
        yield from (([finding], partial(_FOR_EACH[remedy], surgery, finding.place)) for finding in todo)


def _restore_config(surgery: Surgery) -> None:
    """Restores the configuration from its backup, which the section uses as after a crash during a change.

    An old backup beside an intact file is deleted, as Apache Hudi does before each change.
    """
    storage = surgery.ports.storage
    with surgery.transactions.section() as section:
        if section.config.path == BACKUP:
            change_config(section, {})
        elif look_at_config(storage, _moment(surgery)).backup_is_old:
            section.check_lease()
            delete_file(storage, BACKUP)


def _release(surgery: Surgery, place: str) -> None:
    """Acquires an expired lock, which takes it over, and releases it."""
    ports = surgery.ports
    provider = "FileSystemBased" if place == HUDI_LOCK_FILE else "StorageBased"
    asked = {**parse_write_options(surgery.options).lock, **_AT_ONCE_OR_NEVER}
    asked["hoodie.write.lock.provider"] = f"{provider}LockProvider"
    lock = choose_lock(ports.storage, asked, ports.clock, ports.background, ports.tokens)
    lock.acquire()
    lock.release()


def _restore_definitions(surgery: Surgery) -> None:
    """Rewrites index.json under the lock, then drops indexes that lost their window: they cover no partition."""
    storage = surgery.ports.storage
    table = TableHandle(storage, load_config(storage)).state()
    with surgery.transactions.section() as section:
        _, derived, error = defined_state(fresh_state(table, section))
        if error is not None:
            section.check_lease()
            path = section.config.index_definitions_path
            replace_shared_file(storage, path, encode_index_definitions(derived.definitions))
    for name in derived.without_window:
        drop_index(surgery.transactions, name)


def _finish_restore(surgery: Surgery, instant: str) -> None:
    context = surgery.context
    with context.transactions.section() as section:
        path = section.path(Instant(InstantTime(instant), Action.RESTORE, State.REQUESTED))
        target = InstantTime(decode_restore_plan(section.ports.storage.get(path), path=path).target)
    restore(context, target)


def _roll_back(surgery: Surgery) -> None:
    surgery.transactions.rollbacks.run()
    reclaim(surgery.transactions)


def _delete(surgery: Surgery) -> None:
    """Deletes dead files: folders are listed before the lock is taken, the decision is made under it."""
    storage = surgery.ports.storage
    state = TableHandle(storage, load_config(storage)).state()
    found, inner = list_files(state), list_metadata_table_files(state)
    with surgery.transactions.section() as section:
        section.check_no_restore()
        paths = _dead_files(surgery, section, fresh_state(state, section), found, inner)
        for start in range(0, len(paths), _AT_ONCE):
            section.check_lease()
            delete_files(storage, paths[start : start + _AT_ONCE])


def _dead_files(
    surgery: Surgery,
    section: Section,
    state: TableState,
    found: Mapping[str, FoundFile],
    inner: Mapping[str, FoundFile],
) -> list[str]:
    metadata = state.metadata if isinstance(state.metadata, MetadataTable) else None
    held = held_instants(section)
    facts = gather_facts(state, metadata, found, held)
    inner_facts = gather_metadata_facts(state, section.metadata_timeline, inner, held)
    strays = (*find_stray_files(facts, _moment(surgery)), *find_stray_files(inner_facts, _moment(surgery)))
    return [stray.file.path for stray in strays if stray.is_dead]


def held_instants(section: Section) -> set[str]:
    """Instants that are not over, on both timelines."""
    return _pending(section) | targets_of_rollbacks(section) | section.heartbeats.keys()


def _pending(section: Section) -> set[str]:
    return {i.requested_at for i in (*section.timeline.pending(), *section.metadata_timeline.pending())}


def _clear(surgery: Surgery) -> None:
    """Removes leftovers of ended instants, expired leases, unfinished savepoints, and rows staged by dead saves."""
    storage = surgery.ports.storage
    with surgery.transactions.section() as section:
        section.check_no_restore()
        section.check_lease()
        moment = _moment(surgery)
        left = look_at_leftovers(storage, by_name(storage.list(HEARTBEATS)))
        ended = Ended(_pending(section), left, moment, section.config)
        for folder, _ in ended.markers():
            drop_markers(storage, InstantTime(folder.removeprefix(f"{MARKERS}/")))
        for instant, _ in ended.tickets():
            revoke_tickets(surgery.ports, InstantTime(instant))
        for path, _ in ended.cancellations():
            delete_file(storage, path)
        leased_points(section)
        sweep_rows(section.ports, section.timing)
        written = by_name(storage.list(section.config.timeline_path))
        for pending in section.timeline.pending():
            if pending.action is Action.SAVEPOINT and moment.is_dead(written_at(written, section.config, pending)):
                section.remove(pending)


def _execute(surgery: Surgery, instant: str) -> None:
    TableServices(surgery.context, surgery.options).execute(instant)


def _maintain(surgery: Surgery) -> None:
    maintain(surgery.transactions, InProcess(), parse_write_options(surgery.options).metadata_log_blocks)


def _rebuild(surgery: Surgery, name: str) -> None:
    storage = surgery.ports.storage
    state = TableHandle(storage, load_config(storage)).state()
    request = replace(parse_request(name, None, None, shards=None, on_duplicate="fail", rebuild=True), keeps=True)
    build_index(surgery.transactions, state, request, parse_index_options(surgery.options))


def _moment(surgery: Surgery) -> Moment:
    """Now, by the clock of the store."""
    return Moment(storage_time(surgery.ports), surgery.timing)


_FOR_ALL: Mapping[Remedy, Callable[[Surgery], None]] = {
    Remedy.RESTORE_CONFIG: _restore_config,
    Remedy.RESTORE_DEFINITIONS: _restore_definitions,
    Remedy.ROLL_BACK: _roll_back,
    Remedy.FINISH_INDEXING: _roll_back,
    Remedy.DELETE: _delete,
    Remedy.CLEAR: _clear,
    Remedy.MAINTAIN: _maintain,
}
"""Repairs that treat all their findings at once."""
_FOR_EACH: Mapping[Remedy, Callable[[Surgery, str], None]] = {
    Remedy.RELEASE: _release,
    Remedy.FINISH_RESTORE: _finish_restore,
    Remedy.EXECUTE: _execute,
    Remedy.REBUILD: _rebuild,
}
"""Repairs that are called per finding, with its place."""
