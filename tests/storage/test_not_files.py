"""What has the name of a small file is a file of its kind, or an error: nothing is waited for or read without end."""

from __future__ import annotations

import faulthandler
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import CorruptTableError
from lakebed.storage import Storage, open_storage
from lakebed.storage.port import check_whole_size

MIB = 1 << 20


@pytest.fixture(autouse=True)
def not_for_ever() -> Iterator[None]:
    """A test that waits for a pipe ends the run rather than standing still."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listener(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # The name of a socket may have about a hundred bytes.
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS = [pipe, device, listener]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "read",
    [
        lambda storage: storage.get("f"),
        lambda storage: storage.find("f"),
        lambda storage: storage.find_with_etag("f"),
        lambda storage: storage.get_range("f", 0, 1),
        lambda storage: storage.arrow_file("f"),
        lambda storage: storage.source("f").read(0, 1),
        lambda storage: storage.replace("f", b"", etag="0"),
    ],
)
def test_nothing_but_files_is_read(
    tmp_path: Path, make: Callable[[Path], None], read: Callable[[Storage], object]
) -> None:
    make(tmp_path / "f")
    storage = open_storage(tmp_path)
    try:
        assert str(read(storage)) == "Outcome.REFUSED"
    except CorruptTableError as error:
        assert "f:" in str(error)  # noqa: PT017
    storage.dismiss("f")
    assert storage.list("") == ()
    assert storage.size("f") is None


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    storage = open_storage(tmp_path)
    assert storage.find("f") is None
    for read in (storage.get, storage.arrow_file, lambda path: storage.get_range(path, 0, 1)):
        with pytest.raises(CorruptTableError, match="missing"):
            read("f")


SMALL = [
    ".hoodie/hoodie.properties",
    ".hoodie/hoodie.properties.backup",
    ".hoodie/metadata/.hoodie/hoodie.properties",
    ".hoodie/.index_defs/index.json",
    ".hoodie/timeline/history/_version_",
    ".hoodie/.heartbeat/20260101000000000",
    ".hoodie/.locks/table_lock.json",
    ".hoodie/lock",
    ".hoodie_partition_metadata",
    "a/b\n/.hoodie_partition_metadata",
]
INSTANTS = [".hoodie/timeline/20260101000000000.commit.requested", ".hoodie/20260101000000000.commit"]
DATA = ["p/0.parquet", ".p.log.1", ".hoodie/metadata/files/0.hfile", ".hoodie/timeline/history/1_2_0.parquet"]


@pytest.mark.parametrize("path", SMALL)
def test_small_files_are_small(tmp_path: Path, path: str) -> None:
    storage = open_storage(tmp_path)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    with open(tmp_path / path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptTableError, match=r"1099511627776 bytes"):
        storage.find(path)
    check_whole_size(path, 16 * MIB)


@pytest.mark.parametrize("path", INSTANTS)
def test_instants_may_be_larger(path: str) -> None:
    check_whole_size(path, 1024 * MIB)
    with pytest.raises(CorruptTableError):
        check_whole_size(path, 1025 * MIB)


@pytest.mark.parametrize("path", DATA)
def test_data_has_the_size_that_it_has(path: str) -> None:
    check_whole_size(path, 1 << 40)


def test_objects_too() -> None:
    storage = open_storage("memory://small-files-are-small")
    storage.create(".hoodie/hoodie.properties", bytes(16 * MIB + 1))
    with pytest.raises(CorruptTableError, match="16777217 bytes"):
        storage.find(".hoodie/hoodie.properties")


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "path", [".hoodie/hoodie.properties", ".hoodie/metadata/.hoodie/hoodie.properties", "*.commit"]
)
def test_tables(unpack, tmp_path: Path, make: Callable[[Path], None], path: str) -> None:
    table = Path(shutil.copytree(unpack("hudi120_cow_part_upsert").path, tmp_path / "table"))
    found = table / path if "*" not in path else sorted((table / ".hoodie" / "timeline").glob(path))[0]
    found.unlink()
    make(found)
    if path == "*.commit":  # Like any other thing in the folder that is no file, it is no instant.
        lakebed.open_table(table).to_arrow()
        return
    with pytest.raises(CorruptTableError, match="pipe, a socket or a device"):
        lakebed.open_table(table).to_arrow()
