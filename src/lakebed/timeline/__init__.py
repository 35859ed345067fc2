"""The timeline: which actions took place on a table, in which order, active and archived."""

from lakebed.timeline.archive import Archive
from lakebed.timeline.timeline import Documents, Snapshot, Timeline, load_timeline

__all__ = ["Archive", "Documents", "Snapshot", "Timeline", "load_timeline"]
