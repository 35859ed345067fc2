from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.transaction.locks.lease import LOCK_FILE, Lease, decode_lease, encode_lease

GOOD = b'{"expired":false,"validUntil":1700000000000,"owner":"abc"}'
"""What Apache Hudi 1.2.0 writes for this lease."""


def test_the_bytes_are_those_of_apache_hudi() -> None:
    assert encode_lease(Lease("abc", 1_700_000_000_000)) == GOOD
    assert LOCK_FILE == ".hoodie/.locks/table_lock.json"


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_round_trip(owner: str, until: int, expired: bool) -> None:
    lease = Lease(owner, until, expired)
    assert decode_lease(encode_lease(lease)) == lease


def test_other_fields_are_ignored() -> None:
    assert decode_lease(json.dumps({**json.loads(GOOD), "since": 1}).encode()) == Lease("abc", 1_700_000_000_000)


@pytest.mark.parametrize(
    "fields",
    [
        {"expired": None},
        {"expired": 0},
        {"validUntil": None},
        {"validUntil": True},
        {"validUntil": 1.5},
        {"validUntil": 2**63},
        {"owner": None},
        {"owner": 7},
    ],
    ids=str,
)
def test_a_field_of_another_type_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(CorruptTableError, match=r"table_lock\.json"):
        decode_lease(json.dumps({**json.loads(GOOD), **fields}).encode())


@pytest.mark.parametrize("name", ["expired", "validUntil", "owner"])
def test_a_missing_field_is_refused(name: str) -> None:
    fields = json.loads(GOOD)
    del fields[name]
    with pytest.raises(CorruptTableError, match=name):
        decode_lease(json.dumps(fields).encode())


def test_hostile_bytes() -> None:
    assert check_decoder(decode_lease, truncations(GOOD), path=LOCK_FILE) == len(GOOD)
    check_decoder(decode_lease, mutations(GOOD, seed=1, count=500), path=LOCK_FILE)
