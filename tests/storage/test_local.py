"""The local disk: durable, atomic, and honest when the disk is not."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import InvalidInputError, StorageUnavailableError
from lakebed.storage import Outcome, Storage, Ticket, open_storage
from lakebed.storage.faults import Crash

DONE, REFUSED, UNKNOWN = Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN
TICKET = Ticket("20240101000000000", "1")
STEPS = ("open", "write", "fsync", "close", "link", "replace", "unlink", "mkdir", "rmdir", "listdir")
"""The calls to the system that writes are made of."""
SYNC = os.fsync
"""The call of the system: while tests run, nothing waits for the disk."""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "table")


def leftovers(storage: Storage) -> list[str]:
    return [listed.path for listed in storage.list(".hoodie/.staging")]


@contextmanager
def system_calls(act: Callable[[int, str, Callable[[], Any]], Any]) -> Iterator[None]:
    """Every call of STEPS goes to `act(number, name, run)` instead."""
    count = 0
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            real = getattr(os, name)

            def patched(*args: Any, name: str = name, real: Any = real, **options: Any) -> Any:
                nonlocal count
                count += 1
                return act(count, name, lambda: real(*args, **options))

            patch.setattr(os, name, patched)
        yield


def count_calls(write: Callable[[], object]) -> list[str]:
    names: list[str] = []

    def note(_: int, name: str, run: Callable[[], Any]) -> Any:
        names.append(name)
        return run()

    with system_calls(note):
        write()
    return names


def test_a_create_is_synced_before_and_after_it_gets_its_name(storage: Storage) -> None:
    storage.create("p/warm", b"")
    names = count_calls(lambda: storage.create("p/f", b"data"))
    assert [name for name in names if name not in ("open", "close")] == ["write", "fsync", "link", "fsync", "unlink"]


def test_the_disk_takes_all_that_it_is_asked_to_sync(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", SYNC)
    assert storage.create("p/old", b"old") is DONE
    assert {*storage.create_all({"p/1": b"x", "p/2": b"x"}).values()} == {DONE}
    assert storage.replace("p/old", b"new") is DONE
    assert storage.delete("p/old") is DONE


def test_files_that_are_created_together_share_the_sync_of_their_folder(storage: Storage) -> None:
    storage.create("p/warm", b"")
    names = count_calls(lambda: storage.create_all({f"p/{number}": b"data" for number in range(3)}))
    assert [name for name in names if name not in ("open", "close", "unlink")] == [
        *("write", "write", "write", "fsync", "fsync", "fsync"),
        *("link", "link", "link", "fsync"),
    ]


WRITES: dict[str, Callable[[Storage], Outcome]] = {
    "create": lambda storage: storage.create("p/q/new", b"new" * 1000),
    "create_all": lambda storage: storage.create_all({"p/other": b"", "p/q/new": b"new" * 1000})["p/q/new"],
    "replace": lambda storage: storage.replace("p/old", b"new" * 1000),
    "swap": lambda storage: storage.replace("p/old", b"new" * 1000, etag=_etag(storage)),
    "delete": lambda storage: storage.delete("p/old"),
    "publish": lambda storage: storage.publish(TICKET, "p/q/new", b"new" * 1000),
    "open_ticket": lambda storage: storage.open_ticket(Ticket("1", "1")),
    "revoke": lambda storage: storage.revoke(TICKET),
}


_NEW = b"new" * 1000
_AFTER = {
    "create": (b"old", _NEW, (TICKET,)),
    "create_all": (b"old", _NEW, (TICKET,)),
    "replace": (_NEW, None, (TICKET,)),
    "swap": (_NEW, None, (TICKET,)),
    "delete": (None, None, (TICKET,)),
    "publish": (b"old", _NEW, (TICKET,)),
    "open_ticket": (b"old", None, (TICKET,)),
    "revoke": (b"old", None, ()),
}
"""What is there once the write was run again: the old file, the new file, the tickets."""


def _etag(storage: Storage) -> str:
    found = storage.find_with_etag("p/old")
    assert found is not None
    return found[1]


@pytest.mark.parametrize("write", WRITES)
def test_a_crash_at_any_step_leaves_whole_files_only(tmp_path: Path, write: str) -> None:
    """The process dies at each call to the system in turn, with no cleaning up after itself."""

    def fresh(number: int) -> Storage:
        storage = open_storage(tmp_path / str(number))
        storage.create("p/old", b"old")
        storage.open_ticket(TICKET)
        return storage

    steps = len(count_calls(lambda: WRITES[write](fresh(0))))
    for number in range(1, steps + 1):
        storage = fresh(number)
        dead = False

        def die(count: int, name: str, run: Callable[[], Any], last: int = number) -> Any:
            nonlocal dead
            dead = dead or count == last
            if dead and name != "close":
                raise Crash
            return run()

        with system_calls(die), suppress(Crash):
            WRITES[write](storage)
        assert storage.find("p/q/new") in (None, b"new" * 1000)
        assert storage.find("p/old") in (None, b"old", b"new" * 1000)
        assert WRITES[write](storage) in (DONE, REFUSED)
        assert (storage.find("p/old"), storage.find("p/q/new"), storage.find_tickets(TICKET.instant)) == _AFTER[write]


def test_a_full_disk_leaves_nothing_and_says_so(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.replace("lock", b"old")

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for write in (lambda: storage.create("f", b"x"), lambda: storage.replace("lock", b"new")):
        with pytest.raises(StorageUnavailableError, match=r"nothing was written[\s\S]*free space"):
            write()
    assert storage.find("f") is None
    assert storage.get("lock") == b"old"
    assert leftovers(storage) == []


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EACCES, InvalidInputError, "permission"),
        (errno.EPERM, InvalidInputError, "hard links"),
        (errno.EROFS, InvalidInputError, "read-only"),
        (errno.EXDEV, InvalidInputError, "another file system"),
        (errno.EBUSY, StorageUnavailableError, "run it again"),
    ],
)
def test_a_failed_link_is_typed_and_leaves_nothing(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception], words: str
) -> None:
    def fail(source: str, final: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(kind, match=words):
        storage.create("p/f", b"x")
    assert storage.list("p") == ()
    assert leftovers(storage) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_link_that_may_have_happened_is_unknown(storage: Storage, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fail(source: str, final: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    assert storage.create("p/f", b"x") is UNKNOWN


def test_a_name_that_may_not_last_is_unknown(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.create("p/f", b"x")
    storage.create("p/g", b"x")
    real = os.fsync

    def fail_on_folders(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "I/O error")
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_on_folders)
    assert storage.create("p/new", b"x") is UNKNOWN
    assert storage.create_all({"p/more": b"x", "p/f": b"y"}) == {"p/more": UNKNOWN, "p/f": REFUSED}
    assert storage.replace("p/f", b"y") is UNKNOWN
    assert storage.delete("p/g") is UNKNOWN


def test_a_refusal_by_our_own_repeated_link_is_no_refusal(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def repeat(source: str, final: str) -> None:
        real(source, final)
        real(source, final)

    monkeypatch.setattr(os, "link", repeat)
    assert storage.create("f", b"x") is DONE


def test_a_read_that_the_system_forbids(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.create("f", b"x")

    def forbid(*args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    for name in ("open", "scandir", "stat"):
        monkeypatch.setattr(os, name, forbid)
    monkeypatch.setattr("builtins.open", forbid)
    reads = [
        lambda: storage.get("f"),
        lambda: storage.get_range("f", 0, 1),
        lambda: storage.size("f"),
        lambda: storage.list(""),
    ]
    for read in reads:
        with pytest.raises(InvalidInputError, match="permission denied"):
            read()


def test_a_revoke_just_before_the_link_wins(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.open_ticket(TICKET)
    real = os.link

    def late(source: str, final: str) -> None:
        assert storage.revoke(TICKET) is DONE
        real(source, final)

    monkeypatch.setattr(os, "link", late)
    assert storage.publish(TICKET, "final", b"late") is REFUSED
    assert storage.find("final") is None


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names an open file by /proc")
def test_a_revoke_in_the_middle_of_the_link_wins(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link has looked up its source when the ticket is revoked: it must not take effect afterwards."""
    storage.open_ticket(TICKET)
    real = os.link

    def looked_up_before(source: str, final: str) -> None:
        handle = os.open(source, os.O_RDONLY)
        folder = os.open("/proc/self/fd", os.O_RDONLY)
        try:
            assert storage.revoke(TICKET) is DONE
            real(str(handle), final, src_dir_fd=folder, follow_symlinks=True)
        finally:
            os.close(handle)
            os.close(folder)

    monkeypatch.setattr(os, "link", looked_up_before)
    assert storage.publish(TICKET, "final", b"late") is REFUSED
    assert storage.find("final") is None


def test_a_file_staged_by_a_zombie_does_not_stop_a_revoke(storage: Storage, tmp_path: Path) -> None:
    storage.open_ticket(TICKET)
    (tmp_path / "table" / TICKET.path / "staged").write_bytes(b"of a crashed publish")
    assert storage.revoke(TICKET) is DONE
    assert storage.list_folders(".hoodie/.tickets") == ()


def test_reads_create_nothing(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "missing" / "table")
    assert storage.find("f") is None
    assert storage.list("", recursive=True) == storage.list_folders("") == storage.find_tickets("1") == ()
    assert storage.size("f") is None
    assert storage.replace("f", b"x", etag="e") is REFUSED
    assert storage.delete("f") is DONE
    assert storage.revoke(TICKET) is DONE
    assert list(tmp_path.iterdir()) == []


def test_names_with_control_characters_do_not_hide_a_folder(storage: Storage, tmp_path: Path) -> None:
    storage.create("p/a", b"")
    (tmp_path / "table" / "p" / "tab\tnewline\n").write_bytes(b"x")
    (tmp_path / "table" / "p" / os.fsdecode(b"latin-\xe9")).write_bytes(b"x")
    paths = [listed.path for listed in storage.list("p")]
    assert paths == ["p/a", os.fsdecode(b"p/latin-\xe9"), "p/tab\tnewline\n"]
    assert [storage.size(path) for path in paths] == [0, 1, 1]


def test_links(storage: Storage, tmp_path: Path) -> None:
    storage.create("p/a", b"x")
    root = tmp_path / "table"
    (root / "p" / "loop").symlink_to(root)
    (root / "p" / "file").symlink_to(root / "p" / "a")
    (root / "p" / "broken").symlink_to(root / "nowhere")
    assert [listed.path for listed in storage.list("", recursive=True)] == ["p/a", "p/file"]
    assert [listed.path for listed in storage.list("p/loop/p")] == ["p/loop/p/a", "p/loop/p/file"]


def test_new_files_have_the_permissions_that_the_user_asked_for(storage: Storage, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        storage.create("f", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "table" / "f").stat().st_mode) == 0o640


def test_a_lock_is_not_shared_between_folders(storage: Storage) -> None:
    from lakebed.storage import posix

    storage.create("a/f", b"")
    storage.create("b/f", b"")
    with posix.locked(f"{storage.url}/a"):
        assert storage.replace("b/f", b"x") is DONE


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("p/f.parquet", "/p/f.parquet"),
        ("", ""),
        ("a%2Fb c:d#ü", "/a%2Fb c:d#ü"),
        ("a?b*c[d]{e}\\f", r"/a\?b\*c\[d\]\{e\}\\f"),
    ],
)
def test_uris_are_literal_but_for_globs(path: str, uri: str) -> None:
    assert open_storage("/data/orders").uri(path) == f"file:/data/orders{uri}"


def test_what_is_about_running_processes_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, synced = open_storage(tmp_path), []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    storage.create("eu/f1.parquet", b"rows")
    assert [path.removeprefix(str(tmp_path)) for path in synced if path.endswith("/eu")] == ["/eu"]
    synced.clear()
    ticket = Ticket("20260101000000000", "a")
    storage.open_ticket(ticket)
    synced.clear()  # The folder of all tickets is made once, and lasts.
    for path in (".hoodie/.temp/20260101000000000/MARKERS0", ".hoodie/.heartbeat/20260101000000000"):
        storage.create(path, b"1")
        storage.replace(path, b"2")
        storage.delete(path)
    storage.revoke(ticket)
    made_once = {str(tmp_path / ".hoodie"), str(tmp_path)}
    assert [path for path in synced if path not in made_once] == []


def test_a_child_process_syncs_files_by_threads_of_its_own(tmp_path: Path) -> None:
    """Workers of Spark are forked; a child has none of the threads that its parent waits with."""
    storage = open_storage(str(tmp_path))
    files = {f"p/{number}": b"x" for number in range(8)}
    assert set(storage.create_all(files).values()) == {Outcome.DONE}
    child = os.fork()
    if not child:
        signal.alarm(20)
        outcomes = storage.create_all({f"q/{number}": b"x" for number in range(2)})
        os._exit(0 if set(outcomes.values()) == {Outcome.DONE} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
