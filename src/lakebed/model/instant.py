"""Instants: the actions on a table's timeline."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from lakebed.model.words import Action, State

InstantTime = NewType("InstantTime", str)
"""Digits of a local or UTC date and time, `yyyyMMddHHmmssSSS`; compared as strings."""

# 14 digits: tables of the seconds era; 17: today; 20: metadata-table instants of version 6 (data instant + suffix).
_INSTANT_TIME = re.compile(r"[0-9]{14,20}", re.ASCII)


def instant_time(text: str) -> InstantTime:
    """`text` as an instant time; anything but 14 to 20 digits raises ValueError."""
    if not _INSTANT_TIME.fullmatch(text):
        raise ValueError(f"not an instant time: {text!r}")
    return InstantTime(text)


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on the timeline, in one state of its life."""

    requested_at: InstantTime
    action: Action
    state: State
    completed_at: InstantTime | None = None

    def __post_init__(self) -> None:
        # Both directions at once: completed exactly when it has a completion time.
        assert (self.state is State.COMPLETED) == (self.completed_at is not None), self

    @property
    def is_completed(self) -> bool:
        """Whether the instant has completed."""
        return self.state is State.COMPLETED


def is_reserved(instant: InstantTime) -> bool:
    """Whether an instant built a partition, and is of no write."""
    return instant.startswith("00000")
