"""Encodes pages of Parquet columns in compiled code: definition levels, values, and the rows of minimum and maximum.

A page is described by numbers in the order of `parquet_encode.PageTask`, addresses of its column among them. Nothing
here checks these: the caller holds the arrays and has allocated enough memory for the output.
"""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Int64s
from lakebed.kernels.compiled.jit import INT, INT64S, OUT_INT64S, Entry, kernel
from lakebed.kernels.compiled.memory import copy, load_byte, load_int, load_long, prefetch_at, store, swap_bytes

_SIGNED, _FLOAT, _TEXT, _LARGE_TEXT, _BITS, _CODES, _DECIMAL, _NUMBERED, _SNAPPY_NUMBERED = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""See `PageTask` of `format.parquet_encode`."""
_FIELDS, _FOUND = 10, 4
_AHEAD = 12
"""Prefetch distance of a text in rows: the rows of one file are scattered over the columns."""
_LEAST, _GREATEST = np.int64(-(2**63)), np.int64(2**63 - 1)


@kernel
def _measure_pages(tasks: Int64s, sizes: Int64s) -> None:
    """Fill `sizes` with the maximum size in bytes of each page of `tasks`."""
    for page in range(len(sizes)):
        kind, width, _, offsets, validity, first, count, is_optional, picked, _ = _task(tasks, page)
        size = np.int64(64)
        if is_optional and validity:
            size += count // 8
        if kind in (_TEXT, _LARGE_TEXT):
            size += 4 * count
            for number in range(count):
                row = _row(picked, first, number)
                size += _start(offsets, kind, row + 1) - _start(offsets, kind, row)
        elif kind == _BITS:
            size += count // 8
        elif kind == _CODES:
            size += (count + 8) * width // 8
        elif kind >= _NUMBERED:
            size += (count + 2) * (width + 32)
        else:
            size += width * count
        sizes[page] = size


@kernel
def _encode_pages(tasks: Int64s, out: int, found: Int64s) -> None:
    """Write each page of `tasks` to its offset after the address `out`.

    `found` gets per page: its size, the number of values, and the rows of the least and the greatest value, -1 if there
    is none; for codes, the least and greatest code themselves. Numbered texts may be compressed here; then their size
    before compression replaces the row of the least.
    """
    for page in range(len(tasks) // _FIELDS):
        kind, width, values, offsets, validity, first, count, is_optional, picked, place = _task(tasks, page)
        start = out + place
        at, present, low, high = start, count, np.int64(-1), np.int64(-1)
        if is_optional and kind != _SNAPPY_NUMBERED:
            at = _put_levels(validity, first, count, picked, at)
        if validity:
            present = _count_present(validity, first, count, picked)
        if kind in (_TEXT, _LARGE_TEXT):
            at, low, high = _put_texts(values, offsets, kind, validity, first, count, picked, at)
        elif kind == _BITS:
            at, low, high = _put_bits(values, validity, first, count, picked, at)
        elif kind == _CODES:
            at, low, high = _put_codes(values, width, validity, first, count, picked, present, at)
        elif kind == _DECIMAL:
            at, low, high = _put_decimals(values, width, validity, first, count, picked, at)
        elif kind == _NUMBERED:
            at = _put_numbered(values, width, first, count, at)
        elif kind == _SNAPPY_NUMBERED:
            at, low = _compress_numbered(values, width, first, count, at)
        else:
            at, low, high = _put_numbers(values, width, kind == _FLOAT, validity, first, count, picked, at)
        of_page = found[_FOUND * page : _FOUND * page + _FOUND]
        of_page[0], of_page[1], of_page[2], of_page[3] = at - start, present, low, high


@kernel
def _task(tasks: Int64s, page: int) -> tuple[int, int, int, int, int, int, int, int, int, int]:
    at = _FIELDS * page
    return (
        tasks[at],
        tasks[at + 1],
        tasks[at + 2],
        tasks[at + 3],
        tasks[at + 4],
        tasks[at + 5],
        tasks[at + 6],
        tasks[at + 7],
        tasks[at + 8],
        tasks[at + 9],
    )


@kernel
def _row(picked: int, first: int, number: int) -> int:
    """The row at a position among the picked rows, whose numbers count from `first`."""
    return first + load_long(picked + 8 * number)


@kernel
def _bit(bits: int, at: int) -> int:
    return np.int64(load_byte(bits + (at >> 3))) >> (at & 7) & 1


@kernel
def _is_null(validity: int, row: int) -> bool:
    return validity != 0 and _bit(validity, row) == 0


@kernel
def _count_present(validity: int, first: int, count: int, picked: int) -> int:
    present = np.int64(0)
    for number in range(count):
        present += _bit(validity, _row(picked, first, number))
    return present


@kernel
def _put_varint(at: int, value: int) -> int:
    while value >= 0x80:
        store(at, np.uint8(value & 0x7F | 0x80))
        value >>= 7
        at += 1
    store(at, np.uint8(value))
    return at + 1


@kernel
def _put_levels(validity: int, first: int, count: int, picked: int, at: int) -> int:
    """Definition levels after their length: one run, or one bit each. Returns their end."""
    start = at + 4
    if validity == 0:
        end = _put_varint(start, count << 1)
        store(end, np.uint8(1))
        end += 1
    else:
        end = _put_varint(start, (count + 7) // 8 << 1 | 1)
        for number in range(0, count, 8):
            byte = np.int64(0)
            for place in range(min(8, count - number)):
                byte |= _bit(validity, _row(picked, first, number + place)) << place
            store(end, np.uint8(byte))
            end += 1
    store(at, np.int32(end - start))
    return end


@kernel
def _rank(address: int, width: int, is_float: bool) -> int:
    """An integer that sorts like the number at an address; NaN is above all others."""
    bits = load_long(address) if width == 8 else np.int64(load_int(address))
    if not is_float:
        return bits
    magnitude = bits & _GREATEST if width == 8 else bits & 0x7FFFFFFF
    if magnitude > (0x7FF0000000000000 if width == 8 else 0x7F800000):
        return _GREATEST
    return bits ^ (bits >> 63 & (_GREATEST if width == 8 else 0x7FFFFFFF))


@kernel
def _put_numbers(
    values: int, width: int, is_float: bool, validity: int, first: int, count: int, picked: int, at: int
) -> tuple[int, int, int]:
    """Plain numbers. Returns their end, and the rows with the least and the greatest."""
    low, high, least, greatest = np.int64(-1), np.int64(-1), _GREATEST, _LEAST
    for number in range(count):
        row = _row(picked, first, number)
        if _is_null(validity, row):
            continue
        source = values + width * row
        if width == 8:
            store(at, load_long(source))
        else:
            store(at, load_int(source))
        at += width
        rank = _rank(source, width, is_float)
        if rank < least or low < 0:
            low, least = row, rank
        if rank > greatest or high < 0:
            high, greatest = row, rank
    return at, low, high


@kernel
def _put_decimals(
    values: int, width: int, validity: int, first: int, count: int, picked: int, at: int
) -> tuple[int, int, int]:
    """Low bytes of 128-bit numbers, big-endian. Returns their end, and the rows with the least and the greatest."""
    low, high, least, greatest = np.int64(-1), np.int64(-1), np.int64(0), np.int64(0)
    least_rest = greatest_rest = np.uint64(0)
    for number in range(count):
        row = _row(picked, first, number)
        if _is_null(validity, row):
            continue
        source = values + 16 * row
        for place in range(width):
            store(at + width - 1 - place, load_byte(source + place))
        at += width
        upper, rest = load_long(source + 8), np.uint64(load_long(source))
        if low < 0 or upper < least or (upper == least and rest < least_rest):
            low, least, least_rest = row, upper, rest
        if high < 0 or upper > greatest or (upper == greatest and rest > greatest_rest):
            high, greatest, greatest_rest = row, upper, rest
    return at, low, high


@kernel
def _start(offsets: int, kind: int, row: int) -> int:
    """Where a text begins."""
    return load_long(offsets + 8 * row) if kind == _LARGE_TEXT else np.int64(load_int(offsets + 4 * row))


@kernel
def _put_texts(
    values: int, offsets: int, kind: int, validity: int, first: int, count: int, picked: int, at: int
) -> tuple[int, int, int]:
    """Length-prefixed texts. Returns their end, and the rows with the least and the greatest."""
    low, high, low_start, high_start, low_end, high_end = np.int64(-1), np.int64(-1), 0, 0, 0, 0
    least = greatest = np.uint64(0)
    for number in range(count):
        if number + _AHEAD < count:
            prefetch_at(values + _start(offsets, kind, _row(picked, first, number + _AHEAD)))
        row = _row(picked, first, number)
        if _is_null(validity, row):
            continue
        start, end = _start(offsets, kind, row), _start(offsets, kind, row + 1)
        length = end - start
        store(at, np.int32(length))
        copy(at + 4, values + start, length)
        at += 4 + length
        word = _first_word(values + start, length)
        if low < 0 or word < least or (word == least and _is_less(values, start, end, low_start, low_end)):
            low, least, low_start, low_end = row, word, start, end
        if high < 0 or word > greatest or (word == greatest and _is_less(values, high_start, high_end, start, end)):
            high, greatest, high_start, high_end = row, word, start, end
    return at, low, high


@kernel
def _first_word(text: int, length: int) -> np.uint64:
    """The first eight bytes as a number that sorts like them, padded with zeros."""
    if length >= 8:
        return swap_bytes(np.uint64(load_long(text)))
    word = np.uint64(0)
    for place in range(length):
        word |= np.uint64(load_byte(text + place)) << np.uint64(56 - 8 * place)
    return word


@kernel
def _is_less(values: int, start: int, end: int, other: int, other_end: int) -> bool:
    """Whether the text from `start` is less, by its bytes, than the one from `other`."""
    shared, first = min(end - start, other_end - other), 0
    while shared - first >= 8 and load_long(values + start + first) == load_long(values + other + first):
        first += 8
    for place in range(first, shared):
        one, two = load_byte(values + start + place), load_byte(values + other + place)
        if one != two:
            return one < two
    return end - start < other_end - other


@kernel
def _put_bits(values: int, validity: int, first: int, count: int, picked: int, at: int) -> tuple[int, int, int]:
    """Booleans, one bit each. Returns their end, and the rows of a least and a greatest one."""
    byte, places, low, high, is_low_true, is_high_true = np.int64(0), 0, np.int64(-1), np.int64(-1), True, False
    for number in range(count):
        row = _row(picked, first, number)
        if _is_null(validity, row):
            continue
        bit = _bit(values, row)
        if low < 0 or (is_low_true and not bit):
            low, is_low_true = row, bit != 0
        if high < 0 or (bit and not is_high_true):
            high, is_high_true = row, bit != 0
        byte |= bit << places
        places += 1
        if places == 8:
            store(at, np.uint8(byte))
            at, byte, places = at + 1, np.int64(0), 0
    if places:
        store(at, np.uint8(byte))
        at += 1
    return at, low, high


@kernel
def _put_codes(
    values: int, width: int, validity: int, first: int, count: int, picked: int, present: int, at: int
) -> tuple[int, int, int]:
    """Dictionary codes, from 32-bit numbers: their width in bits, then one run, repeated or bit-packed.

    Returns their end, the least and the greatest.
    """
    low, high = _GREATEST, np.int64(-1)
    for number in range(count):
        row = _row(picked, first, number)
        if not _is_null(validity, row):
            code = np.int64(load_int(values + 4 * row))
            low, high = min(low, code), max(high, code)
    store(at, np.uint8(width))
    if low >= high:
        at = _put_varint(at + 1, present << 1)
        for place in range((width + 7) // 8):
            store(at + place, np.uint8(max(high, 0) >> 8 * place & 0xFF))
        return at + (width + 7) // 8, high, high
    at = _put_varint(at + 1, (present + 7) // 8 << 1 | 1)
    end = at + (present + 7) // 8 * width
    bits, places = np.uint64(0), 0
    for number in range(count):
        row = _row(picked, first, number)
        if _is_null(validity, row):
            continue
        bits |= np.uint64(np.uint32(load_int(values + 4 * row))) << np.uint64(places)
        places += width
        while places >= 8:
            store(at, np.uint8(bits))
            bits >>= np.uint64(8)
            at, places = at + 1, places - 8
    while at < end:
        store(at, np.uint8(bits))
        bits >>= np.uint64(8)
        at += 1
    return end, low, high


@kernel
def _digits(number: int) -> int:
    digits = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits


@kernel
def _put_number(number: int, digits: int, at: int) -> None:
    for place in range(digits):
        store(at + digits - 1 - place, np.uint8(48 + number % 10))
        number //= 10


@kernel
def _put_literal(length: int, at: int) -> int:
    """The header of a snappy literal of `length` bytes, at most 256."""
    if length <= 60:
        store(at, np.uint8(length - 1 << 2))
        return at + 1
    store(at, np.uint8(60 << 2))
    store(at + 1, np.uint8(length - 1))
    return at + 2


@kernel
def _numbered_size(length: int, first: int, count: int) -> int:
    """Size in bytes of the length-prefixed texts."""
    size, number = np.int64(0), first
    while number < first + count:
        digits = _digits(number)
        below = min(first + count, np.int64(10) ** digits)
        size += (below - number) * (4 + length + digits)
        number = below
    return size


@kernel
def _put_numbered(prefix: int, length: int, first: int, count: int, at: int) -> int:
    """Length-prefixed texts that end with consecutive numbers. Returns their end."""
    for number in range(first, first + count):
        digits = _digits(number)
        store(at, np.int32(length + digits))
        copy(at + 4, prefix, length)
        _put_number(number, digits, at + 4 + length)
        at += 4 + length + digits
    return at


@kernel
def _compress_numbered(prefix: int, length: int, first: int, count: int, at: int) -> tuple[int, int]:
    """The page of `_put_numbered`, snappy-compressed: each text equals the previous one but for its last digits.

    There are no nulls; definition levels are those of `_put_levels`. Returns its end, and its uncompressed size.
    """
    levels = at + 32
    head = _put_levels(0, 0, count, 0, levels) - levels
    size = head + _numbered_size(length, first, count)
    at = _put_literal(head, _put_varint(at, size))
    copy(at, levels, head)
    at += head
    before = 0
    for number in range(first, first + count):
        digits = _digits(number)
        whole = 4 + length + digits
        if digits != before:
            at = _put_literal(whole, at)
            store(at, np.int32(length + digits))
            copy(at + 4, prefix, length)
            _put_number(number, digits, at + 4 + length)
            at, before = at + whole, digits
            continue
        same, rest = whole - 1, number
        while rest % 10 == 0:
            same, rest = same - 1, rest // 10
        for start in range(0, same, 64):
            store(at, np.uint8(min(64, same - start) - 1 << 2 | 2))
            store(at + 1, np.uint16(whole))
            at += 3
        at = _put_literal(whole - same, at)
        _put_number(number, whole - same, at)
        at += whole - same
    return at, size


measure_pages = Entry(_measure_pages, INT64S, OUT_INT64S)
encode_pages = Entry(_encode_pages, INT64S, INT, OUT_INT64S)
