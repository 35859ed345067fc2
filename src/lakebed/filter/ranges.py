"""Decides by min/max/null statistics which files can contain a matching row.

A file is excluded only if none of its rows can match, whatever sort order its writer used: text by UTF-8 or by UTF-16
units, bytes signed or unsigned, NaN inside the range or not. Where these orders differ, nothing is excluded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.literals import is_text
from lakebed.filter.predicate import (
    And,
    Compare,
    CompareColumns,
    Constant,
    FunctionCompare,
    IsIn,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Value,
    expression_key,
    like_prefix,
    negation_normal,
)
from lakebed.format.arrow import ArrowArray

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Min, max, null count and row count of one column, per file.

    `min` and `max` have the column's type. A null there, or in a count, means unknown; so does a NaN.
    """

    min: ArrowArray
    max: ArrowArray
    null_count: ArrowArray
    value_count: ArrowArray


def may_match(predicate: Predicate, ranges: Mapping[str, Ranges], count: int) -> Mask:
    """For each of `count` files, whether it may contain a matching row; False proves that it does not.

    `ranges` are keyed by column name, and by `expression_key` for functions of a column. Columns without ranges exclude
    nothing.
    """
    assert all(len(each.min) == count for each in ranges.values()), count
    return _may_match(negation_normal(predicate), ranges, count)


def _may_match(predicate: Predicate, ranges: Mapping[str, Ranges], count: int) -> Mask:
    match predicate:
        case Constant(value):
            return np.full(count, bool(value))
        case And(parts):
            return np.logical_and.reduce([_may_match(part, ranges, count) for part in parts] or [np.ones(count, bool)])
        case Or(parts):
            return np.logical_or.reduce([_may_match(part, ranges, count) for part in parts] or [np.zeros(count, bool)])
        case CompareColumns(left, op, right):
            if left in ranges and right in ranges:
                return _columns_may_match(ranges[left], op, ranges[right])
            return np.ones(count, bool)
    known = _find_ranges(predicate, ranges)
    return np.ones(count, bool) if known is None else _leaf_may_match(predicate, known)


def _find_ranges(leaf: Predicate, ranges: Mapping[str, Ranges]) -> Ranges | None:
    match leaf:
        case Not(part):
            return _find_ranges(part, ranges)
        case FunctionCompare():
            return ranges.get(expression_key(leaf))
        case Compare(column) | IsIn(column) | IsNull(column) | StartsWith(column) | Like(column):
            return ranges.get(column)
    return None


def _leaf_may_match(predicate: Predicate, ranges: Ranges) -> Mask:
    match predicate:
        case IsNull():
            return _unless(pc.equal(ranges.null_count, 0))
        case Compare(_, op, value) | FunctionCompare(_, _, _, op, value):
            inside = _compare_may_match(ranges, op, value)
        case IsIn(_, values):
            inside = _any_may_match(ranges, values)
        case StartsWith(_, prefix):
            inside = _prefix_may_match(ranges, prefix)
        case Like(_, pattern):
            inside = _prefix_may_match(ranges, like_prefix(pattern))
        case Not(StartsWith(_, prefix)) if is_text(ranges.min.type):
            # All texts between two texts with a common prefix have that prefix.
            inside = _unless(pc.and_(pc.starts_with(ranges.min, prefix), pc.starts_with(ranges.max, prefix)))
        case _:
            inside = np.ones(len(ranges.min), bool)
    return inside & _has_values(ranges)


def _has_values(ranges: Ranges) -> Mask:
    """Whether some value may be non-null. A row count of zero proves nothing: some writers do not set it."""
    all_null = pc.equal(ranges.null_count, ranges.value_count)
    return _unless(pc.and_(all_null, pc.greater(ranges.value_count, 0)))


def _compare_may_match(ranges: Ranges, op: Op, value: Value) -> Mask:
    bound = _bound(value, ranges.min.type)
    # NaN passes these, and ranges need not show it.
    if bound is None or (pa.types.is_floating(ranges.min.type) and op in {">", ">=", "!="}):
        return np.ones(len(ranges.min), bool)
    return _interval_may_match(_known(ranges.min), _known(ranges.max), op, bound, bound)


def _columns_may_match(left: Ranges, op: Op, right: Ranges) -> Mask:
    inside = _has_values(left) & _has_values(right)
    if left.min.type == right.min.type and _has_one_order(left.min.type):
        return inside & _interval_may_match(left.min, left.max, op, right.min, right.max)
    return inside


def _interval_may_match(low: ArrowArray, high: ArrowArray, op: Op, other_low: Any, other_high: Any) -> Mask:
    """Whether some value between `low` and `high` may stand in relation `op` to one between the other two."""
    match op:
        case "<":
            return _unless(pc.greater_equal(low, other_high))
        case "<=":
            return _unless(pc.greater(low, other_high))
        case ">":
            return _unless(pc.less_equal(high, other_low))
        case ">=":
            return _unless(pc.less(high, other_low))
        case "!=":
            alike = [pc.equal(low, high), pc.equal(low, other_low), pc.equal(low, other_high)]
            return _unless(pc.and_kleene(alike[0], pc.and_kleene(alike[1], alike[2])))
    above, below = pc.greater(low, other_high), pc.less(high, other_low)
    return _unless(above) & _unless(below)


def _any_may_match(ranges: Ranges, values: tuple[Value, ...]) -> Mask:
    if not values:
        return np.zeros(len(ranges.min), bool)
    if any(_bound(value, ranges.min.type) is None for value in values):
        return np.ones(len(ranges.min), bool)
    candidates: ArrowArray = pa.array(values, ranges.min.type)
    low, high, points = _ranks(_known(ranges.min), _known(ranges.max), candidates)
    points.sort()
    first = np.searchsorted(points, low)  # The least candidate that is not below the file's values.
    inside = (first < len(points)) & (points[np.minimum(first, len(points) - 1)] <= high)
    unknown = pc.or_(_known(ranges.min).is_null(), _known(ranges.max).is_null())
    return inside | _as_mask(unknown, unknown=True)


def _ranks(*arrays: ArrowArray) -> list[npt.NDArray[np.int64]]:
    """The ranks of the values among those of all arrays; those of nulls are arbitrary."""
    ranks = pc.rank(pa.concat_arrays(arrays), tiebreaker="dense").to_numpy().astype(np.int64)
    return np.split(ranks, np.cumsum([len(array) for array in arrays[:-1]]))


def _prefix_may_match(ranges: Ranges, prefix: str) -> Mask:
    if _bound(prefix, ranges.min.type) is None or not is_text(ranges.min.type):
        return np.ones(len(ranges.min), bool)
    heads = pc.utf8_slice_codeunits(ranges.min, start=0, stop=len(prefix))
    return _unless(pc.greater(heads, prefix)) & _unless(pc.less(ranges.max, prefix))


def _bound(value: Value, kind: pa.DataType) -> pa.Scalar[Any] | None:
    """The value to test ranges with, or None if its position depends on the writer's sort order."""
    if isinstance(value, bytes) or (isinstance(value, float) and math.isnan(value)):
        return None
    # UTF-16 units and code points sort alike, except surrogates and U+E000 and above. A text that has neither compares
    # with any text in the same way in both orders.
    if isinstance(value, str) and any(character >= "\ue000" for character in value):
        return None
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None  # Ranges of another type than the column's.


def _known(values: ArrowArray) -> ArrowArray:
    """The values with null for NaN, which means that the range is unreliable."""
    if not pa.types.is_floating(values.type):
        return values
    known: ArrowArray = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    return known


def _has_one_order(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    return is_number or pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _unless(excluded: Any) -> Mask:
    """True except where a file is known to be excluded."""
    return ~_as_mask(excluded, unknown=False)


def _as_mask(values: Any, *, unknown: bool) -> Mask:
    mask: Mask = pc.fill_null(values, unknown).to_numpy(zero_copy_only=False)
    return mask
