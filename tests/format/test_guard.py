from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptTableError
from lakebed.format.guard import decode_json_object, encode_json_object

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
plain = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=5), scalars, max_size=3)


@given(st.dictionaries(st.text(max_size=5), plain, max_size=3))
def test_round_trip(value: dict[str, object]) -> None:
    assert decode_json_object(encode_json_object(value), path="a.json", what="a") == value


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"1", b"{", b'{"a": 1} x', b"\xff", b'{"a": "\\ud83d"}', b'{"\\udc00": 1}', b'{"a":' * 9999]
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"a\.json"):
        decode_json_object(data, path="a.json", what="a")


def test_escaped_pairs_are_characters() -> None:
    assert decode_json_object(b'{"a": "\\ud83d\\ude00"}', path="a.json", what="a") == {"a": "😀"}
