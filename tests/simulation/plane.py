"""What table services do with rows in the simulation; plans, sections, conflicts, commits and index entries are real.

A task reads and writes simulated data files. Shards of the metadata table are merged as their simulated content is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from lakebed.commit.entries import CommitEntries
from lakebed.errors import LakebedError, StorageUnavailableError
from lakebed.format.file_names import encode_base_file_name, encode_log_file_name
from lakebed.index.facts import FileFacts
from lakebed.index.kinds import merge_rule
from lakebed.metadata.shard_writes import ShardCodec
from lakebed.metadata.upkeep.maintenance import ShardWork, Upkeep, UpkeepLimits
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.instant import InstantTime
from lakebed.services.clustering.tasks import ClusteringTask
from lakebed.services.compaction.tasks import CompactionTask
from lakebed.services.plane import ServicePlane
from lakebed.services.values import ServiceContext
from lakebed.storage.confirm import create_file
from lakebed.transaction.markers import write_markers
from lakebed.transaction.section import METADATA
from lakebed.write.values import WriteContext

from .scheduler import Process
from .table import (
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

STRAGGLER_MS = 4_000
"""How long a task may outlive its driver: less than a heartbeat takes to count as dead."""


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


def _read(storage: Any, slices: Iterable[FileSlice], *, bases: bool = True) -> Rows:
    rows: Rows = {}
    for each in slices:
        names = [file.name for file in ((each.base,) if each.base and bases else ()) + each.logs]
        for name in names:
            rows.update(decode_rows(storage.get(each.path(name))))
    return rows


def _write(context: WriteContext, stat: WriteStat, rows: Rows) -> tuple[FileFacts, ...]:
    storage: Any = context.storage
    write_markers(storage, context.instant, [stat.path], storage.world.token())
    create_file(storage, stat.path, encode_rows(rows))
    return (FileFacts(stat, inserted_keys=pa.array(rows)),)


def _token(storage: Any, task: int) -> str:
    return f"{task}-0-{storage.world.token()[1:]}"


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


def compact_shard(
    storage: Any, file_slice: FileSlice, rule: object, *, instant: InstantTime, token: str, **rest: object
) -> WriteStat:
    """The base file that takes the place of a slice of a simulated metadata table."""
    del rule, rest
    paths, places = merge_entries(slice_contents(file_slice, lambda path: storage.get(f"{METADATA}{path}")))
    token = f"{token}-0-{storage.world.token()[1:]}"
    path = file_slice.path(encode_base_file_name(file_slice.group.file_id, token, instant, ".hfile"))
    create_file(storage, f"{METADATA}{path}", encode_entries(sorted(paths), places))
    return WriteStat(file_slice.group.file_id, path, file_slice.group.partition)


def compact_shard_logs(
    storage: Any, file_slice: FileSlice, rule: object, *, instant: InstantTime, token: str, created_ms: int
) -> WriteStat:
    """The log file that stands for those of a slice of a simulated metadata table."""
    del rule, created_ms
    logs = counted_logs(file_slice, lambda path: storage.get(f"{METADATA}{path}"))
    token = f"{token}-0-{storage.world.token()[1:]}"
    path = file_slice.path(encode_log_file_name(file_slice.group.file_id, instant, 1, token))
    content = encode_merged((filed.block.content for filed in logs), (filed.instant for filed in reversed(logs)))
    create_file(storage, f"{METADATA}{path}", content)
    return WriteStat(file_slice.group.file_id, path, file_slice.group.partition)


def service_plane(codec: ShardCodec) -> ServicePlane:
    """What services do with rows, on simulated files; index entries are real but for their codec."""
    return ServicePlane(
        compact=compact_slice,
        compact_logs=compact_logs,
        cluster=cluster_slices,
        entries=partial(CommitEntries, codec=codec),
        rebuild_lost=lambda *_: (),  # Nobody restores a table whose indexes could be built anew.
        deletes=Inline(),
    )


UPKEEP = Upkeep(
    Inline(),
    merge_rule,
    work=ShardWork(compact_shard, compact_shard_logs, str),
    limits=UpkeepLimits(delta_commits=2, commits_retained=4, merged_files=2),
)
"""Maintenance of a simulated metadata table, so small that all of it is soon due."""
