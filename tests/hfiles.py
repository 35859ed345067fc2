"""HFiles for tests: those of the real tables, and hand-made ones in the shape of HBase's writer."""

from __future__ import annotations

import gzip
import struct
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data" / "hudi"
SUFFIX = bytes.fromhex("007fffffffffffffff04")
COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
Records = list[tuple[bytes, bytes]]


@cache
def real_hfiles() -> dict[str, bytes]:
    """Every base HFile and HFile log block of every real table, by where it was found."""
    found: dict[str, bytes] = {}
    for archive in sorted(DATA.glob("*.zip")):
        with zipfile.ZipFile(archive) as files:
            for name in files.namelist():
                if "/.hoodie/metadata/" not in name:
                    continue
                if name.endswith(".hfile"):
                    found[f"{archive.name}!{name}"] = files.read(name)
                elif ".log." in name.rpartition("/")[2]:
                    blocks = hfile_log_blocks(files.read(name))
                    found.update((f"{archive.name}!{name}#{at}", block) for at, block in blocks)
    return found


def hfile_log_blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Position and content of the HFile blocks of a log file."""
    at = 0
    while data[at : at + 6] == b"#HUDI#":
        (size,) = struct.unpack_from(">q", data, at + 6)
        _, kind, entries = struct.unpack_from(">iii", data, at + 14)
        header = at + 26
        for _ in range(entries):
            header += 8 + struct.unpack_from(">i", data, header + 4)[0]
        (length,) = struct.unpack_from(">q", data, header)
        if kind == 4:
            yield at, data[header + 8 : header + 8 + length]
        at += 14 + size


def uvarint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes((low | 0x80,)) + uvarint(rest) if rest else bytes((low,))


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return uvarint(number << 3) + uvarint(value)
    return uvarint(number << 3 | 2) + uvarint(len(value)) + value


def record(row: bytes, value: bytes) -> bytes:
    lengths = struct.pack(">iih", 2 + len(row) + len(SUFFIX), len(value), len(row))
    return lengths + row + SUFFIX + value + b"\0"


def block(magic: bytes, content: bytes, *, compress: bool = True, uncompressed: int | None = None) -> bytes:
    """A block with a (wrong) CRC32C, which readers do not look at."""
    payload = gzip.compress(content, mtime=0) if compress else content
    checksums = b"\xab\xcd\xef\x01" * -(-(33 + len(payload)) // 16384)
    size = len(content) if uncompressed is None else uncompressed
    header = struct.pack(">8siiqBii", magic, len(payload) + len(checksums), size, -1, 2, 16384, 33 + len(payload))
    return header + payload + checksums


def vint(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    width = (value.bit_length() + 7) // 8
    return struct.pack(">b", -112 - width) + value.to_bytes(width, "big")


def index_key(row: bytes) -> bytes:
    return struct.pack(">h", len(row)) + row + SUFFIX


def inner_index(entries: list[tuple[bytes, int, int]]) -> bytes:
    parts = [struct.pack(">qi", offset, size) + index_key(row) for row, offset, size in entries]
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    return struct.pack(f">{len(ends) + 1}i", len(entries), *ends) + b"".join(parts)


def root_index(entries: list[tuple[bytes, int, int]]) -> bytes:
    keyed = ((index_key(row), offset, size) for row, offset, size in entries)
    return b"".join(struct.pack(">qi", offset, size) + vint(len(key)) + key for key, offset, size in keyed)


def file_info(info: dict[bytes, bytes]) -> bytes:
    message = b"".join(field(1, field(1, key) + field(2, value)) for key, value in info.items())
    return b"PBUF" + uvarint(len(message)) + message


def trailer(*, index_at: int, index_count: int, entry_count: int, levels: int, codec: int = 1) -> bytes:
    numbers = {2: index_at, 3: 0, 4: 0, 5: index_count, 6: 0, 7: entry_count, 8: levels, 9: 0, 10: 0}
    message = b"".join(field(number, value) for number, value in numbers.items())
    message += field(11, COMPARATOR) + field(12, codec)
    return (b'TRABLK"$' + uvarint(len(message)) + message).ljust(4092, b"\0") + bytes.fromhex("03000003")


def hbase_file(records: Records, *, levels: int, per_block: int = 3, fan_out: int = 2, codec: int = 1) -> bytes:
    """A file with an index of up to three levels; inner index blocks stand among the data, as HBase writes them."""
    compress, body = codec == 1, b""

    def put(magic: bytes, content: bytes, row: bytes) -> tuple[bytes, int, int]:
        nonlocal body
        offset, body = len(body), body + block(magic, content, compress=compress)
        return row, offset, len(body) - offset

    def put_level(entries: list[tuple[bytes, int, int]], magic: bytes) -> list[tuple[bytes, int, int]]:
        groups = [entries[at : at + fan_out] for at in range(0, len(entries), fan_out)]
        return [put(magic, inner_index(group), group[0][0]) for group in groups]

    chunks = [records[at : at + per_block] for at in range(0, len(records), per_block)]
    entries = [put(b"DATABLK*", b"".join(record(*each) for each in chunk), chunk[0][0]) for chunk in chunks]
    for magic in (b"IDXLEAF2", b"IDXINTE2")[: levels - 1]:
        entries = put_level(entries, magic)
    index_at = len(body)
    mid_key = struct.pack(">qii", 0, 0, 0)  # HBase leaves its middle key after the entries.
    for magic, content in ((b"IDXROOT2", root_index(entries) + mid_key), (b"IDXROOT2", b"")):
        body += block(magic, content, compress=compress)
    body += block(b"FILEINF2", file_info({b"schema": b'"bytes"'}), compress=compress)
    return body + trailer(
        index_at=index_at, index_count=len(entries), entry_count=len(records), levels=levels, codec=codec
    )
