"""Ordering values at the end of record index entries: put together and taken apart as a general Avro codec does."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTableError
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.ordering_values import NO_ORDERING, split_ordering
from lakebed.format.metadata.record_index import (
    RecordLocation,
    decode_entry_values,
    decode_record_index_value,
    encode_ordered_entries,
    encode_record_index_value,
)

SCHEMA = stored_schema(has_ordering=True)
AVRO = fastavro.parse_schema(json.loads(SCHEMA))
LOCATION = RecordLocation("eu", "9e1ff7e7-7578-4c65-9921-704ef5274d85-0", 1794786930634)
NUMBERS = st.one_of(
    st.none(), st.integers(-(2**63) + 1, 2**63 - 1), st.sampled_from([0, 1, -1, 63, 64, -64, -65, 2**62, 2**63 - 1])
)


def general(value: bytes) -> dict[str, Any]:
    """The location as a general decoder has it."""
    stream = io.BytesIO(value)
    found: dict[str, Any] = fastavro.schemaless_reader(stream, AVRO, None)["recordIndexMetadata"]  # type: ignore[index,call-overload]
    assert stream.tell() == len(value)
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(NUMBERS, max_size=40))
def test_entries_are_those_of_a_general_codec(numbers: list[int | None]) -> None:
    values = encode_ordered_entries(LOCATION, pa.array(numbers, pa.int64()))
    assert [general(value)["orderingValue"] for value in values.to_pylist()] == numbers
    assert [general(value)["instantTime"] for value in values.to_pylist()] == [LOCATION.instant_ms] * len(numbers)
    for plain in (values, values.dictionary.take(values.indices).cast(pa.binary())):
        decoded = decode_entry_values(plain, SCHEMA, path="")
        assert [decoded.locations[i] for i in decoded.ids] == [LOCATION] * len(numbers)
        assert numbers == [] or decoded.ordering.to_pylist() == numbers


def test_one_entry_comes_back_with_its_value() -> None:
    for number in (None, 0, -5, 1794786930634000):
        location = RecordLocation("", "f1", 7, number)
        value = encode_record_index_value(location, has_ordering=True)
        assert decode_record_index_value(value, SCHEMA) == location
        assert general(value)["orderingValue"] == number


def test_locations_are_decoded_once_each_however_many_values_there_are() -> None:
    many = [encode_ordered_entries(RecordLocation("eu", f"f{n}", n), pa.array(range(500))) for n in range(3)]
    values = pa.chunked_array([part.dictionary for part in many]).combine_chunks()
    decoded = decode_entry_values(values, SCHEMA, path="")
    assert [location.file_id for location in decoded.locations] == ["f0", "f1", "f2"]
    assert decoded.ordering_numbers is not None
    assert decoded.ordering_numbers.tolist() == [*range(500)] * 3


def test_a_position_that_looks_like_an_ordering_value_is_not_taken_for_one() -> None:
    """Nobody writes positions. If somebody did: number 1 and no ordering value end in the bytes 02 02 00 00."""
    datum = {"partitionName": "eu", "fileIdHighBits": -1, "fileIdLowBits": -1, "fileIndex": -1, "fileId": "f1"}
    datum |= {"instantTime": 7, "fileIdEncoding": 1, "position": 1, "orderingValue": None}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, AVRO, {"key": "", "type": 5, "recordIndexMetadata": datum})
    assert stream.getvalue().endswith(b"\2\2\0\0")
    decoded = decode_entry_values(pa.array([stream.getvalue()]), SCHEMA, path="")
    assert decoded.locations == [RecordLocation("eu", "f1", 7)]
    assert decoded.ordering.to_pylist() == [None]
    assert decoded.ordering_numbers is None


@pytest.mark.parametrize("cut", range(1, 12))
def test_broken_entries_are_told(cut: int) -> None:
    value = encode_record_index_value(RecordLocation("eu", "f1", 7, 1794786930634000), has_ordering=True)
    with pytest.raises(CorruptTableError):
        decode_entry_values(pa.array([value, value[:-cut]]), SCHEMA, path="p")


def test_the_number_that_stands_for_none_is_none() -> None:
    values = encode_ordered_entries(LOCATION, pa.array([NO_ORDERING, 1], pa.int64()))
    split = split_ordering(values.dictionary.take(values.indices))
    assert split is not None
    assert np.array_equal(split.ordering, [NO_ORDERING, 1])
    assert decode_entry_values(values, SCHEMA, path="").ordering.to_pylist() == [None, 1]
