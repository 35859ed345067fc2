"""Clustering: small files are stitched together, and rows that are asked for together are put side by side.

A plan names file slices; executing it writes their rows into new file groups, and its commit hides the old ones. Rows
stay as they are, down to the commit that wrote them. Writers go first. A plan leaves out what a writer at work has set
out to change. A removable one is given up when a writer that is still at work may want its file groups, and cancelled
by a writer that does. An immutable one refuses such writers from the moment it is planned: so it is not made while a
writer at work has yet to say what it is going to change, and once made it does not wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lakebed.commit.commit import commit
from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.randomness import new_file_id
from lakebed.errors import InvalidInputError, UnsupportedTableError, WriteConflictError
from lakebed.format.timeline.plans import decode_clustering_plan, encode_clustering_plan
from lakebed.index.facts import FileFacts
from lakebed.index.keys import keys_are_indexed
from lakebed.model.commit import ClusteringGroup, ClusteringPlan, CommitMetadata, stats_by_partition
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.read.scan import select_columns
from lakebed.services.clustering.order import check_order
from lakebed.services.clustering.plan import (
    LAYOUT,
    SORT_COLUMNS,
    ClusteringOptions,
    ClusteringSizing,
    Layout,
    parse_layout,
    plan_clustering,
)
from lakebed.services.clustering.tasks import ClusteringTask
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.conflicts import Rival, WriteKind, WriteSet, find_conflict
from lakebed.transaction.pending import live_writers, pending_rivals
from lakebed.transaction.plans import REMOVABLE
from lakebed.transaction.rollback import groups_of_commit, targets_of_rollbacks
from lakebed.transaction.section import Section, instant_path
from lakebed.write.checks import check_schema, check_writable
from lakebed.write.execute import deleted_if_refused, find_rival_files
from lakebed.write.rows.schema import declared_schema
from lakebed.write.values import WriteContext, write_context

_SERVICE = "clustering"
_SORT_AND_SIZE = "SortAndSizeExecutionStrategy"
"""What the names of Apache Hudi's strategies that we do the work of end with, on Spark, Flink and plain Java."""


def schedule_clustering(
    context: ServiceContext,
    *,
    order_by: Sequence[str] = (),
    layout: Layout = "linear",
    removable: bool = False,
    partitions: Sequence[str] | None = None,
    sizing: ClusteringSizing | None = None,
) -> InstantTime | None:
    """Plans a clustering; its instant, or None if no file gains by it, or if writers are at work that go first.

    Without `order_by` small files are stitched together, rows in the order in which they are read. With it all files
    take part. `partitions` are partition paths, None for all.
    """
    chosen = None if partitions is None else tuple(partitions)
    options = ClusteringOptions(
        order_by=tuple(order_by), layout=layout, partitions=chosen, sizing=sizing or ClusteringSizing()
    )
    context.handle.state()  # What can be loaded before the lock is taken need not be loaded under it.

    def make_plan(section: Section, instant: InstantTime) -> bytes | None:
        del instant
        state = context.handle.state().at(section.config, section.timeline, section.metadata_timeline)
        check_writable(state)
        columns = select_columns(state.data_schema(state.latest), options.order_by, state.config.name)
        check_order(columns, options.order_by, options.layout)
        busy = _busy(section, removable=removable)
        if busy is None:
            return None
        plan = plan_clustering(
            [each for each in state.latest_slices if _is_free(each, busy)],
            options,
            target_file_bytes=context.options.target_file_bytes,
        )
        if plan is None:
            return None
        marked = replace(plan, extra_metadata={REMOVABLE: "true"}) if removable else plan
        return encode_clustering_plan(marked, table_url=state.storage.url)

    return context.transactions.executions.schedule(Action.CLUSTERING, make_plan)


def execute_clustering(context: ServiceContext, instant: InstantTime) -> ServiceResult:
    """Executes a plan, whoever made it, lakebed or Apache Hudi."""
    check_writable(context.handle.state())
    _check_is_clustering(context.handle.state(), instant)
    attempt = context.transactions.executions.begin(instant)
    with context.transactions.executions.ended_on_failure(attempt, is_idle=context.is_idle_after_failure):
        state = context.handle.state()
        clustering = _load(context, state, instant)
        written = tuple(file for files in context.engine.map(clustering.tasks, context.plane.cluster) for file in files)
        with deleted_if_refused(clustering.context, written):
            completed_at = _commit(context, attempt, clustering, written)
    return ServiceResult(
        instant,
        completed_at,
        _SERVICE,
        {
            "rows": sum(file.stat.num_writes for file in written),
            "file_groups": len(written),
            "replaced_file_groups": len(clustering.plan.file_groups),
            "bytes": sum(file.stat.file_size for file in written),
        },
    )


@dataclass(frozen=True, slots=True)
class _Clustering:
    """A plan that is being executed, on the table as it stood when that began."""

    plan: ClusteringPlan
    state: TableState
    context: WriteContext
    tasks: tuple[ClusteringTask, ...]

    @property
    def replaced_file_ids(self) -> dict[str, tuple[str, ...]]:
        """The file groups that are to be hidden, by partition."""
        found: dict[str, tuple[str, ...]] = {}
        for group in self.plan.groups:
            for each in group.slices:
                found[each.partition] = (*found.get(each.partition, ()), each.file_id)
        return found

    @property
    def seen(self) -> frozenset[InstantTime]:
        """The writes that the plan was made on: those that had completed by then."""
        commits = self.state.timeline.commits()
        return frozenset(i.requested_at for i in commits if (i.completed_at or "") < self.context.instant)


def _busy(section: Section, *, removable: bool) -> WriteSet | None:
    """What others plan to change or are changing; None: a writer is at work that may change anything."""
    others = [rival.writes for rival in pending_rivals(section.ports.storage, section.config, section.timeline)]
    for _, writes in live_writers(section):
        if writes is not None:
            others.append(writes)
        elif not removable:
            return None
    groups = frozenset(group for writes in others for group in writes.changed) | _undone_groups(section)
    partitions = frozenset(partition for writes in others for partition in writes.partitions)
    return WriteSet(WriteKind.UPSERT, rewritten=groups, partitions=partitions)


def _undone_groups(section: Section) -> frozenset[FileGroupId]:
    """What completed writes left that rollbacks are about to take back."""
    targets = targets_of_rollbacks(section)
    undone = [i for i in section.timeline.commits() if i.requested_at in targets]
    return frozenset(group for instant in undone for group in groups_of_commit(section, instant))


def _is_free(file_slice: FileSlice, busy: WriteSet) -> bool:
    return file_slice.group not in busy.rewritten and file_slice.group.partition not in busy.partitions


def _check_is_clustering(state: TableState, instant: InstantTime) -> None:
    """Refuses to begin with the plan of another service; one that is not there is refused later."""
    for pending in state.timeline.pending():
        if pending.requested_at == instant and pending.action is not Action.CLUSTERING:
            raise InvalidInputError(f"{instant} is a {pending.action}, not a clustering", hint="name a clustering plan")


def _load(context: ServiceContext, state: TableState, instant: InstantTime) -> _Clustering:
    """The plan of an instant, and the tasks that it comes to."""
    path = instant_path(state.config, Instant(instant, Action.CLUSTERING, State.REQUESTED))
    plan = decode_clustering_plan(state.storage.get(path), path=path)
    if not plan.strategy.endswith(_SORT_AND_SIZE):
        raise UnsupportedTableError(
            f"clustering {instant} is planned for {plan.strategy or 'no class'}, which lakebed does not have",
            hint="execute it with Apache Hudi",
        )
    order_by = tuple(name.strip() for name in plan.params.get(SORT_COLUMNS, "").split(",") if name.strip())
    layout = parse_layout(plan.params.get(LAYOUT, "linear"))
    columns = select_columns(state.data_schema(state.latest), order_by, state.config.name)
    check_order(columns, order_by, layout)
    write = write_context(state, instant, context.options)
    indexes = (*state.config.metadata_partitions, *state.config.metadata_partitions_inflight)
    current = {each.group: each for each in state.latest_slices}
    tasks = tuple(
        ClusteringTask(
            write,
            number,
            tuple(_current_slices(group, current, instant)),
            _new_file_ids(group.output_count),
            order_by,
            layout,
            preserves=plan.preserve_meta_columns,
            gives_keys=keys_are_indexed(indexes),
        )
        for number, group in enumerate(plan.groups)
    )
    return _Clustering(plan, state, write, tasks)


def _current_slices(
    group: ClusteringGroup, current: dict[FileGroupId, FileSlice], instant: InstantTime
) -> Iterator[FileSlice]:
    """The slices of a group of the plan, which must still be the newest of their file groups."""
    if len({each.partition for each in group.slices}) != 1:
        raise UnsupportedTableError(
            f"clustering {instant} has a group of several partitions", hint="execute it with Apache Hudi"
        )
    for each in group.slices:
        found = current.get(FileGroupId(each.partition, each.file_id))
        planned = {*each.log_files, *((each.base_file,) if each.base_file else ())}
        if found is None or {path.rpartition("/")[2] for path in found.paths} != planned:
            raise WriteConflictError(
                f"file group {each.file_id} has changed since clustering {instant} was planned",
                hint="another engine wrote to it despite the pending plan; the plan can only be rolled back",
            )
        yield found


def _new_file_ids(count: int) -> tuple[str, ...]:
    """File ids that differ in their counters alone, as those of one group do in Apache Hudi."""
    stem = new_file_id().rpartition("-")[0]
    return tuple(f"{stem}-{number}" for number in range(max(count, 1)))


def _commit(
    context: ServiceContext, attempt: Attempt, clustering: _Clustering, written: Sequence[FileFacts]
) -> InstantTime:
    write, replaced = clustering.context, clustering.plan.file_groups
    metadata = CommitMetadata(
        write_stats=stats_by_partition(file.stat for file in written),
        replaced_file_ids=clustering.replaced_file_ids,
        operation="CLUSTER",
        extra_metadata={"schema": declared_schema(write.schema, write.config, meta_columns=False)},
    )
    added = frozenset(FileGroupId(file.stat.partition, file.stat.file_id) for file in written)
    writes = WriteSet(WriteKind.CLUSTERING, rewritten=replaced, added=added)
    strays = find_rival_files(write, written, {group.partition for group in replaced})

    def check(section: Section) -> None:
        context.transactions.executions.check_not_cancelled(attempt.instant)
        check_schema(clustering.state, section)
        if clustering.plan.extra_metadata.get(REMOVABLE) == "true":
            _check_no_writer(section, writes)
        for path in strays:
            delete_file(section.ports.storage, path)

    prepared = PreparedCommit(
        attempt.instant,
        attempt.action,
        metadata,
        writes,
        clustering.seen,
        write.expected,
        tuple(written),
        replaced=replaced,
    )
    entries = context.plane.entries(clustering.state, prepared)
    return commit(context.transactions, attempt, prepared, entries, check=check)


def _check_no_writer(section: Section, writes: WriteSet) -> None:
    """Yields to writers at work that want the same file groups, or that have not said yet what they want."""
    for instant, theirs in live_writers(section):
        if theirs is None or find_conflict(writes, [Rival(instant, theirs)]):
            raise WriteConflictError(
                f"{instant.action} {instant.requested_at} is in flight and may write to what this clustering replaces",
                hint="the writer has precedence; table.services.rollback_failed_writes() removes this plan; "
                "then schedule a new one",
            )
