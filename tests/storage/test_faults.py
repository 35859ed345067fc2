"""The storage that fails as told."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from lakebed.errors import CorruptTableError, StorageUnavailableError
from lakebed.storage import Outcome, Storage, Ticket, open_storage
from lakebed.storage.faults import ANY_WRITE, Crash, Fault, FaultyStorage, at, on, seeded

_NAMES = itertools.count()
TICKET = Ticket("1", "a")


@pytest.fixture
def inner() -> Storage:
    return open_storage(f"memory://faults-{next(_NAMES)}")


@pytest.mark.parametrize(("fault", "there"), [(Fault.CRASH_BEFORE, None), (Fault.CRASH_AFTER, b"x")])
def test_a_crash_is_final(inner: Storage, fault: Fault, there: bytes | None) -> None:
    storage = FaultyStorage(inner, at({1: fault}))
    with pytest.raises(Crash):
        storage.create("f", b"x")
    with pytest.raises(Crash, match="dead already"):
        storage.create("clean-up", b"")
    assert inner.find("f") == there
    assert inner.find("clean-up") is None
    assert FaultyStorage(inner).find("f") == there


def test_a_crash_is_not_an_exception() -> None:
    assert not issubclass(Crash, Exception)


@pytest.mark.parametrize(
    ("fault", "outcome", "there"),
    [
        (Fault.LOST_BEFORE, Outcome.UNKNOWN, None),
        (Fault.LOST_AFTER, Outcome.UNKNOWN, b"x"),
        (Fault.REFUSE, Outcome.REFUSED, None),
    ],
)
def test_lost_and_refused_writes(inner: Storage, fault: Fault, outcome: Outcome, there: bytes | None) -> None:
    inner.open_ticket(TICKET)
    storage = FaultyStorage(inner, at({1: fault, 2: fault, 3: fault}))
    assert storage.create("created", b"x") is outcome
    assert storage.replace("replaced", b"x") is outcome
    assert storage.publish(TICKET, "published", b"x") is outcome
    assert [inner.find(path) for path in ("created", "replaced", "published")] == [there] * 3
    assert storage.create("later", b"") is Outcome.DONE


@pytest.mark.parametrize("verb", ["get", "find", "size", "list", "create"])
def test_an_unavailable_store_does_nothing(inner: Storage, verb: str) -> None:
    storage = FaultyStorage(inner, on(verb, Fault.UNAVAILABLE))
    with pytest.raises(StorageUnavailableError):
        getattr(storage, verb)(*(("f", b"x") if verb == "create" else ("f",)))
    assert inner.find("f") is None


def test_damaged_reads(inner: Storage) -> None:
    inner.create("f", b"abcd")
    for fault, expected in ((Fault.TRUNCATE, b"ab"), (Fault.FLIP, b"abbd")):
        storage = FaultyStorage(inner, at(dict.fromkeys(range(1, 4), fault)))
        found = storage.find_with_etag("f")
        assert found is not None
        assert storage.get("f") == storage.find("f") == found[0] == expected
    storage = FaultyStorage(inner, at({1: Fault.FLIP, 2: Fault.TRUNCATE, 3: Fault.TRUNCATE, 4: Fault.FLIP}))
    assert storage.source("f", 4).read(0, 2) == b"a\x63"
    for read in (lambda: storage.get_range("f", 1, 2), lambda: storage.get_ranges("f", [(0, 2), (2, 2)])):
        with pytest.raises(CorruptTableError):
            read()
    assert storage.find("missing") is None


def test_a_fault_that_cannot_befall_a_call_is_a_mistake_of_the_test(inner: Storage) -> None:
    for verb, call in (("delete", "delete"), ("get", "get")):
        storage = FaultyStorage(inner, on(verb, Fault.REFUSE))
        with pytest.raises(AssertionError, match="cannot befall"):
            getattr(storage, call)("f")


def test_the_nth_call_of_a_verb_on_a_path(inner: Storage) -> None:
    storage = FaultyStorage(inner, on("create", Fault.REFUSE, path="commit", nth=2))
    outcomes = [storage.create(path, b"") for path in ("1.commit", "file", "2.commit", "3.commit")]
    assert [outcome.value for outcome in outcomes] == ["done", "done", "refused", "done"]
    assert [str(traced) for traced in storage.trace][1:3] == ["2 create file", "3 create 2.commit  <- refuse"]


def _run(seed: int, inner: Storage) -> list[str]:
    storage = FaultyStorage(inner, seeded(seed, rate=0.3, kinds=ANY_WRITE - {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}))
    for number in range(40):
        with suppress(StorageUnavailableError):
            storage.create(str(number), b"x")
    return [str(traced) for traced in storage.trace]


def test_a_seed_replays() -> None:
    runs = [_run(seed, open_storage(f"memory://faults-{next(_NAMES)}")) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert {kind.value for kind in (Fault.REFUSE, Fault.LOST_AFTER)} <= {
        line.partition("<- ")[2] for run in runs for line in run
    }


def test_a_paged_listing_misses_what_sorts_into_a_page_already_read(inner: Storage) -> None:
    for name in ("b", "d", "f"):
        inner.create(f"t/{name}", b"")
    added = iter([("a", "c"), ("e", "g")])

    def between() -> None:
        for name in next(added, ()):
            inner.create(f"t/{name}", b"")

    storage = FaultyStorage(inner, page_size=2, between_pages=between)
    assert [listed.path for listed in storage.list("t")] == ["t/b", "t/d", "t/f"]
    assert [listed.path for listed in storage.list("t")] == ["t/a", "t/b", "t/c", "t/d", "t/e", "t/f", "t/g"]
