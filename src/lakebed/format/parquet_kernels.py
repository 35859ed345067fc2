"""Pages of Parquet columns in compiled code: which rows have a value, and the values one after the other.

A page is told by numbers, in the order of `parquet_encode.PageTask`; where its column lies, by addresses. Nothing here
checks these: whoever makes them has the arrays, and room for what they come to.
"""

from __future__ import annotations

import numpy as np

from lakebed.format.avro.memory import compiled, copy, load_byte, load_int, load_long, store
from lakebed.format.hfile.native import Int64s, swap_bytes

_FIXED, _TEXT, _LARGE_TEXT, _BITS, _CODES = 0, 1, 2, 3, 4
"""See `parquet_encode`: compiled code goes by what its own file says. The last kind are numbered texts."""


@compiled
def encode_pages(tasks: Int64s, out: int, found: Int64s) -> None:
    """Write the pages of `tasks`, nine numbers each, to where they belong behind `out`.

    What is `found` of each: its size, and the rows with the least and the greatest text, -1 if there is none. Numbered
    texts are compressed here; instead of such rows they have the size that they had before.
    """
    for page in range(len(tasks) // 9):
        task = tasks[9 * page : 9 * page + 9]
        kind, width, values, offsets, validity, first, count = (
            task[0],
            task[1],
            task[2],
            task[3],
            task[4],
            task[5],
            task[6],
        )
        start = out + task[8]
        at = _put_levels(validity, first, count, start) if task[7] and kind <= _CODES else start
        low = high = np.int64(-1)
        if kind == _FIXED:
            at = _put_fixed(values, width, validity, first, count, at)
        elif kind in (_TEXT, _LARGE_TEXT):
            at, low, high = _put_texts(values, offsets, kind == _LARGE_TEXT, validity, first, count, at)
        elif kind == _BITS:
            at = _put_bits(values, validity, first, count, at)
        elif kind == _CODES:
            at = _put_codes(values, width, validity, first, count, at)
        else:
            at, low = _put_numbered(values, width, first, count, at)
        found[3 * page], found[3 * page + 1], found[3 * page + 2] = at - start, low, high


@compiled
def _bit(bits: int, at: int) -> int:
    return np.int64(load_byte(bits + (at >> 3))) >> (at & 7) & 1


@compiled
def _put_varint(at: int, value: int) -> int:
    while value >= 0x80:
        store(at, np.uint8(value & 0x7F | 0x80))
        value >>= 7
        at += 1
    store(at, np.uint8(value))
    return at + 1


@compiled
def _put_levels(validity: int, first: int, count: int, at: int) -> int:
    """Definition levels with their length before them: one run, or a bit each; where they end."""
    start = at + 4
    if validity == 0:
        end = _put_varint(start, count << 1)
        store(end, np.uint8(1))
        end += 1
    else:
        end = _put_varint(start, (count + 7) // 8 << 1 | 1)
        for row in range(0, count, 8):
            byte = np.int64(0)
            for place in range(min(8, count - row)):
                byte |= _bit(validity, first + row + place) << place
            store(end, np.uint8(byte))
            end += 1
    store(at, np.int32(end - start))
    return end


@compiled
def _put_fixed(values: int, width: int, validity: int, first: int, count: int, at: int) -> int:
    if validity == 0:
        copy(at, values + width * first, width * count)
        return at + width * count
    for row in range(first, first + count):
        if _bit(validity, row):
            copy(at, values + width * row, width)
            at += width
    return at


@compiled
def _text_start(offsets: int, is_large: bool, row: int) -> int:
    return load_long(offsets + 8 * row) if is_large else np.int64(load_int(offsets + 4 * row))


@compiled
def _put_texts(
    values: int, offsets: int, is_large: bool, validity: int, first: int, count: int, at: int
) -> tuple[int, int, int]:
    """Texts, each with its length before it; where they end, and the rows with the least and the greatest."""
    low, high, low_start, high_start, low_end, high_end = np.int64(-1), np.int64(-1), 0, 0, 0, 0
    least = greatest = np.uint64(0)
    end = _text_start(offsets, is_large, first)
    for row in range(first, first + count):
        start, end = end, _text_start(offsets, is_large, row + 1)
        if validity and not _bit(validity, row):
            continue
        length = end - start
        store(at, np.int32(length))
        copy(at + 4, values + start, length)
        word = _first_word(values + start, length)
        at += 4 + length
        if low < 0 or word < least or (word == least and _is_less(values, start, end, low_start, low_end)):
            low, least, low_start, low_end = row, word, start, end
        if high < 0 or word > greatest or (word == greatest and _is_less(values, high_start, high_end, start, end)):
            high, greatest, high_start, high_end = row, word, start, end
    return at, low, high


@compiled
def _first_word(text: int, length: int) -> np.uint64:
    """The first eight bytes, such that their order is that of the numbers; zeros where a text has fewer."""
    if length >= 8:
        return swap_bytes(np.uint64(load_long(text)))
    word = np.uint64(0)
    for place in range(length):
        word |= np.uint64(load_byte(text + place)) << np.uint64(56 - 8 * place)
    return word


@compiled
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


@compiled
def _put_bits(values: int, validity: int, first: int, count: int, at: int) -> int:
    byte, places = np.int64(0), 0
    for row in range(first, first + count):
        if validity and not _bit(validity, row):
            continue
        byte |= _bit(values, row) << places
        places += 1
        if places == 8:
            store(at, np.uint8(byte))
            at, byte, places = at + 1, np.int64(0), 0
    if places:
        store(at, np.uint8(byte))
        at += 1
    return at


@compiled
def _put_codes(values: int, width: int, validity: int, first: int, count: int, at: int) -> int:
    """Codes of a dictionary, of 32 bits each: their width in bits, then one run of all of them, packed."""
    present = count
    if validity:
        present = 0
        for row in range(first, first + count):
            present += _bit(validity, row)
    store(at, np.uint8(width))
    at = _put_varint(at + 1, (present + 7) // 8 << 1 | 1)
    end = at + (present + 7) // 8 * width
    bits, places = np.uint64(0), 0
    for row in range(first, first + count):
        if validity and not _bit(validity, row):
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
    return end


@compiled
def _digits(number: int) -> int:
    digits = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits


@compiled
def _put_number(number: int, digits: int, at: int) -> None:
    for place in range(digits):
        store(at + digits - 1 - place, np.uint8(48 + number % 10))
        number //= 10


@compiled
def _put_literal(length: int, at: int) -> int:
    """The head of so many bytes that follow as they are, in the format of snappy: at most 256."""
    if length <= 60:
        store(at, np.uint8(length - 1 << 2))
        return at + 1
    store(at, np.uint8(60 << 2))
    store(at + 1, np.uint8(length - 1))
    return at + 2


@compiled
def _put_numbered(prefix: int, length: int, first: int, count: int, at: int) -> tuple[int, int]:
    """A page of texts that end with consecutive numbers, compressed: each is the one before but for its last digits.

    Where it ends, and its size before. All texts are there, which is told as `_put_levels` does.
    """
    levels, size, number = at + 32, np.int64(0), first
    head = _put_levels(0, 0, count, levels) - levels
    while number < first + count:
        digits = _digits(number)
        below = min(first + count, np.int64(10) ** digits)
        size += (below - number) * (4 + length + digits)
        number = below
    size += head
    at = _put_varint(at, size)
    at = _put_literal(head, at)
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
            at += whole
            before = digits
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
