"""Moves the window of a record index to the newest partitions.

    1  definition       gets the new start of the window: entries before it are not used any more
    2  shards           of partitions that left the window in an earlier move are deleted; no reader uses them any more
    3  indexing instant makes other processes reload the table

A crash after 1 leaves unused files; the next move deletes them.
"""

from __future__ import annotations

from dataclasses import replace

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.keys import KEY_INDEX
from lakebed.metadata.table import ROOT
from lakebed.model.index import WINDOW_FIRST, IndexWindow
from lakebed.services.indexing.plans import note_indexing, settle
from lakebed.services.indexing.steps import fresh_state, store_definition
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import Transactions


def move_window(transactions: Transactions, table: TableState) -> IndexWindow:
    """Moves the window to the newest partitions; returns the window."""
    with transactions.section() as section:
        settle(transactions, section, KEY_INDEX)
        state = fresh_state(table, section)
        definition = state.definitions.get(KEY_INDEX)
        before = definition.window if definition is not None else None
        if definition is None or before is None or KEY_INDEX not in section.config.metadata_partitions:
            raise InvalidInputError(
                f"table {section.config.name} has no record index with a window",
                hint=f'create one: indexes.create("{KEY_INDEX}", kind="record_windowed", window=30)',
            )
        now = IndexWindow.of((s.group.partition for s in state.latest_slices), before.newest, before.outside)
        if now.first <= before.first:
            return before
        options = {**definition.options, WINDOW_FIRST: now.first}
        store_definition(section, KEY_INDEX, replace(definition, options=options))
        _drop_shards(section, before)
        note_indexing(section, KEY_INDEX)
        return now


def _drop_shards(section: Section, window: IndexWindow) -> None:
    storage = section.ports.storage
    for listed in storage.list(f"{ROOT}{KEY_INDEX}"):
        file = decode_data_file_name(listed.path.rpartition("/")[2])
        partition = data_partition_of_group(file.file_id) if file is not None else None
        if partition is not None and not window.holds(partition):
            section.check_lease()
            delete_file(storage, listed.path)
