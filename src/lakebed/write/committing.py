"""What the commit of a write asks of the table besides its own files: keys that it hides, and checks of its plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.engines import Engine
from lakebed.index.key_batches import KeyChanges, ShardCache
from lakebed.model.files import FileGroupId
from lakebed.model.words import RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import plan_slices
from lakebed.table import TableState
from lakebed.transaction.section import Section
from lakebed.write.checks import check_columns
from lakebed.write.execute import hidden_keys
from lakebed.write.new_keys import check_new_keys


def keys_of_groups(state: TableState, groups: Collection[FileGroupId], engine: Engine) -> tuple[KeyChanges, ...]:
    """The keys that a write hides: those of the file groups that it replaces."""
    scans = scan_keys(state, groups)
    return tuple(map(hidden_keys, scans, engine.map(scans, read_slice)))


def scan_keys(state: TableState, groups: Collection[FileGroupId]) -> Sequence[SliceTask]:
    """Scans of the keys of file groups."""
    hidden = tuple(s for s in state.latest_slices if s.group in groups)
    if not hidden:
        return ()
    return plan_slices(state, state.latest, hidden, columns=[RECORD_KEY], where=None, is_latest=True).tasks


def read_hidden(state: TableState, prepared: PreparedCommit, engine: Engine) -> tuple[KeyChanges, ...]:
    """The keys that a prepared write hides, read for an index that was not there before."""
    return () if prepared.is_staged else keys_of_groups(state, prepared.replaced, engine)


def recheck(state: TableState, prepared: PreparedCommit, section: Section, cache: ShardCache, engine: Engine) -> None:
    """Raises if other writes changed the columns, or inserted keys that are new to this one too."""
    if prepared.columns is not None:
        check_columns(state, section, prepared.seen, prepared.columns)
    check_new_keys(state, prepared, section, cache, engine)
