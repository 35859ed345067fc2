"""Finds equal keys. Key i of a buffer is `data[offsets[i]:offsets[i + 1]]`."""

from __future__ import annotations

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_offsets, require
from lakebed.kernels.choice import choose

_ROWS_MAX = 2**32 - 2


def number_keys(data: Bytes, offsets: Int64s, paths: Int64s) -> tuple[Int64s, int]:
    """Numbers the distinct pairs of key and path by first appearance: the number of each pair, and how many there are.

    `paths` has a non-negative number per key, or is empty.
    """
    count = _check(data, offsets)
    require(len(paths) in (0, count), f"{len(paths)} paths for {count} keys")
    require(not len(paths) or paths.min() >= 0, "a path is negative")
    groups, distinct = choose("key_numbers", count).number_keys(data, offsets, paths)
    return groups, int(distinct)


def number_few(data: Bytes, offsets: Int64s, few_max: int) -> tuple[Int32s, Int64s] | None:
    """Numbers the distinct texts by first appearance: the number of each text, and the first row of each number.

    None if there are more than `few_max` distinct texts.
    """
    count = _check(data, offsets)
    require(few_max >= 0, "the limit is negative")
    found: tuple[Int32s, Int64s] | None = choose("key_numbers", count).number_few(data, offsets, few_max)
    return found


def place_keys(data: Bytes, offsets: Int64s, wanted: Bytes, wanted_offsets: Int64s) -> Int64s:
    """The first row of `data` that has each wanted key; -1 if there is none.

    If several wanted keys are equal, only the first of them gets a row.
    """
    count = max(_check(data, offsets), _check(wanted, wanted_offsets))
    places: Int64s = choose("key_numbers", count).place_keys(data, offsets, wanted, wanted_offsets)
    check_length(places, len(wanted_offsets) - 1, "places")
    return places


def _check(data: Bytes, offsets: Int64s) -> int:
    count = check_offsets(data, offsets)
    require(count <= _ROWS_MAX, f"{count} keys are too many")
    return count
