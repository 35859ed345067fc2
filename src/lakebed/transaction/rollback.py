"""Rollbacks: scheduled under the lock, executed without it, by any process.

A rollback plan names the instant to undo and the files to delete. Executing it is idempotent, also after a crash half
way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from lakebed.errors import InvalidInputError, LockUnavailableError, StorageUnavailableError, WriteConflictError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.index_definitions import only_widens
from lakebed.format.timeline.metadata import decode_commit, encode_rollback
from lakebed.format.timeline.plans import decode_clean_plan, decode_rollback_plan, encode_rollback_plan
from lakebed.model.commit import CommitMetadata, InstantRef, RollbackMetadata, RollbackPlan, RolledBackPartition
from lakebed.model.files import BaseFile, FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Storage
from lakebed.storage.confirm import delete_file
from lakebed.timeline import Archive, Documents
from lakebed.transaction.archive import finish_archiving
from lakebed.transaction.attempt import Attempt, open_section_of, put_in_flight, start_attempt, taken_over
from lakebed.transaction.heartbeats import FOLDER as HEARTBEATS
from lakebed.transaction.heartbeats import Timing, heartbeat_path
from lakebed.transaction.index_plans import plans_of
from lakebed.transaction.markers import drop_markers, load_markers
from lakebed.transaction.pending import planned_groups
from lakebed.transaction.plans import SERVICES, cancel_marker, is_begun_elsewhere, is_cancelled, is_recent, is_removable
from lakebed.transaction.ports import Ports
from lakebed.transaction.section import METADATA, Section, end_tickets, open_section, revoke_tickets

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_MERGING = (Action.COMMIT, Action.COMPACTION, Action.LOG_COMPACTION)
"""On the metadata table: compactions, planned or done, and log compactions that are planned."""


class Rollbacks:
    """Rollbacks of one table."""

    def __init__(self, ports: Ports, timing: Timing) -> None:
        self._ports = ports
        self._timing = timing

    def run(self) -> tuple[InstantTime, ...]:
        """Rolls back every dead write; returns the instants that were rolled back."""
        with open_section(self._ports, self._timing) as section:
            pending = self.schedule(section)
            self.sweep(section)
        return self.execute_all(pending)

    def schedule(self, section: Section, own: InstantTime | None = None) -> tuple[InstantTime, ...]:
        """R1: plans rollbacks of dead writes, and of `own`, which its owner gives up; returns the pending rollbacks.

        Plans of table services stay, unless they are removable and were cancelled or not executed for some time.
        """
        section.check_no_restore()  # What it has made pending again is for it to undo.
        writes = [i for i in section.timeline.pending() if i.action in _WRITES or self._is_overdue(section, i)]
        planned = targets_of_rollbacks(section) if writes else frozenset()
        for instant in writes:
            if instant.requested_at not in planned and self._is_given_up(section, instant, own):
                self._plan(section, instant)
        return tuple(i.requested_at for i in section.timeline.pending() if i.action is Action.ROLLBACK)

    def schedule_attempt(self, section: Section, plan: Instant) -> InstantTime:
        """Plans the rollback of a dead attempt at a plan, which itself stays; returns the rollback to execute."""
        self._ports.at("rollback.R1")
        return self._plan_files(section, plan)

    def schedule_completed(self, target: InstantTime) -> InstantTime:
        """Plans the rollback of the newest completed write; returns the rollback to execute."""
        with open_section(self._ports, self._timing) as section:
            section.check_no_restore()
            finish_archiving(section)
            instant = _check_can_undo(section, target)
            revoke_tickets(self._ports, target)
            return self._plan_files(section, instant)

    def execute_all(self, rollbacks: Iterable[InstantTime]) -> tuple[InstantTime, ...]:
        """Executes rollbacks; returns the instants undone. One that cannot run now is left to the next process."""
        undone = []
        for rollback in rollbacks:
            with suppress(WriteConflictError, LockUnavailableError, StorageUnavailableError):
                undone.append(self.execute(rollback))
        return tuple(target for target in undone if target is not None)

    def execute(self, rollback: InstantTime) -> InstantTime | None:
        """R2 to R4: executes a rollback; the instant undone, or None if another process executes it or was faster."""
        with open_section(self._ports, self._timing) as section:
            if not _waits(section, rollback):
                return None
            section.check_lease()
            attempt = start_attempt(section, rollback, Action.ROLLBACK)
            with attempt.given_up_on_failure():
                plan = _load_plan(section, rollback)
                stays = _stays(section, plan.target)
                _unpublish(section, plan)
                put_in_flight(section, attempt)
        with attempt.given_up_on_failure():
            self._ports.at("rollback.R2")
            self._delete_files(plan, stays=stays)
            self._finish(attempt, plan)
        return InstantTime(plan.target.requested_at)

    def _delete_files(self, plan: RollbackPlan, *, stays: bool) -> None:
        """Deletes the planned files and, unless the target's plan `stays`, files that markers have named since.

        A plan that stays is executed again: a paused process would find the markers of the next attempt.
        """
        storage, target = self._ports.storage, InstantTime(plan.target.requested_at)
        for path in sorted({*_paths(plan), *(() if stays else load_markers(storage, target))}):
            delete_file(storage, path)
        drop_markers(storage, target)

    def _is_overdue(self, section: Section, plan: Instant) -> bool:
        """Whether a plan is removable and due for removal."""
        if plan.action not in SERVICES or not is_removable(section, plan):
            return False
        if is_cancelled(self._ports.storage, plan.requested_at):
            return True
        return not is_recent(section, plan) and not is_begun_elsewhere(section, plan)

    def _is_given_up(self, section: Section, instant: Instant, own: InstantTime | None) -> bool:
        return instant.requested_at == own or not section.heartbeats.get(instant.requested_at, False)

    def _plan(self, section: Section, instant: Instant) -> None:
        """Plans a rollback. Once tickets are revoked the write cannot complete; if it completed before, it stays."""
        self._ports.at("rollback.R1")
        revoke_tickets(self._ports, instant.requested_at)
        section.forget_timeline()
        if section.timeline.completion_of(instant.requested_at) is None:
            self._plan_files(section, instant)

    def _plan_files(self, section: Section, instant: Instant) -> InstantTime:
        target = InstantRef(instant.requested_at, str(instant.action))
        plan = RollbackPlan(target, files_of(section, instant))
        rollback = Instant(section.next_time(), Action.ROLLBACK, State.REQUESTED)
        section.request(rollback, encode_rollback_plan(plan, table_url=self._ports.storage.url))
        return rollback.requested_at

    def _finish(self, attempt: Attempt, plan: RollbackPlan) -> None:
        target = InstantTime(plan.target.requested_at)
        with open_section_of(self._ports, self._timing, attempt) as section:
            self._ports.at("rollback.R3")
            if not _is_pending(section, attempt.instant) or not attempt.heartbeat.is_certain():
                raise taken_over(attempt.instant)
            if attempt.ticket not in self._ports.storage.find_tickets(attempt.instant):
                attempt.ticket = section.open_ticket(attempt.instant)
            stays = _stays(section, plan.target)
            if not stays:
                # Before anything else: an owner that wakes up now must not find itself alive, nor ever after. Of a plan
                # that is wholly undone, whoever was about to execute it may have a ticket, which ends before its beat.
                revoke_tickets(self._ports, target)
                delete_file(self._ports.storage, heartbeat_path(target))
            undo_metadata(section, target, rollback=attempt)
            _remove_target(section, plan.target, stays=stays)
            document = encode_rollback(_metadata_of(attempt.instant, plan, self._ports.storage.url))
            outcome = attempt.publish(section, attempt.completed(section.next_time()), document)
        if outcome is not Outcome.DONE:
            raise taken_over(attempt.instant)
        self._ports.at("rollback.R4")
        delete_file(self._ports.storage, cancel_marker(target))
        end_tickets(self._ports, attempt.instant)
        attempt.heartbeat.stop()

    def delete_late_files(self, instant: InstantTime) -> None:
        """Deletes files that tasks of a write created after another process had rolled it back, as named by markers.

        If the write has completed after all, only the markers are deleted.
        """
        marked = load_markers(self._ports.storage, instant)
        with open_section(self._ports, self._timing) as section:
            if any(i.requested_at == instant and i.action in _WRITES for i in section.timeline.pending()):
                return
            archive = Archive(self._ports.storage, section.config)
            is_done = section.timeline.completion_of(instant) is not None or bool(archive.completions([instant]))
        for path in () if is_done else sorted(marked):
            delete_file(self._ports.storage, path)
        drop_markers(self._ports.storage, instant)

    def sweep(self, section: Section) -> None:
        """Removes leftovers of dead processes: of completed or never requested instants, and in the metadata table."""
        # A savepoint that is begun shares its time with a write that has completed.
        pending = {i.requested_at for i in section.timeline.pending() if i.action is not Action.SAVEPOINT}
        for instant, is_alive in section.heartbeats.items():
            if not is_alive and instant not in pending:
                drop_markers(self._ports.storage, InstantTime(instant))
                revoke_tickets(self._ports, InstantTime(instant))
                delete_file(self._ports.storage, f"{HEARTBEATS}/{instant}")
        for savepoint in (i for i in section.timeline.pending() if i.action is Action.SAVEPOINT):
            revoke_tickets(self._ports, savepoint.requested_at)  # Made in one section: this one is no longer at work.
        if _ownerless(section):
            for instant in _ownerless(section):
                revoke_tickets(self._ports, instant)
            section.forget_timeline(METADATA)
            for instant in _ownerless(section):
                undo_metadata(section, instant)


def _ownerless(section: Section) -> tuple[InstantTime, ...]:
    """Orphaned delta commits of the metadata table: no instant of the table has their time.

    A writer that lost the lock in the middle of a commit may have written there after it was rolled back. A delta
    commit that builds an index belongs to the pending plan of that index and is left alone, even if its builder is
    dead.
    """
    known = {i.requested_at for i in section.timeline}
    pending = (i for i in section.metadata_timeline.pending() if i.action is Action.DELTA_COMMIT)
    found = [i.requested_at for i in pending if i.requested_at not in known]
    plans = [*plans_of(section)] if found else []
    return tuple(time for time in found if not any(plan.owns(time) for plan in plans))


def targets_of_rollbacks(section: Section) -> frozenset[str]:
    """The instants that pending rollbacks are about to undo."""
    return frozenset(rollbacks_by_target(section))


def rollbacks_by_target(section: Section) -> dict[str, InstantTime]:
    """Pending rollbacks, by the instants that they are about to undo."""
    rollbacks = [i.requested_at for i in section.timeline.pending() if i.action is Action.ROLLBACK]
    return {_load_plan(section, rollback).target.requested_at: rollback for rollback in rollbacks}


def undone_times(section: Section) -> frozenset[str]:
    """The times of all instants that a rollback on the timeline has undone, or is about to.

    A rollback whose archiving was interrupted may have lost its plan; it completed long ago, and is skipped.
    """
    undone = set(targets_of_rollbacks(section))
    for rollback in section.timeline.completed():
        if rollback.action is Action.ROLLBACK:
            path = section.path(Instant(rollback.requested_at, Action.ROLLBACK, State.REQUESTED))
            plan = section.ports.storage.find(path)
            undone |= {decode_rollback_plan(plan, path=path).target.requested_at} if plan is not None else set()
    return frozenset(undone)


def undo_metadata(
    section: Section, target: InstantTime, rollback: Attempt | None = None, *, may_have_strays: bool = False
) -> None:
    """Removes an instant from the metadata table: its completed file first, then its files, then the instant.

    With a `rollback` the metadata table's timeline records it under the rollback's time, as Apache Hudi does. A plan
    that is executed again `may_have_strays`: files of a stale attempt, written after that was rolled back.
    """
    found = [i for i in section.metadata_timeline if i.requested_at == target and i.action in _WRITES]
    is_half_told = rollback is not None and any(
        i.requested_at == rollback.instant for i in section.metadata_timeline.pending()
    )
    if not found and not may_have_strays and not is_half_told:
        return
    files = tuple(_list_files(section.ports.storage, METADATA, target))
    # With the lock held until now, nothing of what was found is of an attempt after this one.
    section.check_lease()
    for instant in found:
        if instant.is_completed:
            section.remove(instant, METADATA)
    for path in files:
        delete_file(section.ports.storage, path)
    if rollback is not None and (found or is_half_told):
        _record_metadata_rollback(section, target, rollback, files)
    if found:
        section.remove_pending(target, Action.DELTA_COMMIT, METADATA)


def _record_metadata_rollback(section: Section, target: InstantTime, rollback: Attempt, files: Iterable[str]) -> None:
    names: dict[str, tuple[str, ...]] = {}
    for path in files:
        partition, _, name = path.removeprefix(METADATA).rpartition("/")
        names[partition] = (*names.get(partition, ()), name)
    plan = RollbackPlan(InstantRef(target, str(Action.DELTA_COMMIT)), names)
    url = f"{section.ports.storage.url}/{METADATA.rstrip('/')}"
    if any(i.requested_at == rollback.instant and i.is_completed for i in section.metadata_timeline):
        return
    _tell(section, rollback, rollback.in_state(State.REQUESTED), encode_rollback_plan(plan, table_url=url))
    _tell(section, rollback, rollback.in_state(State.INFLIGHT), b"")
    document = encode_rollback(_metadata_of(rollback.instant, plan, url))
    _tell(section, rollback, rollback.completed(section.next_time()), document)


def _tell(section: Section, rollback: Attempt, instant: Instant, data: bytes) -> None:
    """Publishes a state of a rollback on the metadata table's timeline, unless an earlier attempt did.

    By the ticket: a paused process cannot restart a rollback that others have finished.
    """
    if section.ports.storage.find(section.path(instant, METADATA)) is not None:
        return
    if rollback.publish(section, instant, data, METADATA) is not Outcome.DONE:
        raise taken_over(rollback.instant)


def _check_can_undo(section: Section, target: InstantTime) -> Instant:
    commits = section.timeline.commits()
    if not commits or commits[-1].requested_at != target:
        newest = commits[-1].requested_at if commits else "none"
        raise InvalidInputError(
            f"{target} is not the newest completed write", hint=f"only the newest can be rolled back: {newest}"
        )
    if any(i.action is Action.SAVEPOINT and i.requested_at == target for i in section.timeline):
        raise InvalidInputError(f"{target} has a savepoint", hint="delete the savepoint first")
    completed_at = section.metadata_timeline.completion_of(target)
    for instant in section.metadata_timeline:
        is_compaction = instant.action in _MERGING or instant.requested_at in section.metadata_timeline.log_compactions
        if completed_at is not None and is_compaction and instant.requested_at > completed_at:
            raise InvalidInputError(
                f"{target} is compacted into the metadata table and cannot be rolled back",
                hint="delete the rows, or write the earlier ones again",
            )
    _check_not_indexed(section, commits[-1])
    _check_not_building(section)
    _check_not_cleaned(section, commits[-1])
    _check_not_planned(section, commits[-1])
    return commits[-1]


def _check_not_indexed(section: Section, commit: Instant) -> None:
    """Raises if an index was built or resharded since the write: it contains what the write did."""
    timeline = section.metadata_timeline
    documents = Documents(section.ports.storage, section.config, METADATA)
    owners = {i.requested_at for i in section.timeline if i.action is not Action.INDEXING} | timeline.log_compactions
    ready = {*section.config.metadata_partitions}
    for delta in timeline.commits():
        is_later = (delta.completed_at or "") > (commit.completed_at or "")
        is_build = delta.action is Action.DELTA_COMMIT and delta.requested_at not in owners
        built = ready & _built_by(documents.commit(delta)) if is_later and is_build else ()
        if built:
            raise InvalidInputError(
                f"{', '.join(sorted(built))} was built since {commit.requested_at}, or was resharded",
                hint="delete the rows, or write the earlier ones again; or drop the index first",
            )


def _check_not_building(section: Section) -> None:
    """Raises while an index is being built: from rows that are there now."""
    for plan in plans_of(section):
        if plan.instant.state is State.INFLIGHT:
            raise InvalidInputError(
                f"{', '.join(plan.partitions) or 'an index'} is being built since {plan.instant.requested_at}",
                hint="roll back when the build has ended; services.rollback_failed_writes() takes back one that died",
            )


def _built_by(delta: CommitMetadata) -> set[str]:
    """Partitions of the metadata table that a delta commit built.

    Not partition statistics that a write added ahead of its own instant: these are only log files, and only widen
    others.
    """
    files = (decode_data_file_name(stat.path.rpartition("/")[2]) for stat in delta.stats)
    is_ahead = not any(isinstance(file, BaseFile) for file in files)
    return {name for name in delta.write_stats if not (is_ahead and only_widens(name))}


def _check_not_planned(section: Section, commit: Instant) -> None:
    """Raises if a pending clustering needs what the write wrote: it could never run, and would block every writer."""
    plans = [plan for plan in section.timeline.pending() if plan.action is Action.CLUSTERING]
    changed = groups_of_commit(section, commit) if plans else frozenset()
    for plan in plans:
        if changed & planned_groups(section.ports.storage, section.config, plan):
            raise InvalidInputError(
                f"{commit.requested_at} wrote file groups that the clustering {plan.requested_at} is planned for",
                hint="cancel the clustering, if it is removable; or execute it: then only that can be rolled back",
            )


def groups_of_commit(section: Section, commit: Instant) -> frozenset[FileGroupId]:
    """The file groups that a completed write wrote to or replaced."""
    metadata = Documents(section.ports.storage, section.config).commit(commit)
    hidden = (FileGroupId(name, file_id) for name, ids in metadata.replaced_file_ids.items() for file_id in ids)
    return frozenset((*(FileGroupId(stat.partition, stat.file_id) for stat in metadata.stats), *hidden))


def _check_not_cleaned(section: Section, commit: Instant) -> None:
    """Raises if files that the write superseded were cleaned or are about to be: without them rows would be lost."""
    cleaned: set[tuple[str, str, str]] = set()
    for clean in section.timeline:
        if clean.action is Action.CLEAN and clean.requested_at > (commit.completed_at or ""):
            path = section.path(Instant(clean.requested_at, Action.CLEAN, State.REQUESTED))
            for partition, names in decode_clean_plan(section.ports.storage.get(path), path=path).files.items():
                files = (decode_data_file_name(name, folder=partition) for name in names)
                cleaned.update((partition, file.file_id, file.instant) for file in files if file is not None)
    if not cleaned:
        return
    groups = {(partition, file_id) for partition, file_id, _ in cleaned}
    metadata = Documents(section.ports.storage, section.config).commit(commit)
    hidden = ((name, file_id) for name, file_ids in metadata.replaced_file_ids.items() for file_id in file_ids)
    superseded = ((stat.partition, stat.file_id, stat.prev_commit or "") for stat in metadata.stats)
    if not groups.isdisjoint(hidden) or not cleaned.isdisjoint(superseded):
        raise InvalidInputError(
            f"files that {commit.requested_at} replaced have been cleaned, or are about to be",
            hint="delete the rows, or write the earlier ones again",
        )


def _unpublish(section: Section, plan: RollbackPlan) -> None:
    """Makes a completed target pending again before any of its files is deleted: readers see all of it or nothing."""
    for instant in section.timeline.commits():
        if instant.requested_at == plan.target.requested_at:
            section.ports.at("rollback.R2")
            section.remove(instant)


def _waits(section: Section, rollback: InstantTime) -> bool:
    return _is_pending(section, rollback) and not section.heartbeats.get(rollback, False)


def _is_pending(section: Section, rollback: InstantTime) -> bool:
    return any(i.requested_at == rollback and i.action is Action.ROLLBACK for i in section.timeline.pending())


def _load_plan(section: Section, rollback: InstantTime) -> RollbackPlan:
    path = section.path(Instant(rollback, Action.ROLLBACK, State.REQUESTED))
    return decode_rollback_plan(section.ports.storage.get(path), path=path)


def files_of(section: Section, instant: Instant) -> dict[str, tuple[str, ...]]:
    """Names of the files that an instant wrote or may have written, by partition: from markers and listings."""
    storage = section.ports.storage
    marked = load_markers(storage, instant.requested_at)
    found = set(marked)
    for folder in _folders_of(section, instant, marked):
        found.update(_list_files(storage, folder, instant.requested_at))
    by_partition: dict[str, tuple[str, ...]] = {}
    for path in sorted(found):
        partition, _, name = path.rpartition("/")
        by_partition[partition] = (*by_partition.get(partition, ()), name)
    return by_partition


def _folders_of(section: Section, instant: Instant, marked: frozenset[str]) -> Iterator[str]:
    """The folders an instant may have written to: partitions it declared or marked; all, if it declared nothing."""
    if instant.state is State.REQUESTED:
        return
    if instant.action in SERVICES:
        planned = planned_groups(section.ports.storage, section.config, instant)
        yield from sorted({group.partition for group in planned} | {path.rpartition("/")[0] for path in marked})
        return
    inflight = Instant(instant.requested_at, instant.action, State.INFLIGHT)
    state = instant if instant.is_completed else inflight
    path = section.path(state)
    declared = decode_commit(section.ports.storage.find(path) or b"", path=path).write_stats
    folders = set(declared) | {path.rpartition("/")[0] for path in marked}
    yield from sorted(folders) if folders else [""]


def _list_files(storage: Storage, folder: str, instant: InstantTime) -> Iterator[str]:
    """Data files in a folder that an instant wrote; everywhere below the table's root, or the metadata table's."""
    everywhere = folder in ("", METADATA)
    for listed in storage.list(folder.rstrip("/"), recursive=everywhere):
        parent, _, name = listed.path.rpartition("/")
        if not folder and f"{parent}/".startswith(".hoodie/"):
            continue
        file = decode_data_file_name(name, folder=parent)
        if file is not None and file.instant == instant:
            yield listed.path


def _stays(section: Section, target: InstantRef) -> bool:
    """Whether the target's plan outlives the rollback; then its heartbeat belongs to the next attempt."""
    plan = Instant(InstantTime(target.requested_at), Action(target.action), State.INFLIGHT)
    return plan.action in SERVICES and not is_removable(section, plan)


def _remove_target(section: Section, target: InstantRef, *, stays: bool) -> None:
    requested_at, action = InstantTime(target.requested_at), Action(target.action)
    if stays:
        section.remove(Instant(requested_at, action, State.INFLIGHT))
    else:
        # Of a table service that had completed, the plan goes, too: it has a name of its own.
        plans = [
            i.action for i in section.timeline.pending() if i.requested_at == requested_at and i.action in SERVICES
        ]
        for spelling in dict.fromkeys((*plans, action)):
            section.remove_pending(requested_at, spelling)


def _paths(plan: RollbackPlan) -> Iterator[str]:
    for partition, names in plan.files.items():
        yield from (f"{partition}/{name}" if partition else name for name in names)


def _metadata_of(rollback: InstantTime, plan: RollbackPlan, url: str) -> RollbackMetadata:
    partitions = {
        partition: RolledBackPartition(
            partition, deleted=tuple("/".join(filter(None, (url, partition, name))) for name in names)
        )
        for partition, names in plan.files.items()
    }
    return RollbackMetadata(
        started_at=rollback,
        commits=(plan.target.requested_at,),
        instants=(plan.target,),
        partitions=partitions,
        total_files_deleted=sum(len(names) for names in plan.files.values()),
    )
