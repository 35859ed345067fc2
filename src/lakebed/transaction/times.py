"""Instant times: unique, growing, and drawn only under the table's lock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone, tzinfo

from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime

_MILLISECOND = timedelta(milliseconds=1)
_RESERVED = "0000"
"""Instants that build metadata-table partitions count up from zero; they are not moments."""


def timeline_zone(config: TableConfig) -> tzinfo | None:
    """The zone in which a table spells its instants: UTC, or None for whatever this machine is set to."""
    return timezone.utc if config.timeline_timezone == "UTC" else None


def format_time(ms: int, zone: tzinfo | None) -> InstantTime:
    """A moment as an instant time."""
    return _spell(datetime.fromtimestamp(ms // 1000, zone).replace(microsecond=ms % 1000 * 1000))


def highest_time(instants: Iterable[Instant]) -> InstantTime | None:
    """The greatest requested or completion time; reserved ones do not count."""
    times = (time for i in instants for time in (i.requested_at, i.completed_at) if time is not None)
    return max((InstantTime(time[:17]) for time in times if not time.startswith(_RESERVED)), default=None)


def following_time(now: InstantTime, highest: InstantTime | None) -> InstantTime:
    """`now`, or one millisecond after `highest` if the clock stands behind what the table has seen."""
    return now if highest is None or now > highest else shift_time(highest, 1)


def shift_time(time: InstantTime, ms: int) -> InstantTime:
    """The instant time `ms` milliseconds later, in the table's own digits: zones and clocks do not matter."""
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(time[14:17] or 0))
    return _spell(moment + ms * _MILLISECOND)


def _spell(moment: datetime) -> InstantTime:
    return InstantTime(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}")


def instant_ms(time: InstantTime, zone: tzinfo | None) -> int:
    """The moment that an instant time spells, in milliseconds since 1970; whole seconds mean their last one."""
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
    return int(moment.timestamp()) * 1000 + int(time[14:17] or 999)
