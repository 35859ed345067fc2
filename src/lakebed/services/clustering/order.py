"""The order of rows in clustered files: by columns one after the other, or along a space-filling curve.

Along a curve, rows that are close in all columns are close in the files, so a filter on any of the columns reads few
files. The curve goes by the ranks of values among the rows, so columns of all types and distributions weigh the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.errors import InvalidInputError
from lakebed.services.clustering.plan import Layout

Codes = npt.NDArray[np.uint64]

LAYOUTS: tuple[str, ...] = get_args(Layout)
_CODE_BITS = 64


def row_order(table: pa.Table, columns: Sequence[str], layout: str) -> pa.Array:
    """Row numbers of `table` in the order of a layout; nulls come last."""
    if layout == "linear" or len(columns) == 1:
        return pc.sort_indices(table, [(name, "ascending") for name in columns])
    ranks = [_ranks(table[name]) for name in columns]
    bits = min(_CODE_BITS // len(columns), max(table.num_rows - 1, 1).bit_length())
    spare = np.uint64(max(table.num_rows - 1, 1).bit_length() - bits)
    codes = {"z-order": z_order_codes, "hilbert": hilbert_codes}[layout]([rank >> spare for rank in ranks], bits)
    return pa.array(np.argsort(codes, kind="stable"))


def check_order(schema: pa.Schema, columns: Sequence[str], layout: str) -> None:
    """Raises InvalidInputError if rows of that schema cannot be ordered so."""
    if layout not in LAYOUTS:
        raise InvalidInputError(f"there is no layout {layout!r}", hint=f"use one of {', '.join(LAYOUTS)}")
    if layout != "linear" and not 1 <= len(columns) <= _CODE_BITS:
        raise InvalidInputError(
            f"the layout {layout} cannot order by {len(columns)} columns",
            hint=f"order by 1 to {_CODE_BITS} columns, best by 2 to 4",
        )
    for name in columns:
        kind = schema.field(name).type
        if pat.is_nested(kind):
            raise InvalidInputError(f"column {name} is a {kind}, which has no order", hint="order by plain columns")


def z_order_codes(ranks: Sequence[Codes], bits: int) -> Codes:
    """Positions on the Z-order curve: the `bits` of all ranks interleaved, those of the first rank first."""
    codes = np.zeros(len(ranks[0]), np.uint64)
    for bit in reversed(range(bits)):
        for rank in ranks:
            codes = (codes << np.uint64(1)) | ((rank >> np.uint64(bit)) & np.uint64(1))
    return codes


def hilbert_codes(ranks: Sequence[Codes], bits: int) -> Codes:
    """Positions on the Hilbert curve, on which consecutive cells are neighbours.

    J. Skilling, Programming the Hilbert curve (2004): undo the rotations from the largest cube to the smallest, then
    the Gray code; the result is the position, its bits spread over the axes.
    """
    axes = [rank.copy() for rank in ranks]
    for bit in range(bits - 1, 0, -1):
        for axis in range(len(axes)):
            _turn(axes, axis, bit)
    for axis in range(1, len(axes)):
        axes[axis] ^= axes[axis - 1]
    flips = np.zeros(len(axes[0]), np.uint64)
    for bit in range(bits - 1, 0, -1):
        flips ^= np.where(_has(axes[-1], bit), _low_bits(bit), np.uint64(0))
    return z_order_codes([axis ^ flips for axis in axes], bits)


def _turn(axes: list[Codes], axis: int, bit: int) -> None:
    """Undoes one rotation: in the upper half of an axis the first axis is inverted, in the lower both are swapped."""
    is_upper = _has(axes[axis], bit)
    swap = np.where(is_upper, np.uint64(0), (axes[0] ^ axes[axis]) & _low_bits(bit))
    axes[axis] ^= swap
    axes[0] ^= np.where(is_upper, _low_bits(bit), swap)


def _has(numbers: Codes, bit: int) -> npt.NDArray[np.bool_]:
    return (numbers & np.uint64(1 << bit)) != 0


def _low_bits(bit: int) -> np.uint64:
    return np.uint64((1 << bit) - 1)


def _ranks(column: pa.ChunkedArray) -> Codes:
    """The number of rows with a smaller value; nulls rank last."""
    ranks = pc.rank(column, sort_keys="ascending", tiebreaker="min")
    found: Codes = np.asarray(ranks).astype(np.uint64) - np.uint64(1)
    return found
