"""Merging by ordering values: decides which events (base rows, records, deletes) of each key are accepted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bools, Int64s, check_length, require
from lakebed.kernels.choice import choose


def accept_events(starts: Int64s, kinds: npt.NDArray[np.int8], ranks: Int64s, is_base: Bools, rules: int) -> Bools:
    """Whether each event is accepted. Events are grouped by key and in order of writing; groups begin at `starts`."""
    count = len(kinds)
    check_length(ranks, count, "ranks")
    check_length(is_base, count, "marks of base rows")
    ends = np.append(starts, count)
    require((ends[1:] > ends[:-1]).all() and (not count or (len(starts) > 0 and starts[0] == 0)), "keys without events")
    accepted: Bools = choose("events", count).accept_events(starts, kinds, ranks, is_base, rules)
    return accepted
