from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.properties import (
    check_table_checksum,
    decode_properties,
    encode_properties,
    table_checksum,
)
from timeline_files import files_named

PATH = ".hoodie/hoodie.properties"
REAL = files_named("hoodie.properties")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a=b\n  ! c=d\n\n \t\f\n", {}),
        ("a=b", {"a": "b"}),
        ("a:b\rc d\r\ne\tf\n", {"a": "b", "c": "d", "e": "f"}),
        ("a = b ", {"a": "b "}),
        ("a  :  b", {"a": "b"}),
        ("a  b = c", {"a": "b = c"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        (r"a\=b\:c\ d=e", {"a=b:c d": "e"}),
        (r"a=\t\n\r\f\\\q", {"a": "\t\n\r\f\\q"}),
        (r"a=caf\u00e9 \u20AC", {"a": "café €"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("a=caf\xe9", {"a": "café"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\r\n#c", {"a": "b#c"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a\\\n=b", {"a": "b"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("\\#a=b", {"#a": "b"}),
    ],
)
def test_java_syntax(text: str, expected: dict[str, str]) -> None:
    assert decode_properties(text.encode("latin-1"), path=PATH) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12G4", r"a=\u", r"a=\ud83d"])
def test_malformed_escapes_are_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_properties(text.encode(), path=PATH)


def test_encodes_as_java_does() -> None:
    properties = {"a b": " c d", "k": 'x:y=z#!\\\t"é€😀'}
    text = encode_properties(properties, comment="Updated at x", date="Mon Nov 16 00:31:27 UTC 2026")
    assert text.decode() == (
        "#Updated at x\n#Mon Nov 16 00:31:27 UTC 2026\n"
        "a\\ b=\\ c d\n"
        'k=x\\:y\\=z\\#\\!\\\\\\t"\\u00E9\\u20AC\\uD83D\\uDE00\n'
    )


@given(st.dictionaries(st.text(), st.text()))
def test_round_trip(properties: dict[str, str]) -> None:
    data = encode_properties(properties, comment="c", date="d")
    assert decode_properties(data, path=PATH) == properties


def test_real_tables_are_written_back_byte_by_byte() -> None:
    assert len(REAL) > 150
    for file in REAL:
        properties = decode_properties(file.data, path=str(file))
        comment, date, *_ = file.data.decode().split("\n")
        assert encode_properties(properties, comment=comment[1:], date=date[1:]) == file.data, file


def test_real_checksums() -> None:
    for file in REAL:
        properties = decode_properties(file.data, path=str(file))
        check_table_checksum(properties, path=str(file))
        assert str(table_checksum(properties)) == properties["hoodie.table.checksum"], file


@pytest.mark.parametrize(
    ("database", "table", "checksum"),
    [
        (None, "cow_part_upsert", 3883624936),
        ("", "cow_part_upsert_metadata", 3400550140),
        ("default", "mor_nonpart_sql_partial_update", 3675560858),
    ],
)
def test_checksum(database: str | None, table: str, checksum: int) -> None:
    properties = {"hoodie.table.name": table} | ({} if database is None else {"hoodie.database.name": database})
    assert table_checksum(properties) == checksum
    check_table_checksum(properties, path=PATH)
    check_table_checksum(properties | {"hoodie.table.checksum": str(checksum)}, path=PATH)


@pytest.mark.parametrize(
    "properties",
    [
        {"hoodie.table.name": "t", "hoodie.table.checksum": "1"},
        {"hoodie.table.name": "t", "hoodie.table.checksum": "one"},
        {"hoodie.table.checksum": "1"},
    ],
)
def test_wrong_checksums_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        check_table_checksum(properties, path=PATH)


def test_hostile_bytes() -> None:
    good = max((file.data for file in REAL), key=len)
    check_decoder(lambda data: decode_properties(data, path=PATH), mutations(good, seed=1, count=500), path=PATH)
    check_decoder(
        lambda data: decode_properties(data, path=PATH), iter([b"\\" * 100_000, b"a=" + b"\\u" * 50_000]), path=PATH
    )
