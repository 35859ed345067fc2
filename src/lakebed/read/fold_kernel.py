"""`fold.accept_events` in compiled code."""

from __future__ import annotations

from numba import njit
from numba.extending import register_jitable

from lakebed.read import fold

register_jitable(fold.accept_by_event_time)
register_jitable(fold.accept_version_6)
accept_events = njit(cache=True, nogil=True)(fold.accept_events)
