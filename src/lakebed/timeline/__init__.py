"""The timeline: which actions took place on a table, in which order, active and archived."""

from lakebed.timeline.active import load_timeline
from lakebed.timeline.archive import Archive
from lakebed.timeline.documents import Documents
from lakebed.timeline.snapshot import Snapshot
from lakebed.timeline.timeline import Timeline

__all__ = ["Archive", "Documents", "Snapshot", "Timeline", "load_timeline"]
