"""Runs write tasks: each writes a marker, then a new base file, a merged one, or a log file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import pyarrow as pa

from lakebed.engine.exchange import Shelf
from lakebed.engine.randomness import new_write_token
from lakebed.errors import RolledBackError, ServiceCancelledError, WriteConflictError
from lakebed.format.file_names import decode_data_file_name
from lakebed.index.change import key_changes
from lakebed.index.facts import FileFacts
from lakebed.index.key_batches import KeyChanges, ShardSets, StoredKeys, shard_sets, store_keys
from lakebed.index.keys import KEY_INDEX, is_global, key_window, keys_are_indexed
from lakebed.index.obliged import PlannedShards, find_groups, list_groups, planned_shards
from lakebed.metadata.table import ROOT
from lakebed.model.instant import InstantTime
from lakebed.model.words import RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.timeline.timeline import list_instants
from lakebed.transaction.markers import load_markers
from lakebed.write.files.base import create_base_file
from lakebed.write.files.log import append_log_file, append_log_files
from lakebed.write.files.log_blocks import LogLot
from lakebed.write.files.merge import merge_base_file
from lakebed.write.plan import WritePlan, is_append
from lakebed.write.values import WriteContext, WriteTask

T = TypeVar("T")


def run_write_task(task: WriteTask) -> tuple[FileFacts, ...]:
    """Runs a task; a second run writes other files, with another write token."""
    task = _attempt(task)
    if task.file_slice is None:
        return create_base_file(task)
    return append_log_file(task) if is_append(task) else merge_base_file(task)


def run_write_tasks(
    plan: WritePlan, lot: Future[LogLot | None], beside: Callable[[], T]
) -> tuple[tuple[FileFacts, ...], T]:
    """Runs the tasks of a plan. This process stores log files in batches, encoded from the `lot` if there is one.

    `beside` runs once all log files have been started; its result is returned too.
    """
    appends = plan.appends
    numbers = {task.number for task in appends}
    others = [task for task in plan.tasks if task.number not in numbers]
    made = [file for files in plan.engine.map(others, run_write_task) for file in files] if others else []
    appended, result = append_log_files([_attempt(task) for task in appends], lot, beside)
    return (*appended, *made), result


def _attempt(task: WriteTask) -> WriteTask:
    """The task with a new write token."""
    return replace(task, token=new_write_token(task.number))


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """The result of a task of a large write: files, and staged keys."""

    files: tuple[FileFacts, ...]
    keys: tuple[StoredKeys, ...]


@dataclass(frozen=True, slots=True)
class RunStaged:
    """Runs tasks of a large write, or scans of keys that it hides. Keys are staged if there is a record index."""

    shelf: Shelf
    shards: ShardSets | None

    def __call__(self, task: WriteTask | SliceTask) -> WrittenGroup:
        """Runs the task; a second run writes other files."""
        if isinstance(task, SliceTask):
            return WrittenGroup((), self._stored(hidden_keys(task, read_slice(task))))
        files = run_write_task(task)
        keys = tuple(stored for file in files for stored in self._stored(key_changes(file)))
        bare = (replace(file, inserted_keys=None, deleted_keys=None, ordering=None) for file in files)
        return WrittenGroup(tuple(bare), keys)

    def _stored(self, change: KeyChanges) -> tuple[StoredKeys, ...]:
        shards = self.shards(change.partition) if self.shards is not None else ()
        stored = store_keys(self.shelf, change, shards) if shards else None
        return () if stored is None else (stored,)


def key_shards(state: TableState, *, shards_of_new: int) -> ShardSets | None:
    """The shards of the record index that get the keys of a write; None without a complete record index.

    In a partitioned index, a new data partition gets `shards_of_new` shards.
    """
    config = state.config
    planned = planned_shards(state.storage, config, state.timeline)
    if not keys_are_indexed((*config.metadata_partitions, *config.metadata_partitions_inflight, *planned)):
        return None
    groups = _key_groups(state, planned.get(KEY_INDEX))
    if groups is None:
        return None
    is_partitioned, window = not is_global(state.definitions), key_window(state.definitions)
    return shard_sets(groups, is_partitioned=is_partitioned, shards_of_new=shards_of_new, window=window)


def _key_groups(state: TableState, planned: PlannedShards | None) -> tuple[str, ...] | None:
    """The shards of the record index; None while it is being built and some are missing."""
    if KEY_INDEX in state.config.metadata_partitions:
        return list_groups(state.storage, [KEY_INDEX])[KEY_INDEX]
    begun = {instant.requested_at for instant in list_instants(state.storage, state.config, ROOT)}
    return find_groups(state.storage, KEY_INDEX, begun, planned)


def hidden_keys(scan: SliceTask, rows: pa.Table) -> KeyChanges:
    """The keys of a file group that a write hides, from the rows of its scan."""
    group = scan.file_slice.group
    return KeyChanges(group.partition, group.file_id, deleted=rows[RECORD_KEY])


def find_attempt_files(context: WriteContext, written: Sequence[FileFacts]) -> tuple[str, ...]:
    """Files of failed or duplicate task attempts: they have a marker, but no task result names them.

    The markers of a plan that another process took over may belong to that process. So a table service deletes such
    files only in its commit section, where it is certain that nobody has taken over.
    """
    kept = {file.stat.path for file in written}
    return tuple(sorted(load_markers(context.storage, context.instant) - kept))


def find_rival_files(context: WriteContext, written: Sequence[FileFacts], partitions: Iterable[str]) -> tuple[str, ...]:
    """Files of other attempts of a table service: those with a marker, and those without one in `partitions`.

    A paused attempt may store a file after the process that took over has removed its markers. With a metadata table,
    such a file is never visible; without one, it would become visible when the plan completes.
    """
    kept = {file.stat.path for file in written}
    listed: set[str] = set()
    if not context.config.metadata_partitions:
        found = (file for partition in sorted(partitions) for file in context.storage.list(partition))
        listed = {file.path for file in found if _instant_of(file.path) == context.instant}
    return tuple(sorted({*find_attempt_files(context, written), *listed} - kept))


def _instant_of(path: str) -> InstantTime | None:
    file = decode_data_file_name(path.rpartition("/")[2])
    return file.instant if file is not None else None


def delete_strays(context: WriteContext, written: Sequence[FileFacts]) -> None:
    """Deletes files of failed or duplicate attempts of a write, whose instant no other process executes."""
    for path in find_attempt_files(context, written):
        delete_file(context.storage, path)


@contextmanager
def deleted_if_refused(context: WriteContext, written: Sequence[FileFacts]) -> Iterator[None]:
    """Deletes the files of an attempt whose commit is refused: a rollback may have listed files before they existed.

    Their names belong to this attempt only, so nobody has committed them. After any other failure they are left to the
    next attempt, because the outcome of the commit may be unknown.
    """
    try:
        yield
    except (RolledBackError, WriteConflictError, ServiceCancelledError):
        for file in written:
            delete_file(context.storage, file.stat.path)
        raise
