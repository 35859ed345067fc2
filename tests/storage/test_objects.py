"""Object stores: what a failing or lying connection comes to, against a small S3 on the loopback."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import CorruptTableError, InvalidInputError, StorageUnavailableError
from lakebed.storage import Outcome, Storage, Ticket, open_storage
from storage.fake_s3 import Fake

DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN
TICKET = Ticket("20240101000000000", "1")
ROOT = "warehouse/table"


@pytest.fixture
def storage(s3: Fake, slept: list[float], monkeypatch: pytest.MonkeyPatch) -> Storage:
    retry = {"max_retries": 1, "backoff": {"init_backoff": timedelta(milliseconds=1)}}
    monkeypatch.setattr("lakebed.storage.stores._READ_RETRY", retry)
    return open_storage(f"s3://bucket/{ROOT}", s3.options)


def strike(s3: Fake, fault: str, *, method: str = "PUT", key: str = "", times: int = 100) -> list[str]:
    """The next `times` requests of that kind misbehave; returns where they will be noted."""
    struck: list[str] = []

    def misbehave(asked: str, name: str) -> str | None:
        if asked != method or key not in name or len(struck) >= times:
            return None
        struck.append(name)
        return fault

    s3.misbehave = misbehave
    return struck


@pytest.mark.parametrize("fault", ["500 before", "500 after", "drop after"])
def test_a_create_without_an_answer_is_unknown_and_not_repeated(storage: Storage, s3: Fake, fault: str) -> None:
    struck = strike(s3, fault)
    assert storage.create("f", b"x") is UNKNOWN
    assert len(struck) == 1
    assert storage.find("f") == (None if fault == "500 before" else b"x")


@pytest.mark.parametrize("fault", ["500 before", "500 after", "drop after"])
def test_a_swap_without_an_answer_is_unknown_and_not_repeated(storage: Storage, s3: Fake, fault: str) -> None:
    storage.create("f", b"old")
    found = storage.find_with_etag("f")
    assert found is not None
    struck = strike(s3, fault)
    assert storage.replace("f", b"new", etag=found[1]) is UNKNOWN
    assert len(struck) == 1
    assert storage.find("f") == (b"old" if fault == "500 before" else b"new")


@pytest.mark.parametrize("fault", ["500 before", "500 after", "drop after"])
def test_a_publish_without_an_answer_is_unknown_and_not_repeated(storage: Storage, s3: Fake, fault: str) -> None:
    storage.open_ticket(TICKET)
    struck = strike(s3, fault, key="final")
    assert storage.publish(TICKET, "final", b"x") is UNKNOWN
    assert len(struck) == 1
    s3.misbehave = lambda method, key: None
    assert storage.find("final") == (None if fault == "500 before" else b"x")
    assert storage.publish(TICKET, "final", b"x") is (DONE if fault == "500 before" else REFUSED)


def test_staging_without_an_answer_publishes_nothing(storage: Storage, s3: Fake) -> None:
    storage.open_ticket(TICKET)
    strike(s3, "500 after", key=".tickets")
    assert storage.publish(TICKET, "final", b"x") is UNKNOWN
    assert storage.find("final") is None


def test_a_plain_replace_may_be_repeated(storage: Storage, s3: Fake) -> None:
    struck = strike(s3, "500 before", times=1)
    assert storage.replace("f", b"x") is DONE
    assert len(struck) == 1
    assert storage.get("f") == b"x"


def test_reads_are_repeated_and_then_unavailable(storage: Storage, s3: Fake) -> None:
    storage.create("f", b"0123456789")
    strike(s3, "500 before", method="GET", times=1)
    assert storage.get("f") == b"0123456789"
    strike(s3, "500 before", method="GET")
    reads = [
        lambda: storage.get("f"),
        lambda: storage.get_range("f", 0, 1),
        lambda: storage.list(""),
        lambda: storage.list("", recursive=True),
        lambda: storage.list_folders(""),
    ]
    for read in reads:
        with pytest.raises(StorageUnavailableError) as error:
            read()
        assert error.value.retryable


def test_no_permission_is_an_error_of_the_call(storage: Storage, s3: Fake) -> None:
    s3.misbehave = lambda method, key: "403"
    calls = [
        lambda: storage.get("f"),
        lambda: storage.size("f"),
        lambda: storage.get_range("f", 0, 1),
        lambda: storage.list(""),
        lambda: storage.create("f", b""),
        lambda: storage.replace("f", b""),
        lambda: storage.replace("f", b"", etag='"e"'),
        lambda: storage.delete("f"),
        lambda: storage.publish(TICKET, "f", b""),
    ]
    for call in calls:
        with pytest.raises(InvalidInputError, match="permission denied"):
            call()


def test_a_ticket_revoked_between_staging_and_copy_publishes_nothing(storage: Storage, s3: Fake) -> None:
    storage.open_ticket(TICKET)

    def revoked_before_the_copy(method: str, key: str) -> None:
        if key.endswith("final"):
            s3.objects.pop(f"{ROOT}/{TICKET.path}", None)

    s3.misbehave = revoked_before_the_copy
    assert storage.publish(TICKET, "final", b"late") is REFUSED
    assert storage.find("final") is None


def test_a_ticket_revoked_before_staging_stays_revoked(storage: Storage, s3: Fake) -> None:
    storage.open_ticket(TICKET)

    def revoked_before_staging(method: str, key: str) -> None:
        if method == "PUT" and ".tickets" in key:
            s3.objects.pop(key, None)

    s3.misbehave = revoked_before_staging
    assert storage.publish(TICKET, "final", b"late") is REFUSED
    assert s3.objects == {}


def test_a_revoke_waits_for_requests_that_are_under_way(storage: Storage, slept: list[float]) -> None:
    storage.open_ticket(TICKET)
    assert storage.revoke(TICKET) is DONE
    assert slept == [5.0]


def test_near_ranges_travel_together(storage: Storage, s3: Fake) -> None:
    data = bytes(4 * 2**20)
    storage.create("f", data + b"end")
    s3.seen.clear()
    before = storage.counts.snapshot()
    parts = storage.get_ranges("f", [(4 * 2**20, 3), (0, 10), (100, 10), (4 * 2**20 - 5, 4)])
    assert parts == [b"end", bytes(10), bytes(10), bytes(4)]
    spent = storage.counts.snapshot() - before
    assert len(s3.seen) == spent.ranged_gets == 2
    assert spent.bytes_read == 110 + 8


def test_parquet_footers_take_few_requests(storage: Storage, s3: Fake) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{number}": list(range(1000)) for number in range(20)}), sink)
    storage.create("f.parquet", sink.getvalue().to_pybytes())
    s3.seen.clear()
    with storage.arrow_file("f.parquet") as file:
        assert pq.ParquetFile(file).metadata.num_rows == 1000
    assert len(s3.seen) <= 2


def test_errors_pass_through_arrow_as_they_are(storage: Storage, s3: Fake) -> None:
    storage.create("f.parquet", b"x" * 100)
    with storage.arrow_file("f.parquet") as file:
        s3.objects.clear()
        with pytest.raises(CorruptTableError, match="the file is missing"):
            file.read()


def test_a_missing_bucket_is_no_empty_table(storage: Storage, s3: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    other = open_storage("s3://elsewhere/table", s3.options)
    strike(s3, "404", method="GET")
    for call in (lambda: other.list(""), lambda: other.list("", recursive=True)):
        with pytest.raises(InvalidInputError, match="bucket or container is missing"):
            call()


def test_secrets_do_not_show(storage: Storage) -> None:
    assert "secret" not in repr(storage)
