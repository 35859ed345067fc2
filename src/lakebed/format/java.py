"""Java's `String.hashCode`, by which keys find their shard, and Java's text of numbers, which secondary indexes store.

A double or float is written with the shortest digits that read back as the same number: plainly from 10⁻³ up to 10⁷
(`2.0`, `0.001`), in scientific notation outside (`1.0E10`, `1.0E-5`). This is the text of Java 19 and later. Earlier
releases add digits to some doubles (`1.9999999999999998E23` for `2.0E23`) and to about one float in nine. From 2⁻¹⁰ up
to 2²⁴, three million doubles of all shapes had the same text in Java 17 and 25.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels.sharding import find_shards

_FEW_COUNT = 8
"""Number of keys up to which plain Python is as fast as arrays."""


def java_hash(text: str) -> int:
    """`String.hashCode` of `text`: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def shard_of(key: str, shards: int) -> int:
    """Which of `shards` file groups holds the entry of `key`."""
    assert shards > 0, shards
    if shards == 1:
        return 0
    # Java's abs(-2**31) stays negative and its remainder takes that sign; the second abs drops it again.
    return abs(java_hash(key)) % shards


def shards_of(keys: ArrowArray, shards: int) -> npt.NDArray[np.int32]:
    """`shard_of` for each of an array of strings."""
    assert shards > 0
    assert keys.null_count == 0
    if shards == 1:
        return np.zeros(len(keys), np.int32)
    texts = keys if pa.types.is_large_string(keys.type) else keys.cast(pa.string())
    if len(keys) <= _FEW_COUNT:
        return np.array([shard_of(key, shards) for key in texts.to_pylist()], np.int32)
    found = np.empty(len(keys), np.int32)
    find_shards(*binary_buffers(texts), shards, found)
    return found


_PLAIN_MIN, _PLAIN_END = 1e-3, 1e7
_ONE_SPELLING_MIN, _ONE_SPELLING_END = 2.0**-10, 2.0**24
_PARTS = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?(?:e(?P<exponent>[+-]?[0-9]+))?$"
# For the smallest numbers, several texts of two digits may read back as the same number. Java writes the closest,
# although a text of one digit would be shorter: 4.9E-324, not 5.0E-324.
_COARSE_END = {pa.float32(): 1e-43, pa.float64(): 1e-321}
_ONE_DIGIT = r"^-?[0-9]\.0E"


def java_float_text(values: ArrowArray) -> ArrowArray:
    """Each float or double as `Float.toString` or `Double.toString` spells it; nulls stay null."""
    shortest = pc.cast(values, pa.string())
    size = pc.abs(values)
    plain = pc.or_(pc.equal(size, 0.0), pc.and_(pc.greater_equal(size, _PLAIN_MIN), pc.less(size, _PLAIN_END)))
    if pc.all(plain).as_py():
        return _plain(shortest)
    text = pc.if_else(plain, _plain(shortest), _scientific(shortest))
    text = pc.if_else(pc.is_finite(values), text, _not_finite(values))
    return _with_coarse(text, values, size)


def has_one_spelling(number: float, *, is_double: bool = True) -> bool:
    """Whether all releases of Java write the same text for a number, so that a lookup by its text is reliable."""
    if number == 0 or not math.isfinite(number):
        return True
    return is_double and _ONE_SPELLING_MIN <= abs(number) < _ONE_SPELLING_END


def _plain(shortest: ArrowArray) -> ArrowArray:
    whole = pc.invert(pc.match_substring(shortest, "."))
    return pc.if_else(whole, pc.binary_join_element_wise(shortest, ".0", ""), shortest)


def _scientific(shortest: ArrowArray) -> ArrowArray:
    parts = pc.extract_regex(shortest, _PARTS)
    sign, whole, fraction, exponent = (pc.struct_field(parts, [index]) for index in range(4))
    written = pc.binary_join_element_wise(whole, fraction, "")
    digits = pc.ascii_ltrim(written, "0")
    leading_zeros = pc.subtract(pc.binary_length(written), pc.binary_length(digits))
    power = pc.subtract(pc.subtract(pc.add(_number(exponent), pc.binary_length(whole)), leading_zeros), 1)
    digits = pc.ascii_rtrim(digits, "0")
    first, rest = pc.utf8_slice_codeunits(digits, 0, 1), pc.utf8_slice_codeunits(digits, 1)
    rest = pc.if_else(pc.equal(rest, ""), "0", rest)
    mantissa = pc.binary_join_element_wise(first, rest, ".")
    return pc.binary_join_element_wise(sign, mantissa, "E", pc.cast(power, pa.string()), "")


def _number(exponent: ArrowArray) -> ArrowArray:
    unsigned = pc.replace_substring(pc.if_else(pc.equal(exponent, ""), "0", exponent), "+", "")
    return pc.cast(unsigned, pa.int32())


def _not_finite(values: ArrowArray) -> ArrowArray:
    infinity = pc.if_else(pc.less(values, 0.0), "-Infinity", "Infinity")
    return pc.if_else(pc.is_nan(values), "NaN", infinity)


def _with_coarse(text: ArrowArray, values: ArrowArray, size: ArrowArray) -> ArrowArray:
    coarse = pc.and_(pc.less(size, _COARSE_END[values.type]), pc.match_substring_regex(text, _ONE_DIGIT))
    if not pc.any(coarse).as_py():
        return text
    # Such numbers are few, so they are converted one at a time.
    closest = [_two_digits(value) for value in values.filter(coarse).to_pylist()]
    return pc.replace_with_mask(text, pc.fill_null(coarse, False), pa.array(closest, pa.string()))


def _two_digits(value: float) -> str:
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}E{int(exponent)}"
