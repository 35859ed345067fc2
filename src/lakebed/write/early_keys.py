"""Index entries of the new keys of a planned write, encoded while its files are written."""

from __future__ import annotations

from lakebed.index.key_batches import KeyChanges, NewTables, PreparedKeys, prepare_keys
from lakebed.index.keys import KEY_INDEX, find_key_index, is_partitioned
from lakebed.index.kind import Update
from lakebed.index.update import CurrentStats
from lakebed.table import TableState
from lakebed.transaction.times import instant_ms, timeline_zone
from lakebed.write.plan import Picked, WritePlan
from lakebed.write.values import IS_DELETE, WriteContext, WriteTask


def prepare_entries(
    state: TableState, context: WriteContext, plan: WritePlan, tables: NewTables | None
) -> PreparedKeys | None:
    """Starts encoding the entries of keys that the plan knows to be new; None if only the written files tell."""
    metadata = find_key_index(state)
    if plan.counts is None or metadata is None:
        return None
    if is_partitioned(metadata) or context.entry_ordering is not None:
        return None
    keys = [_new_keys(task) for task in plan.tasks]
    if None in keys:
        return None
    moment = instant_ms(context.instant, timeline_zone(context.config))
    update = Update(
        instant=context.instant,
        instant_ms=moment,
        partitions=(KEY_INDEX,),
        groups={KEY_INDEX: tuple(each.group.file_id for each in metadata.slices(KEY_INDEX))},
        definitions=state.definitions,
        stats=CurrentStats(metadata, lambda _: ()),
    )
    return prepare_keys([change for change in keys if change is not None], update, created_ms=moment, tables=tables)


def _new_keys(task: WriteTask) -> KeyChanges | None:
    """The keys that a task adds to its file group; None if that is not known before it has run."""
    rows = task.rows
    if not isinstance(rows, Picked) or rows.new_keys is None or IS_DELETE in rows.table.column_names:
        return None
    if len(rows.assignment.revived):  # They may stay deleted.
        return None
    return KeyChanges(task.group.partition, task.group.file_id, rows.new_keys if len(rows.new_keys) else None)
