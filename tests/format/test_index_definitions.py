from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.index_definitions import decode_index_definitions, encode_index_definitions
from lakebed.model.index import IndexDefinition
from timeline_files import files_named

PATH = ".hoodie/.index_defs/index.json"
REAL = files_named("index.json")


def test_real_definitions_lose_nothing() -> None:
    assert len(REAL) > 60
    for file in REAL:
        before = json.loads(file.data)
        for entry in before["indexDefinitions"].values():
            entry.setdefault("version", "V1")
        definitions = decode_index_definitions(file.data, path=str(file))
        assert all(name == definition.name for name, definition in definitions.items())
        assert json.loads(encode_index_definitions(definitions)) == before


def test_a_real_definition() -> None:
    (file,) = (file for file in REAL if file.zip == "hudi111_mor_nonpart_all_indexes")
    definitions = decode_index_definitions(file.data, path=str(file))
    assert definitions["expr_index_idx_ts"] == IndexDefinition(
        name="expr_index_idx_ts",
        kind="column_stats",
        function="from_unixtime",
        source_fields=("ts",),
        options={"expr": "from_unixtime", "format": "yyyy-MM-dd"},
        version="V2",
    )
    assert not definitions["record_index"].is_partitioned


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", {}),
        ("{}", {}),
        ('{"indexDefinitions": null}', {}),
        ('{"indexDefinitions": {"i": {}}}', {"i": IndexDefinition("i", "")}),
        ('{"indexDefinitions": {"i": {"indexFunction": null, "new": 1}}}', {"i": IndexDefinition("i", "")}),
    ],
)
def test_missing_parts(content: str, expected: dict[str, IndexDefinition]) -> None:
    assert decode_index_definitions(content.encode(), path=PATH) == expected


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"indexDefinitions": []}',
        '{"indexDefinitions": {"i": []}}',
        '{"indexDefinitions": {"i": {"indexName": 1}}}',
        '{"indexDefinitions": {"i": {"sourceFields": "a"}}}',
        '{"indexDefinitions": {"i": {"sourceFields": [1]}}}',
        '{"indexDefinitions": {"i": {"indexOptions": {"a": 1}}}}',
    ],
)
def test_wrong_types_are_refused(content: str) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_index_definitions(content.encode(), path=PATH)


names = st.text(max_size=8)
fields = st.lists(names, max_size=3).map(tuple)
options = st.dictionaries(names, names, max_size=2)
definitions = st.builds(IndexDefinition, names, names, names, fields, options, names)


@given(st.dictionaries(names, definitions, max_size=3))
def test_round_trip(definitions: dict[str, IndexDefinition]) -> None:
    assert decode_index_definitions(encode_index_definitions(definitions), path=PATH) == definitions


def test_hostile_bytes() -> None:
    bad = mutations(max((file.data for file in REAL), key=len), seed=3, count=500)
    check_decoder(lambda data: decode_index_definitions(data, path=PATH), bad, path=PATH)
