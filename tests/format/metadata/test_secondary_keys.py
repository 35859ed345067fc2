from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder
from lakebed.errors import CorruptTableError
from lakebed.format.java import shard_of
from lakebed.format.metadata.keys import (
    escape_secondary,
    secondary_hash_part,
    secondary_key,
    secondary_prefix,
    split_secondary_key,
)
from metadata_rows import stored_files

PATH = "secondary-index-idx-name-0000-0_1-2-3_00000000000000003.hfile"
KEYS = [
    ("n0", "k000", "n0$k000", "n0$", 4),
    ("u0", "k000", "u0$k000", "u0$", 1),
    ("now-set", "k3", "now-set$k3", "now-set$", 5),
    ("a$b", "k$1", r"a\$b$k\$1", r"a\$b$", 9),
    ("c\\d", "k\\2", r"c\\d$k\\2", r"c\\d$", 9),
    ("z\0q", "k6", "z\\\0q$k6", "z\\\0q$", 3),
    (None, "k3", "\0$k3", "\0$", 6),
    ("", "k4", "$k4", "$", 6),
    ("2.0", "k\\2", r"2.0$k\\2", "2.0$", 0),
]
texts = st.text(st.sampled_from("a$\\\0é😀"), max_size=8) | st.text(max_size=20)


@pytest.mark.parametrize(("value", "record_key", "stored", "hashed", "group"), KEYS)
def test_worked_examples(value: str | None, record_key: str, stored: str, hashed: str, group: int) -> None:
    assert secondary_key(value, record_key) == stored
    assert split_secondary_key(stored, path=PATH) == (value, record_key)
    assert secondary_prefix(value) == secondary_hash_part(stored, "V2") == hashed
    assert shard_of(hashed, 10) == group


@pytest.mark.parametrize(
    ("stored", "group"),
    [
        ("rider-J$c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", 0),
        ("rider-I$3eeb61f7-c2b0-4636-99bd-5d7a5a1d2c04", 2),
    ],
)
def test_version_1_hashes_whole_keys(stored: str, group: int) -> None:
    assert secondary_hash_part(stored, "V1") == stored
    assert shard_of(stored, 10) == group


def test_version_1_leaves_nul_alone() -> None:
    assert secondary_key("z\0q", "k6", version="V1") == "z\0q$k6"
    assert split_secondary_key("z\0q$k6", path=PATH) == ("z\0q", "k6")
    assert escape_secondary("\\$\0", version="V1") == "\\\\\\$\0"


@given(st.none() | texts, texts)
def test_round_trip(value: str | None, record_key: str) -> None:
    stored = secondary_key(value, record_key)
    assert split_secondary_key(stored, path=PATH) == (value, record_key)
    assert secondary_hash_part(stored, "V2") == secondary_prefix(value)


@given(texts, texts)
def test_a_prefix_is_of_one_value(value: str, other: str) -> None:
    assert secondary_key(other, "k").startswith(secondary_prefix(value)) == (value == other)


@pytest.mark.parametrize("stored", ["", "abc", r"a\$b", "\\", r"a$b\x\\", "a$\\"])
def test_unsound_keys(stored: str) -> None:
    if stored == r"a$b\x\\":
        assert split_secondary_key(stored, path=PATH) == ("a", "bx\\")
    else:
        with pytest.raises(CorruptTableError, match=PATH):
            split_secondary_key(stored, path=PATH)


@given(st.lists(st.text(st.sampled_from("a$\\\0")), max_size=5))
def test_any_text_is_split_or_refused(keys: list[str]) -> None:
    check_decoder(
        lambda data: split_secondary_key(data.decode(), path=PATH), iter([k.encode() for k in keys]), path=PATH
    )


def test_real_keys_lie_in_the_group_of_their_hash() -> None:
    seen = 0
    for file in stored_files("secondary_index_"):
        version = "V1" if file.table.startswith("hudi102") else "V2"
        count = 3 if file.table.startswith("handmade") else 10
        for key, _ in file.records:
            stored = key.decode()
            value, record_key = split_secondary_key(stored, path=str(file))
            assert secondary_key(value, record_key, version=version) == stored
            assert int(file.group.split("-")[-2]) == shard_of(secondary_hash_part(stored, version), count), file
            seen += 1
    assert seen > 200
