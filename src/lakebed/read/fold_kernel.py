"""`fold.accept_events` in compiled code."""

from __future__ import annotations

from numba.extending import register_jitable

from lakebed.format.compiled import compiled
from lakebed.read import fold

register_jitable(fold.accept_by_event_time)
register_jitable(fold.accept_version_6)
accept_events = compiled(fold.accept_events)
