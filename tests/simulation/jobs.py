"""What the simulator does for the services of lakebed where they touch rows: everything else in them is real.

A job reads and writes simulated data files; the metadata table gets a simulated log file. Plans, sections, conflict
checks, rollbacks, commits and what is cleaned, archived or undone is decided by the code that users run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

import lakebed.services.clustering.run as clustering
import lakebed.services.compaction.run as compaction_run
from lakebed.commit.prepared import PreparedCommit
from lakebed.errors import LakebedError, StorageUnavailableError
from lakebed.format.file_names import encode_base_file_name, encode_log_file_name
from lakebed.index.facts import FileFacts
from lakebed.index.kinds import merge_rule
from lakebed.index.obliged import complete_groups
from lakebed.metadata.upkeep.maintenance import ShardWork, Upkeep, UpkeepLimits
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.instant import InstantTime
from lakebed.services.clustering.tasks import ClusteringTask
from lakebed.services.compaction.tasks import CompactionTask
from lakebed.services.plane import ServicePlane
from lakebed.services.values import ServiceContext
from lakebed.storage.confirm import create_file
from lakebed.table import TableState
from lakebed.transaction.markers import write_markers
from lakebed.transaction.section import METADATA, Section
from lakebed.write.values import WriteContext

from .codecs import Swap, swapped
from .scheduler import Process
from .table import (
    FILES,
    Places,
    Rows,
    counted_logs,
    decode_rows,
    encode_entries,
    encode_merged,
    encode_rows,
    merge_entries,
    slice_contents,
)
from .world import World

SCHEMA = pa.schema([pa.field("key", pa.string())])
STRAGGLER_MS = 4_000
"""How long a task may outlive its driver: less than a heartbeat takes to count as dead."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a write adds to the metadata table: the names of its files, and where their keys live from then on."""

    token: Callable[[], str]
    paths: tuple[str, ...] = ()
    places: Places = field(default_factory=dict)
    gone: tuple[str, ...] = ()

    def is_ready(self, section: Section) -> bool:
        """Names are all that it has."""
        return True

    def get_ready(self) -> None:
        """Nothing is missing."""

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata | None:
        """One log file in each partition that the table has now."""
        partitions = section.config.metadata_partitions
        self._write_unbuilt(section, instant)
        return CommitMetadata(
            {partition: (self.write_log(section.files, instant, partition),) for partition in partitions},
            operation="UPSERT",
        )

    def _write_unbuilt(self, section: Section, instant: InstantTime) -> None:
        """One log file for an index that is being built, which says over how many shards its entries are hashed."""
        begun = {each.requested_at for each in section.metadata_timeline}
        for partition in section.config.metadata_partitions_inflight:
            groups = complete_groups(section.ports.storage, partition, begun)
            if groups:
                name = encode_log_file_name(groups[0], instant, 1, f"0-0-{self.token()[1:]}")
                create_file(section.files, f"{METADATA}{partition}/{name}", str(len(groups)).encode())

    def write_log(self, storage: Any, instant: InstantTime, partition: str = FILES) -> WriteStat:
        """The log file of one partition."""
        file_id = f"{partition.replace('_', '-')}-0000-0"
        name = encode_log_file_name(file_id, instant, 1, f"0-0-{self.token()[1:]}")
        create_file(storage, f"{METADATA}{partition}/{name}", encode_entries(self.paths, self.places, self.gone))
        return WriteStat(file_id, f"{partition}/{name}", partition)


@dataclass(slots=True)
class Tasks:
    """Tasks run one after the other; some run twice, and some fail with one of them still at work."""

    world: World
    process: Process
    dice: Random
    outlive: bool = False
    """Whether tasks may outlive their driver, as those of Spark do."""

    def map(self, tasks: Sequence[Any], run: Callable[[Any], Any]) -> list[Any]:
        """Results of `run` over `tasks`, in order."""
        results = []
        for task in tasks:
            results.append(run(task))
            if self.dice.random() < 0.1:
                run(task)
        if tasks and self.outlive and self.dice.random() < 0.3:
            self._fail(tasks[-1], run)
        return results

    def _fail(self, task: Any, run: Callable[[Any], Any]) -> None:
        """One try of a task goes on while its driver is told that the work failed."""
        self.world.reached["a task outlives its driver"] += 1
        self.world.scheduler.start(self.process, partial(_straggle, run, task), self.dice.randint(1, STRAGGLER_MS))
        raise StorageUnavailableError("a task failed", hint="simulated")


def _straggle(run: Callable[[Any], Any], task: Any) -> None:
    with suppress(LakebedError):
        run(task)


class Context(ServiceContext):
    """What services are given."""

    __slots__ = ()

    @property
    def is_idle_after_failure(self) -> bool:
        """Whether no task runs any more once the work has failed."""
        return not self.engine.outlive  # type: ignore[attr-defined]


class Inline:
    """Takes the place of threads: here and now, one after the other."""

    def __init__(self, threads: int | None = None) -> None:
        del threads

    def map(self, tasks: Sequence[Any], run: Callable[[Any], Any]) -> list[Any]:
        """Results of `run` over `tasks`, in order."""
        return [run(task) for task in tasks]


def _context(state: TableState, instant: InstantTime, *_: Any) -> WriteContext:
    return WriteContext(state.storage, state.config, SCHEMA, "", instant, (), counts=None)  # type: ignore[arg-type]


def _read(storage: Any, slices: Iterable[FileSlice], *, bases: bool = True) -> Rows:
    rows: Rows = {}
    for each in slices:
        names = [file.name for file in ((each.base,) if each.base and bases else ()) + each.logs]
        for name in names:
            rows.update(decode_rows(storage.get(each.path(name))))
    return rows


def _write(context: WriteContext, stat: WriteStat, rows: Rows) -> tuple[FileFacts, ...]:
    storage: Any = context.storage
    write_markers(storage, context.instant, [stat.path], storage._world.token())
    create_file(storage, stat.path, encode_rows(rows))
    return (FileFacts(stat, inserted_keys=tuple(rows)),)


def _token(storage: Any, task: int) -> str:
    return f"{task}-0-{storage._world.token()[1:]}"


def compact_slice(task: CompactionTask) -> tuple[FileFacts, ...]:
    """The base file that takes the place of a slice."""
    context, each = task.context, task.file_slice
    task.check_not_cancelled()
    name = encode_base_file_name(each.group.file_id, _token(context.storage, task.number), context.instant)
    stat = WriteStat(each.group.file_id, each.path(name), each.group.partition, each.base_instant)
    return _write(context, stat, _read(context.storage, [each]))


def compact_logs(task: CompactionTask) -> tuple[FileFacts, ...]:
    """The log file that stands for those of a slice."""
    context, each = task.context, task.file_slice
    task.check_not_cancelled()
    name = encode_log_file_name(each.group.file_id, context.instant, 1, _token(context.storage, task.number))
    stat = WriteStat(each.group.file_id, each.path(name), each.group.partition, each.base_instant)
    return _write(context, stat, _read(context.storage, [each], bases=False))


def cluster_slices(task: ClusteringTask) -> tuple[FileFacts, ...]:
    """The file group that takes the place of several."""
    context, partition = task.context, task.slices[0].group.partition
    token = _token(context.storage, task.number)
    file_id = f"c{token}"
    stat = WriteStat(file_id, f"{partition}/{encode_base_file_name(file_id, token, context.instant)}", partition)
    return _write(context, stat, _read(context.storage, task.slices))


def _entries(state: TableState, prepared: PreparedCommit, *_: Any) -> Listing:
    """What a service adds to the metadata table."""
    storage: Any = state.storage
    stats = [file.stat for file in prepared.facts]
    places = {
        key: (file.stat.partition, file.stat.file_id)
        for file in prepared.facts
        for key in file.inserted_keys  # type: ignore[union-attr]
    }
    return Listing(storage._world.token, tuple(stat.path for stat in stats), places)


def _files_gone(handle: Any, change: Any) -> Listing:
    """What a clean takes out of the metadata table."""
    return Listing(handle.storage._world.token, gone=tuple(_gone(change)))


def _gone(change: Any) -> Iterator[str]:
    for partition, names in change.deleted.items():
        yield from (f"{partition}/{name}" for name in names)
    yield from (f"{partition}/" for partition in change.removed_partitions)


def compact_shard(
    storage: Any, file_slice: FileSlice, rule: object, *, instant: InstantTime, token: str, **rest: object
) -> WriteStat:
    """The base file that takes the place of a slice of a simulated metadata table."""
    del rule, rest
    paths, places = merge_entries(slice_contents(file_slice, lambda path: storage.get(f"{METADATA}{path}")))
    token = f"{token}-0-{storage._world.token()[1:]}"
    path = file_slice.path(encode_base_file_name(file_slice.group.file_id, token, instant, ".hfile"))
    create_file(storage, f"{METADATA}{path}", encode_entries(sorted(paths), places))
    return WriteStat(file_slice.group.file_id, path, file_slice.group.partition)


def compact_shard_logs(
    storage: Any, file_slice: FileSlice, rule: object, *, instant: InstantTime, token: str, created_ms: int
) -> WriteStat:
    """The log file that stands for those of a slice of a simulated metadata table."""
    del rule, created_ms
    logs = counted_logs(file_slice, lambda path: storage.get(f"{METADATA}{path}"))
    token = f"{token}-0-{storage._world.token()[1:]}"
    path = file_slice.path(encode_log_file_name(file_slice.group.file_id, instant, 1, token))
    content = encode_merged((filed.block.content for filed in logs), (filed.instant for filed in reversed(logs)))
    create_file(storage, f"{METADATA}{path}", content)
    return WriteStat(file_slice.group.file_id, path, file_slice.group.partition)


def _swap(owner: Any, name: str, new: Any) -> Swap:
    return owner, name, getattr(owner, name), new


PLANE = ServicePlane(
    compact=compact_slice,
    compact_logs=compact_logs,
    cluster=cluster_slices,
    entries=_entries,
    files_gone=_files_gone,
    rebuild_lost=lambda *_: (),  # Indexes are made of rows, and there are none here.
    deletes=Inline(),
)
"""What services do with rows, on simulated files."""
UPKEEP = Upkeep(
    Inline(),
    merge_rule,
    work=ShardWork(compact_shard, compact_shard_logs, str),
    limits=UpkeepLimits(delta_commits=2, commits_retained=4, merged_files=2),
)
"""Maintenance of a simulated metadata table, so small that all of it is soon due."""

_JOBS: tuple[Swap, ...] = (
    _swap(TableState, "data_schema", lambda state, snapshot: SCHEMA),
    _swap(compaction_run, "make_context", _context),
    _swap(clustering, "write_context", _context),
    *(_swap(module, "declared_schema", lambda *_, **__: "") for module in (compaction_run, clustering)),
)


@contextmanager
def simulated_jobs() -> Iterator[None]:
    """Services whose tasks read and write simulated files, on tables so small that all of them are soon due."""
    with swapped(_JOBS):
        yield
