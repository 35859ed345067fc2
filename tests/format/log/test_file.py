from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import RealTable
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.log.file import BlockKind, HeaderKey, block_kinds, decode_log_file, encode_log_block
from lakebed.model.source import BytesSource

PATH = "eu/.f-0_20261115235346030.log.1_0-945-2432"
PLACEHOLDER = bytes.fromhex(
    "234855444923 0000000000000042 00000001 00000001 00000001"
    "00000000 00000011 3030303030303030303030303030303030"
    "0000000000000009 0000000300000001 00 00000000 0000000000000048"
)
COMMAND = encode_log_block(
    BlockKind.COMMAND,
    {HeaderKey.COMMAND_BLOCK_TYPE: "0", HeaderKey.INSTANT_TIME: "2", HeaderKey.TARGET_INSTANT_TIME: "1"},
    b"",
)


def test_smallest_real_log_file() -> None:
    assert len(PLACEHOLDER) == 80
    (block,) = decode_log_file(PLACEHOLDER, path=PATH)
    assert block.kind is BlockKind.DELETE
    assert block.header == {HeaderKey.INSTANT_TIME: "00000000000000000"}
    assert bytes(block.content) == bytes.fromhex("000000030000000100")
    assert (block.offset, block.content_offset) == (0, 59)
    assert encode_log_block(block.kind, block.header, block.content) == PLACEHOLDER


def test_content_is_a_view() -> None:
    (block,) = decode_log_file(PLACEHOLDER, path=PATH)
    assert block.content.obj is PLACEHOLDER


def test_empty_file_has_no_blocks() -> None:
    assert decode_log_file(b"", path=PATH) == ()


def test_log_files_of_real_tables_decode_and_encode_to_the_same_bytes(real_table: RealTable) -> None:
    for path in log_files(real_table.path):
        data = path.read_bytes()
        blocks = decode_log_file(data, path=path.name)
        assert blocks, path
        assert b"".join(encode_log_block(block.kind, block.header, block.content) for block in blocks) == data
        assert decode_log_file(data, path=path.name, torn="skip") == blocks


def test_rollback_of_a_version_6_table_is_a_command_block(unpack) -> None:
    blocks = [
        block
        for path in log_files(unpack("hudi015_mor_part_rollback").path)
        for block in decode_log_file(path.read_bytes(), path=path.name)
        if block.kind is BlockKind.COMMAND
    ]
    assert blocks
    for block in blocks:
        assert len(block.content) == 0
        assert block.header[HeaderKey.COMMAND_BLOCK_TYPE] == "0"
        assert HeaderKey.TARGET_INSTANT_TIME in block.header


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (17, 2, "log format version 2 is unknown"),
        (17, 0, "log format version 0 is unknown"),
        (21, 2, "log block type 2 is unknown"),
        (21, 7, "log block type 7 is unknown"),
        (29, 9, "log block header key 9 is unknown"),
    ],
)
def test_unknown_numbers_are_refused_with_a_hint(offset: int, value: int, what: str) -> None:
    data = bytearray(PLACEHOLDER)
    data[offset] = value
    with pytest.raises(CorruptTableError, match=what) as caught:
        decode_log_file(bytes(data), path=PATH, torn="skip")
    assert caught.value.path == PATH
    assert "newer lakebed" in caught.value.hint


TORN = [
    ("cut in the content", PLACEHOLDER[:60]),
    ("cut after the magic", PLACEHOLDER[:6]),
    ("cut in the magic", PLACEHOLDER[:3]),
    ("block size too large", PLACEHOLDER[:6] + (2**62).to_bytes(8, "big") + PLACEHOLDER[14:]),
    ("block size negative", PLACEHOLDER[:6] + b"\xff" * 8 + PLACEHOLDER[14:]),
    ("total length differs", PLACEHOLDER[:-1] + b"\x49"),
    ("foreign bytes", b"not a log block at all"),
]


@pytest.mark.parametrize("torn", [torn for _, torn in TORN], ids=[name for name, _ in TORN])
def test_torn_blocks_are_refused_or_skipped(torn: bytes) -> None:
    data = PLACEHOLDER + torn + COMMAND
    with pytest.raises(CorruptTableError, match="no complete log block"):
        decode_log_file(data, path=PATH)
    kinds = [block.kind for block in decode_log_file(data, path=PATH, torn="skip")]
    assert kinds[-1] is BlockKind.COMMAND
    assert len(decode_log_file(torn, path=PATH, torn="skip")) == 0


def test_a_torn_end_hides_nothing_that_was_written_before_it() -> None:
    for cut in range(1, len(COMMAND)):
        data = PLACEHOLDER + COMMAND[:cut]
        with pytest.raises(CorruptTableError) as caught:
            decode_log_file(data, path=PATH)
        assert caught.value.offset == len(PLACEHOLDER)
        assert len(decode_log_file(data, path=PATH, torn="skip")) == 1


def test_header_must_be_utf8_and_stay_in_its_block() -> None:
    for damaged in (PLACEHOLDER[:40] + b"\xff" + PLACEHOLDER[41:], PLACEHOLDER[:36] + b"\xff" + PLACEHOLDER[37:]):
        with pytest.raises(CorruptTableError):
            decode_log_file(damaged, path=PATH, torn="skip")


HEADERS = st.dictionaries(st.sampled_from(list(HeaderKey)), st.text(max_size=20), max_size=4)
BLOCKS = st.lists(st.tuples(st.sampled_from(list(BlockKind)), HEADERS, st.binary(max_size=50)), max_size=4)


@given(BLOCKS)
def test_round_trip(parts: list[tuple[BlockKind, dict[HeaderKey, str], bytes]]) -> None:
    data = b"".join(encode_log_block(*part) for part in parts)
    blocks = decode_log_file(data, path=PATH)
    assert [(block.kind, dict(block.header), bytes(block.content)) for block in blocks] == parts
    assert [list(block.header) for block in blocks] == [list(header) for _, header, _ in parts]


@pytest.mark.parametrize("torn", ["refuse", "skip"])
def test_hostile_bytes(torn) -> None:
    good = PLACEHOLDER + COMMAND + PLACEHOLDER
    decode = lambda data: decode_log_file(data, path=PATH, torn=torn)  # noqa: E731
    check_decoder(decode, mutations(good, seed=1, count=3000), path=PATH)
    check_decoder(decode, truncations(good), path=PATH)
    check_decoder(decode, iter([b"#HUDI#" * 200_000, b"#" * 1_000_000]), path=PATH)


def log_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob(".*") if ".log." in path.name or ".archive." in path.name)


def test_kinds_are_told_without_reading_what_blocks_hold() -> None:
    kinds = (BlockKind.PARQUET_DATA, BlockKind.DELETE, BlockKind.AVRO_DATA)
    data = b"".join(encode_log_block(kind, {HeaderKey.INSTANT_TIME: "1"}, b"x" * 10_000) for kind in kinds)
    read = []

    class Source(BytesSource):
        def read(self, offset: int, length: int) -> bytes:
            read.append(length)
            return super().read(offset, length)

    assert tuple(block_kinds(Source(data))) == kinds
    assert sum(read) < 100
    assert tuple(block_kinds(BytesSource(b""))) == ()
    for end in range(1, len(data), 997):
        with pytest.raises(CorruptTableError):
            tuple(block_kinds(BytesSource(data[:end])))
    for at in (0, 8, 14, 21):
        with pytest.raises(CorruptTableError):
            tuple(block_kinds(BytesSource(data[:at] + b"\x7f" + data[at + 1 :])))
