"""Points in time that readers name: instants, dates and times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timezone

from lakebed.errors import InvalidInputError
from lakebed.model.instant import InstantTime
from lakebed.table import TableState

_DIGITS = re.compile(r"[0-9]{8}|[0-9]{10}|[0-9]{12}|[0-9]{14}|[0-9]{17}", re.ASCII)
_START = "00000101000000000"
_FORMATS_HINT = (
    "give the requested time of an instant (`lakebed timeline` lists them), a datetime, or text such as "
    "'2026-11-16', '2026-11-16 09:30:00' or '20261116093000000'"
)


@dataclass(frozen=True, slots=True)
class Completion:
    """A point given by its completion time, not by the name of an instant."""

    time: InstantTime


def completion_as_of(state: TableState, as_of: object) -> InstantTime:
    """The completion time of the snapshot that `as_of` names.

    The requested time of a known instant means: right after that instant completed. Anything else is a time: everything
    that had completed by then. A time before the first commit raises InvalidInputError.
    """
    stand = completion_of_point(state, as_of)
    if not any(i.completed_at is not None and i.completed_at <= stand for i in state.timeline.commits()):
        first = state.timeline.first_requested_at
        raise InvalidInputError(
            f"as_of {as_of!r} is before the first commit of table {state.config.name}",
            hint=f"the earliest instant on its timeline is {first}" if first else "the table has no commits yet",
        )
    return stand


def completion_of_point(state: TableState, point: object) -> InstantTime:
    """The completion time of an instant that is on the timeline or archived, or else the moment that `point` names."""
    if isinstance(point, Completion):
        return point.time
    instant = InstantTime(str(point).strip())
    known = state.timeline.completion_of(instant)
    if known is None and _DIGITS.fullmatch(instant) and len(instant) >= 14:
        known = state.archive.completions([instant]).get(instant)
    return known or moment(point, utc=state.config.timeline_timezone == "UTC")


def moment(value: object, *, utc: bool) -> InstantTime:
    """`value` as digits of an instant time. Times with a zone are converted to UTC, or to this machine's zone."""
    if isinstance(value, datetime):
        return _from_datetime(value, utc=utc)
    if isinstance(value, date):
        return _from_datetime(datetime.combine(value, time.min), utc=utc)
    text = str(value).strip()
    if _DIGITS.fullmatch(text):
        return InstantTime(text + _START[len(text) :] if len(text) >= 8 else text)
    try:
        if len(text) == 10:
            return _from_datetime(datetime.combine(date.fromisoformat(text), time.min), utc=utc)
        return _from_datetime(datetime.fromisoformat(text.replace("Z", "+00:00")), utc=utc)
    except ValueError as error:
        raise InvalidInputError(f"{value!r} is not a point in time", hint=_FORMATS_HINT) from error


def _from_datetime(value: datetime, *, utc: bool) -> InstantTime:
    if value.tzinfo is not None:
        value = value.astimezone(timezone.utc if utc else None)
    return InstantTime(value.strftime("%Y%m%d%H%M%S") + f"{value.microsecond // 1000:03d}")
