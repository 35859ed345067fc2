"""What every storage promises, over every storage."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.storage import Outcome, Storage, Ticket
from lakebed.storage.confirm import create_file
from lakebed.storage.faults import FaultyStorage, ReadOnlyStorage

DONE, REFUSED = Outcome.DONE, Outcome.REFUSED
ODD_NAMES = [
    "region=us",
    "a%2Fb",
    "2024-01-01 10:00:00",
    "ü",
    "#x",
    "a?b",
    "~t",
    "100%",
    "a*b",
    "[x]",
    "{q}",
    "a\\b",
    "+&'",
]
BAD_PATHS = ["", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "./a", "a\0b", "a\ud800b"]
TICKET = Ticket("20240101000000000", "1")
FINAL = ".hoodie/timeline/20240101000000000_20240101000000001.commit"


def test_a_created_file_is_there_whole(storage: Storage) -> None:
    assert storage.create("p/f", b"hello") is DONE
    assert storage.get("p/f") == storage.find("p/f") == b"hello"
    assert storage.size("p/f") == 5
    assert [(listed.path, listed.size) for listed in storage.list("p")] == [("p/f", 5)]


def test_create_is_refused_where_a_file_is(storage: Storage) -> None:
    storage.create("f", b"first")
    assert storage.create("f", b"second") is REFUSED
    assert storage.get("f") == b"first"


def test_a_file_is_created_from_a_view_on_bytes(storage: Storage) -> None:
    data = bytes(range(256)) * 5000
    assert storage.create("f", memoryview(pa.py_buffer(data)).cast("B")) is DONE
    assert storage.get("f") == data
    assert create_file(storage, "f", memoryview(data))
    assert not create_file(storage, "f", memoryview(data[::-1]))


def test_many_files_are_created_each_as_one_would_be(storage: Storage) -> None:
    storage.create("b/taken", b"first")
    files = {f"{folder}/{number}": b"x" * number for folder in "ab" for number in range(70)}
    outcomes = storage.create_all({**files, "b/taken": b"second"})
    assert outcomes == {**dict.fromkeys(files, DONE), "b/taken": REFUSED}
    assert {path: storage.get(path) for path in files} == files
    assert storage.get("b/taken") == b"first"
    assert storage.create_all({}) == {}


def test_an_empty_file_is_a_file(storage: Storage) -> None:
    assert storage.create("f", b"") is DONE
    assert (storage.find("f"), storage.size("f")) == (b"", 0)
    assert storage.get_range("f", 0, 0) == b""
    assert storage.create("f", b"") is REFUSED


def test_what_is_absent(storage: Storage) -> None:
    storage.create("folder/f", b"x")
    for path in ("nothing", "folder", "folder/f/inside"):
        assert storage.find(path) is None
        assert storage.find_with_etag(path) is None
        assert storage.size(path) is None
    assert storage.list("nothing") == storage.list("nothing", recursive=True) == storage.list_folders("nothing") == ()
    assert storage.list("folder/f") == storage.list_names("folder/f") == storage.list_names("nothing") == ()


@pytest.mark.parametrize("read", ["get", "get_range", "get_ranges", "source", "arrow_file"])
def test_reading_a_missing_file_says_so(storage: Storage, read: str) -> None:
    ranges = {"get_range": (0, 1), "get_ranges": ([(0, 1)],)}
    with pytest.raises(CorruptTableError, match=r"p/gone: the file is missing[\s\S]*cleaner") as error:
        getattr(storage, read)("p/gone", *ranges.get(read, ()))
    assert error.value.path == "p/gone"


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 11), (5, 6), (11, 1), (10, 1), (-1, 2), (0, -1), (0, 2**70), (2**70, 1)]
)
def test_a_range_outside_the_file_is_corrupt(storage: Storage, offset: int, length: int) -> None:
    storage.create("f", b"0123456789")
    for read in (storage.get_range, storage.source("f").read):
        with pytest.raises(CorruptTableError) as error:
            read(*(("f",) if read == storage.get_range else ()), offset, length)  # type: ignore[operator]
        assert (error.value.path, error.value.offset) == ("f", offset)
    with pytest.raises(CorruptTableError):
        storage.get_ranges("f", [(0, 1), (offset, length)])


def test_ranges(storage: Storage) -> None:
    storage.create("f", b"0123456789")
    assert storage.get_range("f", 0, 10) == b"0123456789"
    assert storage.get_range("f", 9, 1) == b"9"
    assert storage.get_ranges("f", [(8, 2), (0, 1), (3, 0), (0, 1), (10, 0)]) == [b"89", b"0", b"", b"0", b""]
    assert storage.get_ranges("f", []) == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_source_reads_like_a_slice(storage: Storage, data: st.DataObject) -> None:
    content = bytes(range(256)) * 20
    storage.create("f", content)
    source = storage.source("f", len(content))
    start = data.draw(st.integers(0, len(content)))
    length = data.draw(st.integers(0, len(content) - start))
    assert (source.path, source.size) == ("f", len(content))
    assert source.read(start, length) == content[start : start + length]


def test_listings(storage: Storage) -> None:
    for path in ("a/2", "a/1", "a/b/3", "a/b/c/4", "ab/5", "0"):
        storage.create(path, path.encode())
    assert [listed.path for listed in storage.list("a")] == ["a/1", "a/2"]
    assert [listed.path for listed in storage.list("a", recursive=True)] == ["a/1", "a/2", "a/b/3", "a/b/c/4"]
    assert [listed.path for listed in storage.list("")] == ["0"]
    everything = [listed.path for listed in storage.list("", recursive=True)]
    assert everything == ["0", "a/1", "a/2", "a/b/3", "a/b/c/4", "ab/5"]
    assert storage.list_names("a") == ("1", "2")
    assert storage.list_folders("a") == ("a/b",)
    assert [folder for folder in storage.list_folders("") if folder != ".hoodie"] == ["a", "ab"]
    assert all(listed.modified.tzinfo is not None for listed in storage.list("a"))


def test_a_listing_longer_than_a_page(storage: Storage) -> None:
    names = [f"p/{number:02}" for number in range(10)]
    for name in names:
        storage.create(name, b"")
    assert [listed.path for listed in storage.list("p")] == names
    assert [f"p/{name}" for name in storage.list_names("p")] == names
    assert [listed.path for listed in storage.list("", recursive=True)] == names


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_kept_as_they_are(storage: Storage, name: str) -> None:
    path = f"{name}/{name}.parquet"
    assert storage.create(path, b"x") is DONE
    assert storage.replace(path, b"yz") is DONE
    assert (storage.get(path), storage.size(path)) == (b"yz", 2)
    assert [listed.path for listed in storage.list(name)] == [path]
    assert storage.list_names(name) == (f"{name}.parquet",)
    assert name in storage.list_folders("")
    assert path in [listed.path for listed in storage.list("", recursive=True)]
    assert storage.delete(path) is DONE
    assert storage.find(path) is None


@pytest.mark.parametrize("path", BAD_PATHS)
def test_paths_outside_the_table_are_refused(storage: Storage, path: str) -> None:
    calls = [
        lambda: storage.get(path),
        lambda: storage.find_with_etag(path),
        lambda: storage.get_ranges(path, [(0, 1)]),
        lambda: storage.size(path),
        lambda: storage.create(path, b""),
        lambda: storage.replace(path, b""),
        lambda: storage.delete(path),
        lambda: storage.publish(TICKET, path, b""),
        lambda: storage.source(path),
        lambda: storage.arrow_file(path),
    ]
    if path:
        calls += [lambda: storage.list(path), lambda: storage.list_names(path), lambda: storage.list_folders(path)]
    for call in calls:
        with pytest.raises(InvalidInputError, match="not a path inside the table"):
            call()


def test_replace(storage: Storage) -> None:
    assert storage.replace("f", b"one") is DONE
    assert storage.replace("f", b"two") is DONE
    assert storage.get("f") == b"two"


def test_compare_and_swap(storage: Storage) -> None:
    storage.create("f", b"one")
    found = storage.find_with_etag("f")
    assert found is not None
    data, etag = found
    assert data == b"one"
    assert storage.replace("f", b"two", etag=etag) is DONE
    assert storage.replace("f", b"three", etag=etag) is REFUSED
    assert storage.get("f") == b"two"


def test_compare_and_swap_on_a_file_that_is_gone(storage: Storage) -> None:
    storage.create("p/f", b"one")
    found = storage.find_with_etag("p/f")
    assert found is not None
    storage.delete("p/f")
    assert storage.replace("p/f", b"two", etag=found[1]) is REFUSED
    assert storage.replace("nowhere/f", b"two", etag=found[1]) is REFUSED
    assert storage.find("p/f") is None


def test_delete_is_idempotent(storage: Storage) -> None:
    storage.create("p/f", b"x")
    for path in ("p/f", "p/f", "nowhere/f", "p"):
        assert storage.delete(path) is DONE
    assert storage.find("p/f") is None


def test_one_of_many_creates_wins(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda number: storage.create("p/f", bytes([number]) * 1000), range(8)))
    assert sorted(outcomes, key=lambda outcome: outcome.value) == [DONE] + [REFUSED] * 7
    assert storage.get("p/f") == bytes([outcomes.index(DONE)]) * 1000


def test_compare_and_swap_loses_no_update(storage: Storage) -> None:
    storage.create("counter", b"0")

    def increment(_: int) -> None:
        while True:
            found = storage.find_with_etag("counter")
            assert found is not None
            if storage.replace("counter", b"%d" % (int(found[0]) + 1), etag=found[1]) is DONE:
                return

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(increment, range(20)))
    assert storage.get("counter") == b"20"


def test_one_of_many_publishes_wins(storage: Storage) -> None:
    tickets = [Ticket("1", str(number)) for number in range(6)]
    for ticket in tickets:
        assert storage.open_ticket(ticket) is DONE
    with ThreadPoolExecutor(6) as pool:
        outcomes = list(pool.map(lambda ticket: storage.publish(ticket, FINAL, ticket.generation.encode()), tickets))
    assert outcomes.count(DONE) == 1
    assert outcomes.count(REFUSED) == 5
    assert storage.get(FINAL) == str(outcomes.index(DONE)).encode()


def test_a_live_ticket_publishes_on_both_timelines(storage: Storage) -> None:
    assert storage.open_ticket(TICKET) is DONE
    assert storage.open_ticket(TICKET) is REFUSED
    assert storage.publish(TICKET, f".hoodie/metadata/{FINAL}", b"metadata") is DONE
    assert storage.publish(TICKET, FINAL, b"data") is DONE
    assert storage.get(f".hoodie/metadata/{FINAL}") == b"metadata"
    assert storage.get(FINAL) == b"data"


def test_publish_is_refused_where_a_file_is(storage: Storage) -> None:
    storage.open_ticket(TICKET)
    assert storage.publish(TICKET, FINAL, b"first") is DONE
    assert storage.publish(TICKET, FINAL, b"second") is REFUSED
    storage.create("taken", b"by another")
    assert storage.publish(TICKET, "taken", b"ours") is REFUSED
    assert (storage.get(FINAL), storage.get("taken")) == (b"first", b"by another")


def test_a_revoked_ticket_publishes_nothing(storage: Storage) -> None:
    storage.open_ticket(TICKET)
    assert storage.revoke(TICKET) is DONE
    assert storage.publish(TICKET, FINAL, b"late") is REFUSED
    assert storage.revoke(TICKET) is DONE
    assert storage.find(FINAL) is None
    assert storage.list(".hoodie/.tickets", recursive=True) == ()


def test_a_ticket_that_was_never_opened_publishes_nothing(storage: Storage) -> None:
    assert storage.publish(TICKET, FINAL, b"x") is REFUSED
    assert storage.revoke(TICKET) is DONE


def test_revoking_leaves_what_was_published(storage: Storage) -> None:
    storage.open_ticket(TICKET)
    storage.publish(TICKET, FINAL, b"data")
    storage.revoke(TICKET)
    assert storage.get(FINAL) == b"data"


def test_a_new_generation_lives_beside_a_revoked_one(storage: Storage) -> None:
    old, new, other = Ticket("10", "a"), Ticket("10", "b-c"), Ticket("100", "a")
    for ticket in (old, new, other):
        storage.open_ticket(ticket)
    assert storage.find_tickets("10") == (old, new)
    storage.revoke(old)
    assert storage.find_tickets("10") == (new,)
    assert storage.find_tickets("1") == ()
    assert storage.publish(old, FINAL, b"old") is REFUSED
    assert storage.publish(new, FINAL, b"new") is DONE


def test_arrow_reads_parquet(storage: Storage) -> None:
    table = pa.table({"k": list(range(50_000)), "v": [f"value {number}" for number in range(50_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=10_000)
    storage.create("p/f.parquet", sink.getvalue().to_pybytes())
    with storage.arrow_file("p/f.parquet") as file, pq.ParquetFile(file) as parquet:
        assert parquet.read() == table
        assert parquet.read_row_group(3, columns=["k"])["k"].to_pylist() == list(range(30_000, 40_000))


def test_what_was_stored_does_not_change_with_the_memory_it_came_from(storage: Storage) -> None:
    memory = bytearray(b"0123456789")
    storage.create("p/f", memoryview(memory))
    memory[:] = b"abcdefghij"
    assert storage.get("p/f") == b"0123456789"


def test_what_is_dismissed_can_still_be_read(storage: Storage) -> None:
    storage.create("p/f", b"0123456789")
    storage.dismiss("p/f")
    storage.dismiss("p/none")
    assert storage.get("p/f") == b"0123456789"
    assert storage.find("p/none") is None


def test_counts(storage: Storage) -> None:
    storage.create("f", b"0123456789")
    before = storage.counts.snapshot()
    storage.get("f")
    storage.find("gone")
    storage.get_range("f", 0, 3)
    storage.get_ranges("f", [(5, 2), (4, 1)])
    storage.size("f")
    storage.list("")
    storage.create("g", b"12")
    storage.replace("g", b"3")
    storage.delete("g")
    spent = storage.counts.snapshot() - before
    assert (spent.gets, spent.ranged_gets, spent.heads, spent.lists) == (2, 2, 1, 1)
    assert (spent.creates, spent.replaces, spent.deletes) == (1, 1, 1)
    assert (spent.bytes_read, spent.bytes_written) == (16, 3)


def test_it_pickles_and_opens_the_same_table(storage: Storage) -> None:
    if isinstance(storage, FaultyStorage):
        storage = storage.inner
    storage.create("f", b"x")
    again = pickle.loads(pickle.dumps(storage))
    assert (again.get("f"), again.url) == (b"x", storage.url)
    source = pickle.loads(pickle.dumps(storage.source("f")))
    assert source.read(0, 1) == b"x"


def test_reads_pass_where_writes_must_not(storage: Storage) -> None:
    storage.create("f", b"x")
    reader = ReadOnlyStorage(storage)
    assert reader.get("f") == reader.source("f").read(0, 1) == b"x"
    assert len(reader.list("")) == 1
    writes = [
        lambda: reader.create("g", b""),
        lambda: reader.replace("f", b""),
        lambda: reader.delete("f"),
        lambda: reader.open_ticket(TICKET),
        lambda: reader.publish(TICKET, "g", b""),
        lambda: reader.revoke(TICKET),
    ]
    for write in writes:
        with pytest.raises(AssertionError, match="a read must not write"):
            write()
    assert storage.get("f") == b"x"
