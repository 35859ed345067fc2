"""The key table of entries that are about to be written, made in one go.

Up to where a file has deletes or ordering values: `key_table` takes care of all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.metadata.record_index import decode_record_index_value
from lakebed.index.record.key_table import KeyTable, slot_bytes
from lakebed.kernels.key_table import enter_keys
from lakebed.model.files import FileGroupId


def build_plain_table(keys: ArrowArray, values: ArrowArray, schema: str, seed: bytes) -> KeyTable:
    """The table of entries without ordering values, whose values are a dictionary: `schema` is that of these."""
    numbers = np.zeros(len(values.dictionary), np.uint32)
    slots = np.zeros(slot_bytes(len(keys)) // 4, np.uint32)
    enter_keys(*binary_buffers(keys), values.indices.to_numpy(), seed, numbers, slots)
    used = np.flatnonzero(numbers)
    stored = values.dictionary if len(used) == len(numbers) else values.dictionary.take(pa.array(used))
    locations = [decode_record_index_value(value, schema, path="<new entries>") for value in stored.to_pylist()]
    places: dict[FileGroupId, int] = {}
    of_entry = [places.setdefault(FileGroupId(each.partition, each.file_id), len(places)) for each in locations]
    instants = np.array([each.instant_ms for each in locations], np.int64)
    return KeyTable(slots, np.array(of_entry, np.int32), instants, tuple(places), np.empty(0, np.int64))
