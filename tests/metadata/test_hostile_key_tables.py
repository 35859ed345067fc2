"""Key tables on disk that are damaged, forged, swapped or in a folder of others are built again, never taken."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from hostile import truncations
from lakebed import private_folder
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.shard_files import encode_shard_base
from lakebed.index.record import key_table, shard_cache
from lakebed.index.record.key_locations import probe_shard
from lakebed.index.record.key_table import load_key_table
from lakebed.index.record.shard_cache import ShardCache, default_cache
from lakebed.metadata.table import ROOT, ShardFiles
from lakebed.model.files import BaseFile, FileGroupId, FileSlice
from lakebed.model.instant import InstantTime
from lakebed.private_folder import NotPrivateError, make_private_folder, open_private
from lakebed.storage import open_storage

KEYS = [f"k{number}" for number in range(6)]
HEADER = struct.Struct("<8s16s6Q")
NUMBERS = ("slots", "entries", "ordered", "places", "replaces")
ABSURD = (0, 1, 2, (1 << 64) - 1, 1 << 63, (1 << 63) - 1, 1 << 40, 1 << 32, (1 << 64) // 20 + 1, (1 << 62) + 1)


def a_shard(folder: Path, keys: list[str] = KEYS) -> ShardFiles:
    """A shard whose base file has these keys, each in a file group of its own."""
    name = "record-index-0000-0_0-0-0_001.hfile"
    values = [encode_record_index_value(location(folder, row)) for row in range(len(keys))]
    encoded = pa.array(values, pa.binary()).dictionary_encode()
    data = encode_shard_base(pa.array(keys, pa.string()), encoded, schema=stored_schema(), created_ms=0)
    path = folder / ROOT / "record_index" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    base = BaseFile(name, "record-index-0000-0", "0-0-0", InstantTime("001"), ".hfile", len(data))
    group = FileSlice(FileGroupId("record_index", "record-index-0000-0"), base.instant, base, ())
    return ShardFiles(open_storage(str(folder)), group, (InstantTime("0019"),))


def location(folder: Path, row: int) -> RecordLocation:
    return RecordLocation(folder.name, f"00000000-0000-0000-0000-00000000000{row}-0", 1000 + row)


def check(folder: Path, shard: ShardFiles, cache: ShardCache, keys: list[str] = KEYS) -> int:
    """Asserts that every key is found where it is, as by a new process; how many tables were built for it."""
    shard_cache._HELD = shard_cache._HeldTables()
    shard_cache._SEEDS.clear()
    found = probe_shard(shard, pa.array([*keys, "absent", ""], pa.string()), cache)
    got = [found.places[code] if code >= 0 else None for code in found.codes]
    there = [location(folder, row) for row in range(len(keys))]
    assert got == [*(FileGroupId(each.partition, each.file_id) for each in there), None, None]
    assert list(found.instants_ms[: len(keys)]) == [each.instant_ms for each in there]
    return found.counts.built


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    held, seeds = shard_cache._HELD, dict(shard_cache._SEEDS)
    yield
    shard_cache._HELD = held
    shard_cache._SEEDS.clear()
    shard_cache._SEEDS.update(seeds)


class Stored:
    """The table of a shard in a cache, and its file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shard, self.cache = folder, a_shard(folder), ShardCache(str(folder / "cache"))
        assert check(folder, self.shard, self.cache) == 1
        (self.file,) = (folder / "cache").glob("*.keys")
        self.sound = self.file.read_bytes()
        assert check(folder, self.shard, self.cache) == 0

    def check_rebuilt(self, data: bytes) -> None:
        """Whatever the file says, keys are found, and the file is as it was."""
        self.file.unlink()
        self.file.write_bytes(data)
        self.file.chmod(0o600)
        assert check(self.folder, self.shard, self.cache) == 1, "the table was taken"
        assert self.file.read_bytes() == self.sound

    def refused(self, data: bytes) -> bool:
        self.file.write_bytes(data)
        self.file.chmod(0o600)
        return load_key_table(str(self.file), self.cache.seed) is None

    def forge(self, numbers: list[int], body: bytes) -> bytes:
        """A file whose checksum is right."""
        seed = self.cache.seed
        checksum = key_table._checksum(seed, self.file.name, numbers, [body])
        return HEADER.pack(self.sound[:8], seed, *numbers, checksum) + body


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_every_truncation(stored: Stored) -> None:
    assert all(stored.refused(cut) for cut in truncations(stored.sound))
    for cut in truncations(stored.sound, step=29):
        stored.check_rebuilt(cut)


def test_every_bit(stored: Stored) -> None:
    for at in range(8 * len(stored.sound)):
        data = bytearray(stored.sound)
        data[at // 8] ^= 1 << at % 8
        assert stored.refused(bytes(data)), at
    for at in range(0, len(stored.sound), 17):
        data = bytearray(stored.sound)
        data[at] ^= 0x80
        stored.check_rebuilt(bytes(data))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("number", ABSURD)
def test_numbers_of_the_header(stored: Stored, name: str, number: int) -> None:
    """Also where the checksum is right: then the numbers themselves do not agree with the file."""
    magic, seed, *numbers, checksum = HEADER.unpack_from(stored.sound)
    at, body = NUMBERS.index(name), stored.sound[HEADER.size :]
    if numbers[at] == number:
        return
    numbers[at] = number
    stored.check_rebuilt(HEADER.pack(magic, seed, *numbers, checksum) + body)
    if name != "replaces":
        assert stored.refused(stored.forge(numbers, body))


@pytest.mark.parametrize("entry", [7, 8, 1 << 20, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE])
def test_entries_that_are_not_there(stored: Stored, entry: int) -> None:
    _, _, *numbers, _ = HEADER.unpack_from(stored.sound)
    body = bytearray(stored.sound[HEADER.size :])
    slot = next(at for at in range(16, 20 * numbers[0], 20) if body[at : at + 4] != bytes(4))
    struct.pack_into("<I", body, slot, entry)
    stored.check_rebuilt(stored.forge(numbers, bytes(body)))


@pytest.mark.parametrize("place", [6, 7, -1, 0x7FFFFFFF, -0x80000000])
def test_places_that_are_not_there(stored: Stored, place: int) -> None:
    _, _, *numbers, _ = HEADER.unpack_from(stored.sound)
    body = bytearray(stored.sound[HEADER.size :])
    struct.pack_into("<i", body, 20 * numbers[0], place)
    stored.check_rebuilt(stored.forge(numbers, bytes(body)))


def test_a_table_without_an_empty_slot(stored: Stored) -> None:
    """A search would never end."""
    _, _, *numbers, _ = HEADER.unpack_from(stored.sound)
    body = bytearray(stored.sound[HEADER.size :])
    for at in range(16, 20 * numbers[0], 20):
        struct.pack_into("<I", body, at, 1)
    stored.check_rebuilt(stored.forge(numbers, bytes(body)))


@pytest.mark.parametrize(
    "places", [b"", b"{", b"[" * 100_000, b"7", b"null", b"[[1, 2]]", b'["ab"]', b'[["a"]]', b"\xff", b"[]"]
)
def test_places_that_are_no_places(stored: Stored, places: bytes) -> None:
    _, _, *numbers, _ = HEADER.unpack_from(stored.sound)
    body = stored.sound[HEADER.size : len(stored.sound) - numbers[3]] + places
    numbers[3] = len(places)
    stored.check_rebuilt(stored.forge(numbers, body))


def test_tables_in_each_others_place(tmp_path: Path) -> None:
    """Each is whole, and of the folder's seed, but says where the rows of another table are."""
    cache = ShardCache(str(tmp_path / "cache"))
    folders = [tmp_path / name for name in ("one", "two")]
    shards = [a_shard(folder) for folder in folders]
    files = []
    for folder, shard in zip(folders, shards, strict=True):
        before = {*(tmp_path / "cache").glob("*.keys")}
        check(folder, shard, cache)
        files += {*(tmp_path / "cache").glob("*.keys")} - before
    sound = [file.read_bytes() for file in files]
    for file, data in zip(files, reversed(sound), strict=True):
        file.write_bytes(data)
    assert [check(*pair, cache) for pair in zip(folders, shards, strict=True)] == [1, 1]
    assert [file.read_bytes() for file in files] == sound


@pytest.mark.parametrize("seed", [b"", b"short", bytes(17), bytes(16)])
def test_a_damaged_seed(stored: Stored, seed: bytes) -> None:
    (stored.folder / "cache" / "seed").write_bytes(seed)
    assert check(stored.folder, stored.shard, stored.cache) == 1
    assert check(stored.folder, stored.shard, stored.cache) == 0
    assert len((stored.folder / "cache" / "seed").read_bytes()) == 16


class TestFoldersOfOthers:
    def check_unused(self, folder: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Keys are found, nothing is stored, and a warning says why, once."""
        before = sorted(cache.resolve().iterdir())
        shard = a_shard(folder)
        assert check(folder, shard, ShardCache(str(cache))) == 1
        assert check(folder, shard, ShardCache(str(cache))) == 1
        assert sorted(cache.resolve().iterdir()) == before
        assert caplog.text.count("record index cache") == 1
        assert "LAKEBED_CACHE_DIR" in caplog.text

    @pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o722, 0o720, 0o702])
    def test_others_may_write(self, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int) -> None:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache").chmod(mode)
        self.check_unused(tmp_path, tmp_path / "cache", caplog)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
    def test_of_another_user(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "cache").mkdir(mode=0o700)
        os.chown(tmp_path / "cache", 12345, 12345)
        self.check_unused(tmp_path, tmp_path / "cache", caplog)

    def test_a_link(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "real").mkdir(mode=0o700)
        (tmp_path / "cache").symlink_to(tmp_path / "real")
        self.check_unused(tmp_path, tmp_path / "cache", caplog)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives links away")
    def test_by_a_link_of_another_user(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "real" / "cache").mkdir(parents=True, mode=0o700)
        (tmp_path / "link").symlink_to(tmp_path / "real")
        os.chown(tmp_path / "link", 12345, 12345, follow_symlinks=False)
        self.check_unused(tmp_path, tmp_path / "link" / "cache", caplog)

    def test_below_one_that_everybody_may_rename_in(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "all" / "cache").mkdir(parents=True, mode=0o700)
        (tmp_path / "all").chmod(0o777)
        self.check_unused(tmp_path, tmp_path / "all" / "cache", caplog)

    def test_a_home_that_was_moved_is_fine(self, tmp_path: Path) -> None:
        (tmp_path / "disk").mkdir()
        (tmp_path / ".cache").symlink_to(tmp_path / "disk")
        cache, shard = ShardCache(str(tmp_path / ".cache" / "lakebed" / "keys")), a_shard(tmp_path)
        assert [check(tmp_path, shard, cache) for _ in range(2)] == [1, 0]
        assert (tmp_path / "disk" / "lakebed").stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("spoil", ["write", "link", "pipe", "folder", "owner"])
    def test_a_file_of_others_in_it(self, stored: Stored, spoil: str) -> None:
        """As a folder that was open to others until a moment ago may have."""
        kept = stored.folder / "kept"
        stored.file.rename(kept)
        if spoil == "pipe":
            os.mkfifo(stored.file, 0o600)
        elif spoil == "link":
            stored.file.symlink_to(kept)
        elif spoil == "folder":
            stored.file.mkdir()
        else:
            stored.file.write_bytes(stored.sound)
            stored.file.chmod(0o620 if spoil == "write" else 0o600)
        if spoil == "owner":
            if os.geteuid() != 0:
                pytest.skip("only root gives files away")
            os.chown(stored.file, 12345, 12345)
        assert load_key_table(str(stored.file), stored.cache.seed) is None
        assert check(stored.folder, stored.shard, stored.cache) == 1
        if spoil != "folder":
            assert stored.file.read_bytes() == stored.sound
            assert check(stored.folder, stored.shard, stored.cache) == 0

    def test_the_seed_of_others_in_it(self, stored: Stored) -> None:
        (stored.folder / "cache" / "seed").chmod(0o666)
        assert check(stored.folder, stored.shard, stored.cache) == 1
        assert (stored.folder / "cache" / "seed").stat().st_mode & 0o777 == 0o600
        assert check(stored.folder, stored.shard, stored.cache) == 0

    def test_files_are_open_to_nobody(self, stored: Stored) -> None:
        modes = {path.stat().st_mode & 0o777 for path in (stored.folder / "cache").iterdir()}
        assert modes == {0o600}
        assert (stored.folder / "cache").stat().st_mode & 0o777 == 0o700


def test_private_means_owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch(0o600)
    os.close(open_private(str(tmp_path / "file")))
    monkeypatch.setattr(private_folder.os, "geteuid", lambda: 54321)
    with pytest.raises(NotPrivateError, match="another user"):
        open_private(str(tmp_path / "file"))
    with pytest.raises(NotPrivateError, match="another user"):
        make_private_folder(str(tmp_path))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(path: str, flags: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(shard_cache, "_open_own", full)
    shard, cache = a_shard(tmp_path), ShardCache(str(tmp_path / "cache"))
    assert [check(tmp_path, shard, cache) for _ in range(2)] == [1, 1]
    assert caplog.text.count("record index cache") == 1


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LAKEBED_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    cache = default_cache()
    assert cache.bytes_max == 0
    assert check(tmp_path, a_shard(tmp_path), cache) == 1
    assert not (tmp_path / "~").exists()


def test_making_room_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    """Somebody may name a folder that is in use."""
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / "thesis.txt").write_bytes(bytes(10_000))
    os.utime(tmp_path / "cache" / "thesis.txt", (1, 1))
    cache = ShardCache(str(tmp_path / "cache"), 1_000)
    for number in range(3):
        check(tmp_path / str(number), a_shard(tmp_path / str(number)), cache)
    assert (tmp_path / "cache" / "thesis.txt").exists()
    assert sum(file.stat().st_size for file in (tmp_path / "cache").glob("*.keys")) <= 1_000


def test_threads_agree_on_a_seed(tmp_path: Path) -> None:
    """Of a folder that cannot be used, too: a key is looked for by the seed that its table was made with."""
    (tmp_path / "file").touch()
    for number in range(50):
        cache = ShardCache(str(tmp_path / "file" / str(number)))
        with ThreadPoolExecutor(8) as threads:
            assert len({*threads.map(lambda _, cache=cache: cache.seed, range(8))}) == 1


def test_a_forged_table_does_not_end_the_process(stored: Stored) -> None:
    """The worst file that has a right checksum, in a process of its own."""
    _, _, *numbers, _ = HEADER.unpack_from(stored.sound)
    body = bytearray(stored.sound[HEADER.size :])
    for at in range(16, 20 * numbers[0], 20):
        struct.pack_into("<I", body, at, 0x7FFFFFFF)
    stored.file.write_bytes(stored.forge(numbers, bytes(body)))
    code = "import sys; from lakebed.index.record.key_table import load_key_table as load\n"
    code += "print(load(sys.argv[1], bytes.fromhex(sys.argv[2])))"
    command = [sys.executable, "-c", code, str(stored.file), stored.cache.seed.hex()]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "None"
