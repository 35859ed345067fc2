"""Looking for keys in file slices: the answers are the same whether a file's footer is asked first or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakebed.model.files import FileSlice
from lakebed.model.words import META_COLUMNS, RECORD_KEY
from lakebed.read.file_slice import SliceTask
from lakebed.write.files.base import create_base_file
from lakebed.write.tag.files import FindTask, find_keys, rows_by_partition
from lakebed.write.values import WriteContext
from write_tasks import a_context, a_task, prepared, slice_of

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
STORED = [f"k{number:04}" for number in range(1000)]
LARGE = 1 << 30


@pytest.fixture(scope="module")
def written() -> tuple[WriteContext, FileSlice]:
    context = a_context(SCHEMA)
    rows = pa.table({"id": STORED, "region": ["eu"] * 1000, "ts": range(1000)}, schema=SCHEMA)
    (file,) = create_base_file(a_task(context, prepared(rows)))
    return context, slice_of(file)


def find(
    written: tuple[WriteContext, FileSlice], keys: list[str], *, size: int, prune: bool = True
) -> tuple[list[int], list[int], int]:
    """Which keys are found, where, and how often a file was opened for it."""
    context, file_slice = written
    assert file_slice.base is not None
    file_slice = replace(file_slice, base=replace(file_slice.base, size=size))
    schema = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *SCHEMA])
    scan = SliceTask(context.storage, context.config, file_slice, schema, (RECORD_KEY,), context.counts)
    before = context.storage.counts.snapshot()
    found, positions = find_keys(FindTask(scan, pa.array(keys, pa.string()), prune))
    return found.tolist(), positions.tolist(), (context.storage.counts.snapshot() - before).opens


@pytest.mark.parametrize(
    "keys",
    [
        ["k0003"],
        ["a", "k0999", "zz", "k0000"],
        [f"k{number:04}" for number in range(900, 1100)],
        [f"k{number:04}" for number in range(1000, 1200)],
        [f"x{number}" for number in range(500)],
        [*(f"x{number}" for number in range(500)), "k0500"],
    ],
)
@pytest.mark.parametrize("size", [1 << 10, LARGE])
def test_keys_are_found_at_their_places(written: tuple[WriteContext, FileSlice], keys: list[str], size: int) -> None:
    expected = [(at, STORED.index(key)) for at, key in enumerate(keys) if key in STORED]
    for prune in (True, False):
        found, positions, _ = find(written, keys, size=size, prune=prune)
        assert list(zip(found, positions, strict=True)) == expected


def test_a_large_file_whose_footer_knows_no_key_is_not_read(written: tuple[WriteContext, FileSlice]) -> None:
    strangers = [f"k0500-{number}" for number in range(500)]
    assert find(written, strangers, size=LARGE) == ([], [], 1)
    assert find(written, [*strangers, "k0500"], size=LARGE) == ([500], [500], 2)


def test_the_footer_of_a_small_file_is_not_asked(written: tuple[WriteContext, FileSlice]) -> None:
    assert find(written, ["k0001"], size=1 << 10) == ([0], [1], 1)
    assert find(written, ["x"], size=1 << 10) == ([], [], 1)


@pytest.mark.parametrize("count", [3, 40_000])
def test_rows_by_partition_ascend(count: int) -> None:
    codes = [number % count for number in range(2 * count)]
    paths = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array([f"p{at}" for at in range(count)]))
    found = rows_by_partition(pa.table({"_hoodie_partition_path": paths}))
    assert {path: rows.tolist() for path, rows in found.items()} == {f"p{at}": [at, at + count] for at in range(count)}
    some = rows_by_partition(pa.table({"_hoodie_partition_path": paths}), np.array([1, 2, count + 2]))
    assert {path: rows.tolist() for path, rows in some.items()} == {"p1": [1], "p2": [2, count + 2]}
