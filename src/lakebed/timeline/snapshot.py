"""Snapshots: which writes a reader sees, and when each completed."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.model.instant import InstantTime
from lakebed.timeline.archive import Archive
from lakebed.timeline.timeline import Timeline


class Snapshot:
    """The writes that had completed by a point in completion order, active or archived.

    `timeline` is the whole active timeline; `until`, if given, is the completion time of the snapshot.
    """

    def __init__(self, timeline: Timeline, archive: Archive, until: InstantTime | None = None) -> None:
        self.timeline = timeline if until is None else timeline.until(until)
        self.until = until
        self._active = timeline
        self._archive = archive
        self._archived: dict[InstantTime, InstantTime | None] = {}

    def completion_of(self, requested_at: InstantTime) -> InstantTime | None:
        """When that write completed; None if it is not visible to this reader."""
        completed_at = self.timeline.completion_of(requested_at)
        if completed_at is not None or not self._may_be_archived(requested_at):
            return completed_at
        if requested_at not in self._archived:
            self.prefetch([requested_at])
        return self._archived[requested_at]

    @property
    def archived_before(self) -> InstantTime | None:
        """Writes requested before this time are archived; None if nothing is on the active timeline."""
        return self._active.first_requested_at

    def prefetch(self, wanted: Iterable[InstantTime]) -> None:
        """Looks up archived writes in one pass, so that later calls for each are cheap."""
        missing = {t for t in wanted if t not in self._archived and self._may_be_archived(t)}
        if not missing:
            return
        found = self._archive.completions(missing)
        oldest = self._archive.first_requested_at
        for requested_at in missing:
            completed_at = found.get(requested_at)
            if completed_at is None and (oldest is None or requested_at < oldest):
                completed_at = requested_at  # Older than anything the archive remembers: only its files are left.
            visible = completed_at is not None and (self.until is None or completed_at <= self.until)
            self._archived[requested_at] = completed_at if visible else None

    def _may_be_archived(self, requested_at: InstantTime) -> bool:
        first = self._active.first_requested_at
        return (first is None or requested_at < first) and self._active.completion_of(requested_at) is None
