"""Tables of new entries, made in one go, are those that are made from what is stored."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.index.record.key_table import build_entries_table
from lakebed.index.record.new_tables import build_plain_table

SEED = bytes(range(16))


def entries(count: int, places: int, used: int) -> tuple[pa.Array, pa.Array]:
    """Keys in some of the places; two of these are in one file group, at different times."""
    locations = [RecordLocation("p", f"file-{max(number, 1)}", 1000 + number) for number in range(places)]
    values = pa.array([encode_record_index_value(location) for location in locations], pa.large_binary())
    ids = np.random.default_rng(1).integers(0, used, count).astype(np.int32)
    return pa.array([f"key {number}" for number in range(count)]), pa.DictionaryArray.from_arrays(pa.array(ids), values)


def test_it_is_the_table_of_the_entries() -> None:
    for count, places, used in ((5000, 10, 10), (5000, 200, 7), (1, 3, 3)):
        keys, values = entries(count, places, used)
        made = build_plain_table(keys.slice(0), values, stored_schema(), SEED)
        expected = build_entries_table(keys, values, pa.array([], pa.string()), stored_schema(), SEED)
        assert made.slots.tolist() == expected.slots.tolist()
        assert made.place_of.tolist() == expected.place_of.tolist()
        assert made.instants_ms.tolist() == expected.instants_ms.tolist()
        assert (made.places, made.ordering.tolist()) == (expected.places, expected.ordering.tolist())
        assert made.replaces_others == expected.replaces_others


def test_a_slice_of_entries() -> None:
    keys, values = entries(3000, 10, 10)
    made = build_plain_table(keys.slice(100, 900), values.slice(100, 900), stored_schema(), SEED)
    nothing = pa.array([], pa.string())
    expected = build_entries_table(keys.slice(100, 900), values.slice(100, 900), nothing, stored_schema(), SEED)
    assert made.slots.tolist() == expected.slots.tolist()
