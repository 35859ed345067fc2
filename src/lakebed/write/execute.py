"""Running write tasks: a new base file, a merged one, or a log file, each with a marker written before it."""

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
from lakebed.index.obliged import complete_groups, list_groups
from lakebed.metadata.table import ROOT
from lakebed.model.instant import InstantTime
from lakebed.model.words import RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.timeline.active import list_instants
from lakebed.transaction.markers import load_markers
from lakebed.write.files.base import create_base_file
from lakebed.write.files.log import append_log_file, append_log_files
from lakebed.write.files.log_blocks import LogLot
from lakebed.write.files.merge import merge_base_file
from lakebed.write.plan import WritePlan, is_append
from lakebed.write.values import WriteContext, WriteTask

T = TypeVar("T")


def run_write_task(task: WriteTask) -> tuple[FileFacts, ...]:
    """The files that a task makes. Running it again makes others, with another write token."""
    task = _attempt(task)
    if task.file_slice is None:
        return create_base_file(task)
    return append_log_file(task) if is_append(task) else merge_base_file(task)


def run_write_tasks(
    plan: WritePlan, lot: Future[LogLot | None], beside: Callable[[], T]
) -> tuple[tuple[FileFacts, ...], T]:
    """The files that the tasks of a plan make; log files that this process makes are stored together, from the `lot`.

    `beside` runs once all log files have been begun; its result is returned, too.
    """
    appends = plan.appends
    numbers = {task.number for task in appends}
    others = [task for task in plan.tasks if task.number not in numbers]
    made = [file for files in plan.engine.map(others, run_write_task) for file in files] if others else []
    appended, result = append_log_files([_attempt(task) for task in appends], lot, beside)
    return (*appended, *made), result


def _attempt(task: WriteTask) -> WriteTask:
    """The task with a write token of its own."""
    return replace(task, token=new_write_token(task.number))


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """The result of a task of a large write: files, and keys that it stored in files of their own."""

    files: tuple[FileFacts, ...]
    keys: tuple[StoredKeys, ...]


@dataclass(frozen=True, slots=True)
class RunStaged:
    """Runs tasks of a large write, or scans of keys that it hides. Keys stay in files, none without a record index."""

    shelf: Shelf
    shards: ShardSets | None

    def __call__(self, task: WriteTask | SliceTask) -> WrittenGroup:
        """What the task makes. Running it again makes other files."""
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
    """The shards that the keys of a write go to; None if the table keeps no record index, or has but some of them.

    A partitioned one gives a new data partition `shards_of_new`.
    """
    config = state.config
    if not keys_are_indexed((*config.metadata_partitions, *config.metadata_partitions_inflight)):
        return None
    groups = _key_groups(state)
    if groups is None:
        return None
    is_partitioned, window = not is_global(state.definitions), key_window(state.definitions)
    return shard_sets(groups, is_partitioned=is_partitioned, shards_of_new=shards_of_new, window=window)


def _key_groups(state: TableState) -> tuple[str, ...] | None:
    """The shards of the record index; None while it is being built and they are not all there."""
    if KEY_INDEX in state.config.metadata_partitions:
        return list_groups(state.storage, [KEY_INDEX])[KEY_INDEX]
    begun = {instant.requested_at for instant in list_instants(state.storage, state.config, ROOT)}
    return complete_groups(state.storage, KEY_INDEX, begun)


def hidden_keys(scan: SliceTask, rows: pa.Table) -> KeyChanges:
    """The keys of a file group that a write hides, as its scan read them."""
    group = scan.file_slice.group
    return KeyChanges(group.partition, group.file_id, deleted=rows[RECORD_KEY])


def find_attempt_files(context: WriteContext, written: Sequence[FileFacts]) -> tuple[str, ...]:
    """Files with a marker that no task result names: those of failed or duplicate task attempts.

    The markers of a plan that another process has taken over are that one's, too: strays of a table service are deleted
    in its commit section alone, where it is certain that nobody has.
    """
    kept = {file.stat.path for file in written}
    return tuple(sorted(load_markers(context.storage, context.instant) - kept))


def find_rival_files(context: WriteContext, written: Sequence[FileFacts], partitions: Iterable[str]) -> tuple[str, ...]:
    """Strays of a table service, and files that earlier attempts left in `partitions` without a marker.

    A paused attempt may store a file after whoever took over has removed its markers. Where a metadata table says what
    counts, such a file is nothing; else it would count once the plan is carried out.
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
    """Deletes the strays of a write. Its instant is executed by no other process."""
    for path in find_attempt_files(context, written):
        delete_file(context.storage, path)


@contextmanager
def deleted_if_refused(context: WriteContext, written: Sequence[FileFacts]) -> Iterator[None]:
    """Deletes the files of an attempt whose commit is refused: the rollback may have listed before they were written.

    Their names are this attempt's alone, so nobody has committed them. A failure of another kind leaves them to the
    next attempt: the store may not have said what became of the commit.
    """
    try:
        yield
    except (RolledBackError, WriteConflictError, ServiceCancelledError):
        for file in written:
            delete_file(context.storage, file.stat.path)
        raise
