"""The loop behind event-time merging: which events of each key are accepted. The compiled module compiles it."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bools, Int64s

_RECORD, _DELETE, _DELETE_ALWAYS = 0, 1, 2
_EVENT_TIME, _EVENT_TIME_V6 = 1, 3


def accept_events(starts: Int64s, kinds: npt.NDArray[np.int8], ranks: Int64s, is_base: Bools, rules: int) -> Bools:
    """Whether each event is accepted."""
    accepted = [False] * len(kinds)  # Element access is several times faster in lists than in arrays.
    fill_accepted(starts.tolist(), kinds.tolist(), ranks.tolist(), is_base.tolist(), rules, accepted)
    return np.array(accepted, np.bool_)


def fill_accepted(starts: Any, kinds: Any, ranks: Any, is_base: Any, rules: int, accepted: Any) -> None:
    """Set `accepted` for each event."""
    for k in range(len(starts)):
        end = starts[k + 1] if k + 1 < len(starts) else len(kinds)
        if rules == _EVENT_TIME:
            accept_by_event_time(starts[k], end, kinds, ranks, accepted)
        else:
            accept_version_6(starts[k], end, kinds, ranks, is_base, rules == _EVENT_TIME_V6, accepted)


def accept_by_event_time(
    start: int, end: int, kinds: Sequence[int], ranks: Sequence[int], accepted: MutableSequence[bool]
) -> None:
    """Events of one key, in tables of version 8 and later."""
    current = -1
    for i in range(start, end):
        if current < 0 or kinds[i] == _DELETE_ALWAYS or kinds[current] == _DELETE_ALWAYS or ranks[i] >= ranks[current]:
            accepted[i] = True
            current = i


def accept_version_6(
    start: int,
    end: int,
    kinds: Sequence[int],
    ranks: Sequence[int],
    is_base: Sequence[bool],
    base_may_win: bool,
    accepted: MutableSequence[bool],
) -> None:
    """Events of one key in tables of version 6."""
    base = -1
    current = -1
    for i in range(start, end):
        if is_base[i]:
            base = i
            accepted[i] = True
            continue
        # A record replaces any delete; a delete with an ordering value spares what has a greater one.
        if current < 0 or kinds[i] == _DELETE_ALWAYS or (kinds[i] == _RECORD and kinds[current] != _RECORD):
            wins = True
        else:
            wins = ranks[i] >= ranks[current]
        if wins:
            accepted[i] = True
            current = i
    if base_may_win and base >= 0 and current >= 0 and kinds[current] == _RECORD and ranks[current] < ranks[base]:
        for i in range(start, end):
            accepted[i] = i == base
