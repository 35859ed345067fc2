"""Instant times: unique, increasing, and drawn only under the table lock."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone, tzinfo

from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime

_RESERVED = "0000"
"""Prefix of reserved times: instants that build metadata-table partitions are numbered from zero."""


def timeline_zone(config: TableConfig) -> tzinfo | None:
    """The time zone of a table's instants: UTC, or None for the local zone of this machine."""
    return timezone.utc if config.timeline_timezone == "UTC" else None


def format_time(ms: int, zone: tzinfo | None) -> InstantTime:
    """A moment as an instant time."""
    return _spell(datetime.fromtimestamp(ms // 1000, zone).replace(microsecond=ms % 1000 * 1000))


def highest_time(instants: Iterable[Instant]) -> InstantTime | None:
    """The greatest requested or completion time, except reserved ones."""
    # Reserved times are smaller than all others, so one of them is the greatest only where there is no other.
    times = [time for i in instants for time in (i.requested_at, i.completed_at) if time is not None]
    highest = max(times, default=_RESERVED)
    return None if highest.startswith(_RESERVED) else InstantTime(highest[:17])


def following_time(now: InstantTime, highest: InstantTime | None) -> InstantTime:
    """`now`, or one millisecond after `highest` if the clock is behind the table."""
    return now if highest is None or now > highest else shift_time(highest, 1)


def shift_time(time: InstantTime, ms: int) -> InstantTime:
    """The instant time `ms` milliseconds later, in the table's own digits: zones and clocks do not matter."""
    return _spell(_moment(time) + timedelta(milliseconds=int(time[14:17] or 0) + ms))


def _spell(moment: datetime) -> InstantTime:
    # By hand, as is reading below: `strftime` and `strptime` take ten times as long, and every section draws times.
    day = f"{moment.year:04}{moment.month:02}{moment.day:02}"
    return InstantTime(f"{day}{moment.hour:02}{moment.minute:02}{moment.second:02}{moment.microsecond // 1000:03}")


def _moment(time: InstantTime, zone: tzinfo | None = None) -> datetime:
    """The second that an instant time spells."""
    day = int(time[:4]), int(time[4:6]), int(time[6:8])
    return datetime(*day, int(time[8:10]), int(time[10:12]), int(time[12:14]), tzinfo=zone)


def instant_ms(time: InstantTime, zone: tzinfo | None) -> int:
    """The moment that an instant time spells, in milliseconds since 1970; whole seconds mean their last one."""
    return int(_moment(time, zone).timestamp()) * 1000 + int(time[14:17] or 999)
