"""Ordering values of many record index entries, encoded and decoded as arrays.

An entry is a head, the ordering value as a nullable long, and a null for the next payload. The head is the same for all
keys of a file group and instant, but values differ by key. So Arrow and numpy join and split entries, and only
distinct heads are encoded or decoded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.hfile.arrow import binary_array, binary_buffers
from lakebed.kernels.buffers import Bytes, Int64s

NO_ORDERING = -(2**63)
"""Stands for "no value" in arrays of numbers. An entry with this number counts as having none, which is safe."""

_PIECE = 1 << 16
_LONG_BYTES_MAX = 10
_SET = 2
"""The union branch, as encoded, of a nullable long that is set."""
_NULLS = b"\0\0"
"""The end of an entry without ordering value: it is null, and so is the next payload."""


@dataclass(frozen=True, slots=True)
class SplitValues:
    """Split entries: entry i is `heads[ids[i]]` and the number `ordering[i]`."""

    heads: list[bytes]
    ids: Int64s
    ordering: Int64s


def join_ordering(head: bytes, ordering: ArrowArray) -> ArrowArray:
    """The entries that begin with `head` and have these values (int64, null for none), as a dictionary."""
    encoded = ordering.dictionary_encode(null_encoding="encode")
    numbers = encoded.dictionary
    pieces = [_join_piece(head, numbers.slice(start, _PIECE)) for start in range(0, len(numbers), _PIECE)]
    distinct = pa.concat_arrays(pieces) if pieces else pa.array([], pa.large_binary())
    return pa.DictionaryArray.from_arrays(encoded.indices, distinct)


def head_of(entry: bytes) -> bytes:
    """The head of an entry that has no ordering value."""
    assert entry.endswith(_NULLS), "an entry without an ordering value"
    return entry[: -len(_NULLS)]


def without_value(head: bytes) -> bytes:
    """The entry that begins with `head` and has no ordering value."""
    return head + _NULLS


def split_ordering(values: ArrowArray) -> SplitValues | None:
    """Splits entries (binary); None if one does not have this form.

    The position of the split is found from the end of an entry, which may be wrong for other bytes. It is right if
    `without_value(head)` can be decoded as an entry.
    """
    lengths = _tail_lengths(values)
    if lengths is None:
        return None
    numbers: dict[bytes, int] = {}
    ids, ordering = np.empty(len(values), np.int64), np.full(len(values), NO_ORDERING, np.int64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        some = values.take(pa.array(rows))
        heads = pc.binary_replace_slice(some, -int(length), np.iinfo(np.int64).max, b"").dictionary_encode()
        known = [numbers.setdefault(head, len(numbers)) for head in heads.dictionary.to_pylist()]
        ids[rows] = np.array(known, np.int64)[heads.indices.to_numpy()]
        if length > len(_NULLS):
            ordering[rows] = _decode_tails(some, int(length))
    return SplitValues(list(numbers), ids, ordering)


def _join_piece(head: bytes, numbers: ArrowArray) -> ArrowArray:
    """Entries from one row of bytes each (head, branch, ten bytes for the number, null), without the unused bytes."""
    is_set = np.asarray(numbers.is_valid())
    longs, lengths = _encode_longs(_to_zigzag(pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)))
    rows = np.zeros((len(numbers), len(head) + _LONG_BYTES_MAX + 2), np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    rows[:, len(head)] = np.where(is_set, _SET, 0)
    rows[:, len(head) + 1 : -1] = longs
    in_use = np.where(is_set, lengths, 0)
    used = np.ones(rows.shape, bool)
    used[:, len(head) + 1 : -1] = np.arange(_LONG_BYTES_MAX) < in_use[:, None]
    offsets = np.concatenate(([0], np.cumsum(len(head) + len(_NULLS) + in_use)))
    return binary_array(rows[used], offsets).cast(pa.large_binary())


def _tail_lengths(values: ArrowArray) -> Int64s | None:
    """The length in bytes of each entry's end, from the ordering value on."""
    data, offsets = binary_buffers(values)
    starts, lasts = offsets[:-1], offsets[1:] - len(_NULLS)
    if len(lasts) and np.min(lasts - starts) < _LONG_BYTES_MAX + 1:
        return None
    length, open_ = np.ones(len(lasts), np.int64), np.arange(len(lasts))
    for back in range(1, _LONG_BYTES_MAX):  # All bytes of a number but its last have the highest bit.
        open_ = open_[data[lasts[open_] - back] >= 0x80]
        length[open_] += 1
    is_set = data[lasts - length] == _SET
    is_null = ~is_set & (length == 1) & (data[lasts] == 0)
    if not (is_set | is_null).all() or (data[offsets[1:] - 1] != 0).any():
        return None
    found: Int64s = np.where(is_set, length + 2, len(_NULLS))
    return found


def _decode_tails(values: ArrowArray, length: int) -> Int64s:
    tails = pc.binary_replace_slice(values, 0, -length, b"")
    data, offsets = binary_buffers(tails)
    rows = data[offsets[0] : offsets[-1]].reshape(len(values), length)[:, 1:-1].astype(np.uint64)
    zigzag = np.zeros(len(values), np.uint64)
    for place in range(rows.shape[1]):
        zigzag |= (rows[:, place] & np.uint64(0x7F)) << np.uint64(7 * place)
    return (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)


def _to_zigzag(numbers: Int64s) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def _encode_longs(zigzag: npt.NDArray[np.uint64]) -> tuple[Bytes, Int64s]:
    """The bytes of Avro longs, ten per number, and how many of them are used."""
    shifts = np.arange(0, 7 * _LONG_BYTES_MAX, 7, dtype=np.uint64)
    rest = zigzag[:, None] >> shifts
    lengths: Int64s = np.maximum((rest > 0).sum(axis=1), 1)
    goes_on = np.arange(_LONG_BYTES_MAX) < lengths[:, None] - 1
    return ((rest & np.uint64(0x7F)) | np.where(goes_on, np.uint64(0x80), np.uint64(0))).astype(np.uint8), lengths
