"""Where keys stand among others: the join of incoming rows and those of a file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels.key_numbers import place_keys

Ints = npt.NDArray[np.int64]


def find_places(stored: pa.Array, wanted: pa.Array) -> Ints:
    """The place of each wanted key among the stored ones, the first of several; -1 if it is not there.

    Of wanted keys that are equal, the first has a place.
    """
    if stored.null_count or wanted.null_count:
        return _find_with_nulls(stored, wanted)
    return place_keys(*binary_buffers(stored), *binary_buffers(wanted))


def _find_with_nulls(stored: pa.Array, wanted: pa.Array) -> Ints:
    numbers = pc.fill_null(pc.index_in(stored, value_set=wanted), -1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(numbers >= 0)[::-1]
    places = np.full(len(wanted), -1)
    places[numbers[found]] = found  # Of repeated places, the last assignment stays: that of the first.
    return places
