"""Incoming rows that are older than what the table has, told by the ordering values in the record index.

An entry's value is a lower bound of the stored row's: a row below it is late, whatever the row says that is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import pc
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.index.keys import ordering_numbers
from lakebed.model.index import EntryOrdering
from lakebed.write.tag.files import Ints, Tags

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Timely:
    """Rows without those that are late, of which there are `late`; `is_newer`: tagged rows that surely are."""

    rows: pa.Table
    tags: Tags
    is_newer: Bools
    late: int


def drop_late(rows: pa.Table, tags: Tags, bounds: Ints, ordering: EntryOrdering | None) -> Timely:
    """Rows without those below the bound of their entry; `bounds` has one per tag, a row has one tag at most.

    A row whose value, or whose entry's, is not known stays, and is not surely newer.
    """
    if ordering is None or (bounds == NO_ORDERING).all():
        return Timely(rows, tags, np.zeros(len(bounds), bool), 0)
    numbers = pc.fill_null(ordering_numbers(rows, ordering), NO_ORDERING).to_numpy(zero_copy_only=False)[tags.rows]
    is_known = (numbers != NO_ORDERING) & (bounds != NO_ORDERING)
    is_late = is_known & (numbers < bounds)
    is_newer = is_known & ordering.is_current
    if not is_late.any():
        return Timely(rows, tags, is_newer, 0)
    kept = np.ones(rows.num_rows, bool)
    kept[tags.rows[is_late]] = False
    new_number = np.cumsum(kept) - 1
    left = Tags(new_number[tags.rows[~is_late]], tags.targets[~is_late], tags.positions[~is_late])
    return Timely(rows.filter(pa.array(kept)), left, is_newer[~is_late], int(is_late.sum()))
