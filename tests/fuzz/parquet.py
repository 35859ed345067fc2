"""Parquet files: damage to pages before they are compressed, to their headers, and to any field of the footer."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.log.blocks import _decode_parquet_records
from lakebed.format.log.file import BlockKind, LogBlock
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.format.parquet_pages import ParquetPages
from lakebed.format.varint import encode_varint, encode_zigzag
from lakebed.model.source import BytesSource

from .codec import PATH, Codec
from .mutate import damaged, maybe, rearranged, strange, wrapped

_ROWS, _PAGE_ROWS = 12, 7
_CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd", 7: "lz4_raw"}


@dataclass(slots=True)
class Node:
    """A value of Thrift's compact protocol: its type, and its fields, items, number or bytes."""

    kind: int
    value: Any
    item_kind: int = 0


_Fields = list[tuple[int, Node]]


@dataclass(slots=True)
class _Page:
    header: Node
    content: bytes
    """Without compression."""
    plain_bytes: int
    """Of the beginning, which is never compressed: the levels of pages of version 2."""
    codec: str | None


@dataclass(slots=True)
class _Base:
    """A sound file, taken apart: for each column chunk of its one row group, its pages."""

    footer: Node
    chunks: list[list[_Page]] = field(default_factory=list)


def make_case(rng: random.Random) -> tuple[int, bytes]:
    """A file, and by whom it is read."""
    return rng.randrange(len(_READERS)), make(rng)


def make(rng: random.Random) -> bytes:
    """A file that holds together, but for what was damaged."""
    base = rng.choice(_bases())
    layer = rng.choice(("page", "page", "page", "header", "header", "footer", "footer", "tree", "stream"))
    footer, body = _copy(base.footer), b"PAR1"
    columns = _get(_get(footer, 4).value[0], 1).value
    hit = rng.randrange(len(base.chunks))
    for number, (chunk, pages) in enumerate(zip(columns, base.chunks, strict=True)):
        mine = layer if number == hit else ""
        start, sizes = len(body), []
        which = rng.randrange(len(pages))
        for at, page in enumerate(pages):
            encoded = _encode_page(page, rng, mine if at == which else "")
            sizes.append(len(encoded))
            body += encoded
        has_dictionary = _number(pages[0].header, 1) == 2
        _place(_get(chunk, 3), start, sizes, has_dictionary=has_dictionary)
        _drop(chunk, 4, 5, 6, 7)  # Page indexes, which would tell of other places.
        if rng.random() < 0.3:
            index = _offset_index(start, sizes, has_dictionary, rng, mine)
            chunk.value += [(4, Node(6, len(body))), (5, Node(5, len(index)))]
            body += index
    if layer == "footer":
        for _ in range(rng.choice((1, 1, 2, 4))):
            _change_number(footer, rng)
    elif layer == "tree":
        _change_tree(footer, rng)
    encoded = _encode(footer)
    encoded = maybe(0.03, rng, lambda data: damaged(data, rng), encoded)
    length = maybe(0.02, rng, lambda n: strange(rng, n) & 0xFFFFFFFF, len(encoded))
    return body + encoded + struct.pack("<I4s", length, b"PAR1")


def decode(case: tuple[int, bytes]) -> list[Any]:
    """Rows by one of the readers that there are."""
    which, data = case
    return [_READERS[which](data)]


def _read_rows(data: bytes) -> Any:
    pages = ParquetPages(BytesSource(data, PATH))
    return pages.read_rows([*pages.columns], [_ROWS // 2, _ROWS - 1])


def _read_column(data: bytes) -> Any:
    pages = ParquetPages(BytesSource(data, PATH))
    return [len(column) for column in pages.read_column("text")] if "text" in pages.columns else []


def _read_footer(data: bytes) -> Any:
    footer = decode_parquet_footer(data, path=PATH)
    return footer.rows, footer.repetitive, footer.bloom is None


def _read_log_block(data: bytes) -> Any:
    block = LogBlock(BlockKind.PARQUET_DATA, {}, memoryview(data), 0, 0)
    table = _decode_parquet_records(block, PATH, None)
    table.validate()
    return table


_READERS: tuple[Callable[[bytes], Any], ...] = (_read_rows, _read_column, _read_footer, _read_log_block)
CODEC = Codec(make_case, decode, implementations=("plain",))
"""Arrow decodes pages: nothing of it is compiled here, and there is one implementation."""


@cache
def _bases() -> tuple[_Base, ...]:
    made = []
    for codec, version in product(("none", "snappy", "gzip", "zstd"), ("1.0", "2.0")):
        for rows in _tables():
            sink, options = pa.BufferOutputStream(), {"compression": codec, "data_page_version": version}
            pq.write_table(rows, sink, store_schema=False, max_rows_per_page=_PAGE_ROWS, **options)
            made.append(_take_apart(sink.getvalue().to_pybytes()))
    return tuple(made)


def _tables() -> tuple[pa.Table, ...]:
    some = [n if n % 4 else None for n in range(_ROWS)]
    text = pa.array([None if n is None else f"t{n % 3}" for n in some], pa.string())
    others = (
        pa.array(some, pa.int64()),
        pa.array([None if n is None else n % 2 == 0 for n in some], pa.bool_()),
        pa.array([None if n is None else Decimal(n) for n in some], pa.decimal128(9, 2)),
        pa.array([None if n is None else [*range(n % 4)] for n in some], pa.list_(pa.int32())),
        pa.array([{"x": n, "y": f"y{n}"} for n in some]),
        pa.array([float(n or 0) for n in some]),
    )
    return tuple(pa.table({"text": text, "other": other}) for other in others)


def _offset_index(start: int, sizes: list[int], has_dictionary: bool, rng: random.Random, layer: str) -> bytes:
    places, at = [], start
    for number, size in enumerate(sizes):
        if number >= has_dictionary:
            first_row = _PAGE_ROWS * (number - has_dictionary)
            places.append(Node(12, [(1, Node(6, at)), (2, Node(5, size)), (3, Node(6, first_row))]))
        at += size
    index = Node(12, [(1, Node(9, places, 12))])
    if layer == "header":
        (_change_number if rng.random() < 0.8 else _change_tree)(index, rng)
    return _encode(index)


def _take_apart(data: bytes) -> _Base:
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    footer, _ = _decode_struct(data, len(data) - 8 - length)
    base = _Base(footer)
    for chunk in _get(_get(footer, 4).value[0], 1).value:
        meta = _get(chunk, 3)
        start = min(_number(meta, at) for at in (9, 11) if _find(meta, at) is not None)
        end, pages = start + _number(meta, 7), []
        while start < end:
            header, at = _decode_struct(data, start)
            start = at + _number(header, 3)
            pages.append(_page(header, data[at:start], _number(meta, 4)))
        base.chunks.append(pages)
    return base


def _page(header: Node, payload: bytes, codec: int) -> _Page:
    plain, name = 0, _CODECS[codec]
    if (levels := _find(header, 8)) is not None:
        plain = _number(levels, 5) + _number(levels, 6)
        is_compressed = _find(levels, 7)
        name = None if is_compressed is not None and is_compressed.kind == 2 else name
    rest = payload[plain:]
    if name is not None and rest:
        rest = pa.Codec(name).decompress(rest, _number(header, 2) - plain, asbytes=True)
    return _Page(header, payload[:plain] + rest, plain, name)


def _encode_page(page: _Page, rng: random.Random, layer: str) -> bytes:
    header, content = _copy(page.header), page.content
    if layer == "page":
        content = damaged(content, rng)
    plain = min(page.plain_bytes, len(content))
    rest = content[plain:]
    if page.codec is not None and rest:
        rest = pa.Codec(page.codec).compress(rest, asbytes=True)
        if layer == "stream":
            rest = damaged(rest, rng)
    _set(header, 2, len(content))
    _set(header, 3, plain + len(rest))
    if layer == "header":
        for _ in range(rng.choice((1, 1, 2))):
            (_change_number if rng.random() < 0.8 else _change_tree)(header, rng)
    return _encode(header) + content[:plain] + rest


def _place(meta: Node, start: int, sizes: list[int], *, has_dictionary: bool) -> None:
    """Say where the pages of a column chunk lie now."""
    _set(meta, 9, start + (sizes[0] if has_dictionary else 0))
    if has_dictionary:
        _set(meta, 11, start)
    _set(meta, 7, sum(sizes))
    _drop(meta, 8, 10, 14, 15)


def _find(node: Node, number: int) -> Node | None:
    return next((value for at, value in node.value if at == number), None)


def _get(node: Node, number: int) -> Node:
    found = _find(node, number)
    assert found is not None, number
    return found


def _number(node: Node, number: int) -> int:
    return int(_get(node, number).value)


def _set(node: Node, number: int, value: int) -> None:
    _get(node, number).value = value


def _drop(node: Node, *numbers: int) -> None:
    node.value = [pair for pair in node.value if pair[0] not in numbers]


def _copy(node: Node) -> Node:
    match node.kind:
        case 12:
            return Node(12, [(at, _copy(value)) for at, value in node.value])
        case 9 | 10:
            return Node(node.kind, [_copy(item) for item in node.value], node.item_kind)
    return Node(node.kind, node.value)


def _walk(node: Node) -> list[Node]:
    found = [node]
    if node.kind == 12:
        for _, value in node.value:
            found += _walk(value)
    elif node.kind in (9, 10):
        for item in node.value:
            found += _walk(item)
    return found


def _change_number(root: Node, rng: random.Random) -> None:
    """Another number, text or truth value somewhere."""
    node = rng.choice([each for each in _walk(root) if each.kind not in (9, 10, 12)])
    if node.kind in (4, 5, 6):
        node.value = wrapped(strange(rng, node.value), {4: 16, 5: 32, 6: 64}[node.kind])
        node.value = maybe(0.3, rng, lambda _: rng.randrange(12), node.value)
    elif node.kind == 8:
        node.value = damaged(node.value, rng)
    elif node.kind in (1, 2):
        node.kind = 3 - node.kind
    else:
        node.value = rng.randrange(256)


def _change_tree(root: Node, rng: random.Random) -> None:
    """A field or item less, more, elsewhere, or of another type."""
    nodes = [each for each in _walk(root) if each.kind in (9, 10, 12) and each.value]
    node = rng.choice(nodes)
    if node.kind != 12 or rng.random() < 0.5:
        node.value = rearranged(node.value, rng)
        return
    at = rng.randrange(len(node.value))
    other = rng.choice(_walk(root))
    node.value[at] = (node.value[at][0] + rng.choice((0, 0, 1)), _copy(other if rng.random() < 0.5 else Node(5, 1)))


def _decode_struct(data: bytes, at: int) -> tuple[Node, int]:
    fields: _Fields = []
    number = 0
    while data[at]:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _decode_zigzag(data, at)
        value, at = _decode_value(data, at, head & 15)
        fields.append((number, value))
    return Node(12, fields), at + 1


def _decode_value(data: bytes, at: int, kind: int) -> tuple[Node, int]:
    if kind in (1, 2):
        return Node(kind, None), at
    if kind == 3:
        return Node(kind, data[at]), at + 1
    if kind in (4, 5, 6):
        value, at = _decode_zigzag(data, at)
        return Node(kind, value), at
    if kind == 7:
        return Node(kind, data[at : at + 8]), at + 8
    if kind == 8:
        length, at = _decode_varint(data, at)
        return Node(kind, data[at : at + length]), at + length
    if kind == 12:
        return _decode_struct(data, at)
    assert kind in (9, 10), kind
    count, item_kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = _decode_varint(data, at)
    items = []
    for _ in range(count):
        item, at = _decode_value(data, at, item_kind)
        items.append(item)
    return Node(kind, items, item_kind), at


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def _decode_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _decode_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _encode(node: Node) -> bytes:
    match node.kind:
        case 1 | 2:
            return b""
        case 3:
            return bytes([node.value & 0xFF])
        case 4 | 5 | 6:
            return encode_zigzag(node.value)
        case 7:
            return bytes(node.value) if isinstance(node.value, bytes) else bytes(8)
        case 8:
            return encode_varint(len(node.value)) + node.value
        case 12:
            return _encode_fields(node.value)
    items = b"".join(_encode(item) for item in node.value)
    count = len(node.value)
    head = bytes([count << 4 | node.item_kind]) if count < 15 else bytes([0xF0 | node.item_kind]) + encode_varint(count)
    return head + items


def _encode_fields(fields: _Fields) -> bytes:
    out, last = b"", 0
    for number, node in fields:
        step = number - last
        head = bytes([step << 4 | node.kind]) if 0 < step < 16 else bytes([node.kind]) + encode_zigzag(number)
        out += head + _encode(node)
        last = number
    return out + b"\0"
