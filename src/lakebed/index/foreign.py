"""What a commit of another engine did to the keys of a file group, from the group before it and after it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.index.build import Scan, Scanner
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant
from lakebed.table import TableState
from lakebed.timeline import Timeline


class GroupScans:
    """Scans of file groups right before and right after a commit."""

    def __init__(self, state: TableState, scan: Scanner, commit: Instant) -> None:
        self._state, self._scan, self._commit = state, scan, commit
        self._found: dict[tuple[bool, tuple[str, ...]], dict[FileGroupId, Scan]] = {}

    def before(self, group: FileGroupId, columns: Sequence[str]) -> pa.Table | None:
        """The rows of a file group that the commit found; None if the group is new."""
        return self._read(group, columns, is_after=False)

    def after(self, group: FileGroupId, columns: Sequence[str]) -> pa.Table | None:
        """The rows of a file group that the commit left; None if it hid the group."""
        return self._read(group, columns, is_after=True)

    def _read(self, group: FileGroupId, columns: Sequence[str], *, is_after: bool) -> pa.Table | None:
        key = is_after, tuple(columns)
        if key not in self._found:
            state = self._state.at(self._state.config, self._timeline(is_after=is_after))
            scans = self._scan(state, columns) if state.latest_slices else ()
            self._found[key] = {each.file_slice.group: each for each in scans}
        found = self._found[key].get(group)
        return None if found is None else found.read()

    def _timeline(self, *, is_after: bool) -> Timeline:
        """The timeline up to the commit."""
        own, done = self._commit.requested_at, self._commit.completed_at or ""
        seen = (i for i in self._state.timeline.instants if not i.is_completed or (i.completed_at or "") <= done)
        return Timeline.of([i for i in seen if is_after or i.requested_at != own])
