from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from hfiles import Records, block, file_info, hbase_file, inner_index, real_hfiles, record, root_index, trailer
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.format.hfile import HFile, arrow, decode_hfile, encode_hfile
from lakebed.model.source import BytesSource

pytestmark = pytest.mark.usefixtures("either_implementation")

PATH = "record_index/record-index-0000-0_1.hfile"


def read_everything(data: bytes) -> None:
    source = BytesSource(data, PATH)
    try:
        file = HFile.open(source)
    except UnsupportedTableError:
        return
    for key in (b"", b"key-00007", b"k001", b"\xff"):
        file.find(key)
    file.find_many([b"key-%05d" % at for at in range(12)])
    list(file.scan_prefix(b"key-0000"))
    assert isinstance(file.schema, str | None)
    file.meta_block("bloomFilter")
    list(file.items())


def decode_everything(data: bytes) -> None:
    try:
        batch = decode_hfile(BytesSource(data, PATH))
    except UnsupportedTableError:
        return
    batch.validate(full=True)


@pytest.fixture(params=[read_everything, decode_everything, "in bulk"])
def decode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    if request.param == "in bulk":
        monkeypatch.setattr(arrow, "SMALL_COUNT", -1)
        return decode_everything
    return request.param


def records(count: int = 30) -> Records:
    return [(f"key-{at:05}".encode(), b"value %d" % (at % 3)) for at in range(count)]


def own_file(codec: str = "gzip") -> bytes:
    rows, values = (pa.array([pair[at] for pair in records()]) for at in (0, 1))
    options = {"codec": codec, "block_bytes_max": 200, "bloom": b"QUJD", "base_file": True}
    return encode_hfile(rows, values, schema='"bytes"', created_ms=1, **options)


def real_file() -> bytes:
    return max((data for path, data in real_hfiles().items() if path.endswith(".hfile")), key=len)


FILES = {
    "real": real_file,
    "own": own_file,
    "own, plain": lambda: own_file("none"),
    "levels": lambda: hbase_file(records(), levels=3),
    "levels, plain": lambda: hbase_file(records(), levels=3, codec=2),
}


@pytest.mark.parametrize("name", FILES)
def test_mutated_files(name: str, decode: Callable[[bytes], None]):
    good = FILES[name]()
    decode(good)
    without_trailer = len(good) - 4096
    spread = mutations(good, seed=1, count=250)
    dense = (body + good[without_trailer:] for body in mutations(good[:without_trailer], seed=2, count=250))
    ends = (
        good[:without_trailer] + end + good[-4000:] for end in mutations(good[without_trailer:-4000], seed=3, count=150)
    )
    for inputs in (spread, dense, ends):
        assert check_decoder(decode, inputs, path=PATH) > 0


def test_truncated_files(decode: Callable[[bytes], None]):
    good = own_file()
    cuts = list(truncations(good, step=7))
    assert check_decoder(decode, iter(cuts), path=PATH) == len(cuts)


def assembled(
    data: bytes, index: bytes, info: bytes, *, count: int, entries: int, levels: int, inner: bytes = b""
) -> bytes:
    body = block(b"DATABLK*", data)
    body += block(b"IDXLEAF2", inner) if inner else b""
    sections = block(b"IDXROOT2", index) + block(b"IDXROOT2", b"") + block(b"FILEINF2", info)
    return body + sections + trailer(index_at=len(body), index_count=count, entry_count=entries, levels=levels)


def reframed(seed: int, count: int) -> Iterator[bytes]:
    """Files whose compressed parts were damaged before they were compressed."""
    rng = random.Random(seed)
    data = b"".join(record(*each) for each in records(12))
    info = file_info({b"schema": b'"bytes"', b"other": b"x" * 20})
    for _ in range(count):
        parts = {"data": data, "info": info, "inner": b"", "index": b""}
        size = len(block(b"DATABLK*", data))
        levels = rng.choice((1, 2))
        parts["inner"] = inner_index([(b"key-00000", 0, size)]) if levels == 2 else b""
        leaf = (b"key-00000", size, len(block(b"IDXLEAF2", parts["inner"])))
        parts["index"] = root_index([leaf if levels == 2 else (b"key-00000", 0, size)])
        which = rng.choice([name for name, part in parts.items() if part])
        parts[which] = next(mutations(parts[which], seed=rng.randrange(2**32), count=1))
        if which == "data":
            size = len(block(b"DATABLK*", parts["data"]))
            if levels == 2:
                parts["inner"] = inner_index([(b"key-00000", 0, size)])
                parts["index"] = root_index([(b"key-00000", size, len(block(b"IDXLEAF2", parts["inner"])))])
            else:
                parts["index"] = root_index([(b"key-00000", 0, size)])
        yield assembled(**parts, count=1, entries=12, levels=levels)


def test_damage_inside_compressed_blocks(decode: Callable[[bytes], None]):
    assert check_decoder(decode, reframed(seed=5, count=500), path=PATH) > 100


def one_block_file(block_bytes: bytes, entries: int = 1) -> bytes:
    index = root_index([(b"key", 0, len(block_bytes))])
    section = block(b"IDXROOT2", index) + block(b"IDXROOT2", b"") + block(b"FILEINF2", file_info({}))
    return block_bytes + section + trailer(index_at=len(block_bytes), index_count=1, entry_count=entries, levels=1)


@pytest.mark.parametrize(
    ("content", "announced"),
    [
        (b"\0" * 50_000_000, 50_000_000),  # A bomb that is honest about its size: a record it is not.
        (b"\0" * 50_000_000, 1000),  # More than announced.
        (record(b"key", b"v"), 2**31 - 1),  # More announced than deflate can make.
        (record(b"key", b"v"), 1000),  # More announced than there is.
        (record(b"key", b"v"), 10),
        (record(b"key", b"v"), -1),
    ],
)
def test_sizes_that_lie(content: bytes, announced: int, decode: Callable[[bytes], None]):
    data = one_block_file(block(b"DATABLK*", content, uncompressed=announced))
    assert check_decoder(decode, iter([data]), path=PATH) == 1


@pytest.mark.parametrize(
    "lengths",
    [(0x7FFFFFFF, 1, 3), (17, 0x7FFFFFFF, 3), (-1, 1, 3), (17, -1, 3), (17, 1, -1), (17, 1, 16), (1, 1, 0), (0, 0, 0)],
)
def test_record_lengths_that_lie(lengths: tuple[int, int, int], decode: Callable[[bytes], None]):
    content = struct.pack(">iih", *lengths) + record(b"key", b"v")[10:]
    assert check_decoder(decode, iter([one_block_file(block(b"DATABLK*", content))]), path=PATH) == 1


def test_colliding_values_cost_no_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch):
    """More distinct values than the hash table may probe for, many of them equal in all but one byte."""
    monkeypatch.setattr(arrow, "SMALL_COUNT", -1)
    rows = [b"%06d" % at for at in range(20_000)]
    values = [b"%d" % (at % 7000) for at in range(20_000)]
    data = encode_hfile(pa.array(rows), pa.array(values), schema="", created_ms=0, base_file=False)
    assert decode_hfile(BytesSource(data))["value"].to_pylist() == values


def test_a_file_that_refers_to_itself(decode: Callable[[bytes], None]):
    """An index block that is its own child, with as many levels as the trailer may claim."""
    size, seen = 0, None
    while seen != size:  # The block's compressed size depends on the size that it names.
        leaf = block(b"IDXINTE2", inner_index([(b"", 0, size)] * 40))
        seen, size = size, len(leaf)
        if len(leaf) != seen:
            continue
    sections = block(b"IDXROOT2", root_index([(b"", 0, size)])) + block(b"IDXROOT2", b"")
    sections += block(b"FILEINF2", file_info({}))
    data = leaf + sections + trailer(index_at=len(leaf), index_count=1, entry_count=5, levels=16)
    assert check_decoder(decode, iter([data]), path=PATH) == 1


def test_trailing_bytes_after_a_gzip_member_are_ignored():
    content = record(b"key", b"v")
    payload = gzip.compress(content) + b"rest"
    header = struct.pack(">8siiqBii", b"DATABLK*", len(payload) + 4, len(content), -1, 0, 16384, 33 + len(payload))
    file = HFile.open(BytesSource(one_block_file(header + payload + bytes(4))))
    assert file.find(b"key") == b"v"


def test_errors_say_where():
    data = bytearray(own_file())
    data[0:8] = b"NOTABLCK"
    with pytest.raises(CorruptTableError) as caught:
        HFile.open(BytesSource(bytes(data), PATH)).find(b"key-00000")
    assert (caught.value.path, caught.value.offset) == (PATH, 0)
