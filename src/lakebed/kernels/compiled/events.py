"""The loop of `plain.events`, compiled."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from lakebed.kernels.buffers import Bools, Int64s
from lakebed.kernels.compiled.jit import BOOLS, INT, INT8S, INT64S, OUT_BOOLS, Entry, kernel
from lakebed.kernels.plain import events

register_jitable(events.accept_by_event_time)
register_jitable(events.accept_version_6)
fill_accepted = Entry(kernel(events.fill_accepted), INT64S, INT8S, INT64S, BOOLS, INT, OUT_BOOLS)


def accept_events(starts: Int64s, kinds: npt.NDArray[np.int8], ranks: Int64s, is_base: Bools, rules: int) -> Bools:
    """Whether each event is accepted."""
    accepted = np.zeros(len(kinds), np.bool_)
    fill_accepted(starts, kinds, ranks, is_base, rules, accepted)
    return accepted
