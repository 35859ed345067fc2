from __future__ import annotations

import itertools

import pytest

from lakebed.errors import CorruptTableError
from lakebed.format.log.file import BlockKind, HeaderKey, encode_log_block
from lakebed.model.files import FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage, open_storage
from lakebed.view import load_blocks
from lakebed.view.blocks import CountedInstants

_fresh = itertools.count()
T = [f"2026010100000000{n}" for n in range(10)]


def block(instant: str, **header: str) -> bytes:
    keys = {HeaderKey.INSTANT_TIME: instant, **{HeaderKey[name]: value for name, value in header.items()}}
    kind = BlockKind.COMMAND if "TARGET_INSTANT_TIME" in header else BlockKind.DELETE
    return encode_log_block(kind, keys, b"")


def stored(*logs: bytes, size: int | None = None) -> tuple[Storage, FileSlice]:
    storage = open_storage(f"memory://blocks-{next(_fresh)}")
    files = []
    for number, data in enumerate(logs):
        files.append(
            LogFile(f".f_{T[0]}.log.{number + 1}_0-0-0", "f", InstantTime(T[0]), number + 1, "0-0-0", size=size)
        )
        storage.create(files[-1].name, data)
    return storage, FileSlice(FileGroupId("", "f"), InstantTime(T[0]), None, tuple(files))


def instants(storage: Storage, file_slice: FileSlice, *, layout: int = 2, counts=lambda instant: True) -> list[str]:
    return [filed.instant for filed in load_blocks(storage, file_slice, layout=layout, counts=counts)]


def test_a_command_block_cancels_the_instant_it_names_and_no_other() -> None:
    rollback = block(T[4], TARGET_INSTANT_TIME=T[1], COMMAND_BLOCK_TYPE="0")
    found = instants(*stored(block(T[1]), block(T[2]) + rollback, block(T[5])), layout=1)
    assert found == [T[2], T[5]]


def test_layout_1_leaves_out_blocks_of_uncommitted_instants() -> None:
    counted = CountedInstants(frozenset({T[2]}), first=T[2])
    assert instants(*stored(block(T[1]) + block(T[2]) + block(T[3])), layout=1, counts=counted.includes) == [T[1], T[2]]


def test_a_compacted_block_takes_the_place_of_the_newest_block_it_replaces() -> None:
    compacted = block(T[5], COMPACTED_BLOCK_TIMES=f"{T[1]},{T[2]}")
    assert instants(*stored(block(T[1]), block(T[2]), block(T[3]), compacted)) == [T[5], T[3]]


def test_a_compacted_block_can_be_compacted_again() -> None:
    inner = block(T[5], COMPACTED_BLOCK_TIMES=f"{T[1]},{T[2]}")
    outer = block(T[6], COMPACTED_BLOCK_TIMES=f"{T[3]},{T[5]}")
    found = instants(*stored(block(T[1]), block(T[2]), block(T[3]), block(T[4]), inner, outer))
    assert found == [T[6], T[4]]


@pytest.mark.parametrize("layout", [1, 2])
def test_a_file_shorter_than_committed_is_corrupt(layout: int) -> None:
    storage, file_slice = stored(block(T[1]), size=10_000)
    with pytest.raises(CorruptTableError, match=r"log\.1.*committed bytes"):
        instants(storage, file_slice, layout=layout)
