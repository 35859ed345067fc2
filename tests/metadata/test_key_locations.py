"""Bulk probes of the record index say what reading its entries says, whatever the cache keeps."""

from __future__ import annotations

import os
import pickle
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from conftest import REAL_TABLES, catalogue
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.hfile import encode_hfile, key_order
from lakebed.format.log.file import BlockKind, HeaderKey, encode_log_block
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.shard_files import encode_placeholder_log, encode_shard_base, encode_shard_log
from lakebed.index.record import key_locations, key_table, new_tables, shard_cache
from lakebed.index.record.key_locations import Locations, ProbeCounts, locate_everywhere, locate_keys, probe_shard
from lakebed.index.record.key_table import HashedKeys, KeyTable, KeyTables, fingerprints
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.probe import find_locations, is_partitioned, read_record_index
from lakebed.index.record.shard_cache import ShardCache, default_cache
from lakebed.kernels.key_table import GONE, insert_entries
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import Merged
from lakebed.metadata.table import ROOT, ShardFiles
from lakebed.metadata.upkeep.compaction import DELTA_COMMITS
from lakebed.model.commit import WriteStat
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import open_storage
from lakebed.table import open_handle
from lakebed.transaction.section import Section

_WITH_INDEX = [
    entry["zip"].removesuffix(".zip")
    for entry in catalogue()
    if "record_index" in entry["metadata_partitions"] and entry["zip"].removesuffix(".zip") in REAL_TABLES
]
FEW_SIZES = (0, 4096, 1 << 30)
Entry = tuple[str, str, int]


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are probed however few keys there are."""
    monkeypatch.setattr(key_locations, "POINT_KEYS_MAX", -1)
    monkeypatch.setattr(key_locations, "SMALL_BYTES", -1)


def entry_of(found: Locations, row: int) -> Entry | None:
    if found.codes[row] < 0:
        return None
    place = found.places[found.codes[row]]
    return place.partition, place.file_id, int(found.instants_ms[row])


def entries(metadata: MetadataTable) -> dict[tuple[str, str], Entry]:
    """All entries, by data partition (if the index is partitioned) and key."""
    table = read_record_index(metadata)
    columns = (table[name].to_pylist() for name in ("key", "partition", "file_id", "instant_ms"))
    by_partition = is_partitioned(metadata)
    return {(p if by_partition else "", k): (p, f, t) for k, p, f, t in zip(*columns, strict=True)}


def check_all(metadata: MetadataTable, cache: ShardCache) -> ProbeCounts:
    """Every key, in each data partition if the index is partitioned, and keys that are not there."""
    expected = entries(metadata)
    homes = [*sorted({home for home, _ in expected}), "nowhere"]
    wanted = [(home, key) for home in homes for key in (*sorted({key for _, key in expected}), "none", "")]
    partitions = pa.array([home for home, _ in wanted], pa.string()).dictionary_encode()
    found = locate_keys(metadata, pa.array([key for _, key in wanted], pa.string()), partitions, cache=cache)
    if not is_partitioned(metadata):
        wanted = [("", key) for _, key in wanted]
    assert [entry_of(found, row) for row in range(len(wanted))] == [expected.get(one) for one in wanted]
    assert found.counts.hits == np.count_nonzero(found.codes >= 0)
    check_everywhere(metadata, cache)
    return found.counts


def check_everywhere(metadata: MetadataTable, cache: ShardCache) -> None:
    keys = [*dict.fromkeys(key for _, key in entries(metadata)), "none"]
    rows, found = locate_everywhere(metadata, pa.array(keys, pa.string()), cache=cache)
    assert list(rows) == sorted(rows)
    got = sorted((keys[row], *entry_of(found, at)) for at, row in enumerate(rows))
    places = find_locations(metadata, keys)
    assert got == sorted((k, p.partition, p.file_id, p.instant_ms) for k, each in places.items() for p in each)


def metadata_of(path: object) -> MetadataTable:
    metadata = open_handle(str(path)).state().metadata
    assert isinstance(metadata, MetadataTable)
    return metadata


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("name", _WITH_INDEX)
def test_real_tables(unpack, name: str, tmp_path: Path) -> None:
    metadata = metadata_of(unpack(name).path)
    for size in (*FEW_SIZES, FEW_SIZES[-1]):
        counts = check_all(metadata, ShardCache(str(tmp_path / str(size)), size))
    if metadata.shard_files("record_index") is not None:
        assert counts.cached > 0
        assert counts.built == 0


@pytest.mark.parametrize("name", _WITH_INDEX)
def test_few_keys_are_looked_up_where_they_lie(
    unpack, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_locations, "POINT_KEYS_MAX", 1000)
    counts = check_all(metadata_of(unpack(name).path), ShardCache(str(tmp_path / "cache")))
    assert counts.point_keys == counts.keys
    assert not (tmp_path / "cache").exists()


KEYS = st.sampled_from([f"k{number}" for number in range(12)] + ["", "ké", "\U0001f600", "a" * 7, "a" * 8, "a" * 9])
LAYERS = st.lists(
    st.tuples(st.dictionaries(KEYS, st.integers(0, 3), max_size=8), st.sets(KEYS, max_size=4)), min_size=1, max_size=6
)


@dataclass
class Shard:
    """A shard under construction in a folder: its files, and what it should answer."""

    folder: Path
    base: BaseFile | None = None
    logs: tuple[LogFile, ...] = ()

    def files(self) -> ShardFiles:
        first = self.base.instant if self.base else self.logs[0].instant
        group = FileGroupId("record_index", "record-index-0000-0")
        file_slice = FileSlice(group, first, self.base, self.logs)
        stamps = [file.instant for file in ((self.base,) if self.base else ()) + self.logs]
        return ShardFiles(open_storage(str(self.folder)), file_slice, tuple(InstantTime(f"{t}9") for t in stamps))

    def store(self, name: str, data: bytes) -> int:
        path = self.folder / ROOT / "record_index" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")  # Other processes may store the same file.
        unfinished.write_bytes(data)
        unfinished.replace(path)
        return len(data)

    def add_base(self, number: int, there: dict[str, int]) -> None:
        keys, values = arrays(there)
        data = encode_shard_base(keys, values, schema=stored_schema(), created_ms=0)
        instant, name = InstantTime(f"{number:03}"), f"record-index-0000-0_0-0-0_{number:03}.hfile"
        self.base = BaseFile(name, "record-index-0000-0", "0-0-0", instant, ".hfile", self.store(name, data))
        self.logs = ()

    def add_log(self, number: int, data: bytes) -> None:
        instant, name = InstantTime(f"{number:03}"), f".record-index-0000-0_{number:03}.log.1_0-0-0"
        log = LogFile(name, "record-index-0000-0", instant, 1, "0-0-0", size=self.store(name, data))
        self.logs = (*self.logs, log)


def location(value: int) -> RecordLocation:
    return RecordLocation(f"p{value % 2}", f"00000000-0000-0000-0000-00000000000{value}-0", 1000 + value)


def arrays(there: dict[str, int]) -> tuple[pa.Array, pa.Array]:
    values = [encode_record_index_value(location(value)) for value in there.values()]
    return pa.array(list(there), pa.string()), pa.array(values, pa.binary()).dictionary_encode()


def log_bytes(number: int, there: dict[str, int], gone: set[str]) -> bytes:
    if not there and not gone:
        return encode_placeholder_log(f"{number:03}")
    keys, values = arrays(there)
    return encode_shard_log(
        f"{number:03}",
        keys,
        values,
        pa.array(sorted(gone), pa.string()),
        mdt_partition="record_index",
        schema=stored_schema(),
        created_ms=0,
    )


def check_shard(shard: Shard, model: dict[str, int], caches: Sequence[ShardCache]) -> list[ProbeCounts]:
    keys = sorted({*model, "k0", "k5", "", "ké", "\U0001f600", "absent", *("a" * length for length in range(30))})
    counts = []
    for cache in caches:
        found = probe_shard(shard.files(), pa.array(keys, pa.string()), cache)
        expected = [None if key not in model else location(model[key]) for key in keys]
        got = [entry_of(found, row) for row in range(len(keys))]
        assert got == [each and (each.partition, each.file_id, each.instant_ms) for each in expected]
        counts.append(found.counts)
    return counts


def caches_below(folder: Path) -> list[ShardCache]:
    return [ShardCache(str(folder / f"cache{size}"), size) for size in FEW_SIZES]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(layers=LAYERS, compact_at=st.sets(st.integers(0, 5), max_size=2))
def test_every_cache_size_says_the_same(tmp_path_factory, layers, compact_at: set[int]) -> None:
    folder = tmp_path_factory.mktemp("shard")
    shard, model, caches = Shard(folder), {}, caches_below(folder)
    for number, (there, gone) in enumerate(layers):
        gone = gone - there.keys()
        model = {key: value for key, value in (model | there).items() if key not in gone}
        if number in compact_at:
            shard.add_base(number, model)
        else:
            shard.add_log(number, log_bytes(number, there, gone))
        *_, large = check_shard(shard, model, caches)
        assert large.built == 1, "only what is new is read"
        assert large.cached == len(shard.logs) + (shard.base is not None) - 1


def test_a_log_that_does_not_count_leaves_nothing_behind(tmp_path: Path) -> None:
    shard, caches = Shard(tmp_path), caches_below(tmp_path)
    shard.add_base(1, {"k0": 0, "k5": 1})
    before = shard.logs
    shard.add_log(2, log_bytes(2, {"k0": 2}, {"k5"}))
    after = shard.logs
    check_shard(shard, {"k0": 2}, caches)
    shard.logs = before
    check_shard(shard, {"k0": 0, "k5": 1}, caches)
    shard.logs = after
    check_shard(shard, {"k0": 2}, caches)


def test_a_block_that_stands_for_others(tmp_path: Path) -> None:
    """Log compaction: the later block takes the place of the second one, under the third."""
    shard = Shard(tmp_path)
    for number, there in ((1, {"k0": 0}), (2, {"k0": 1, "k5": 1}), (3, {"k0": 2})):
        shard.add_log(number, log_bytes(number, there, set()))
    keys, values = arrays({"k0": 3, "k5": 3})
    header = {
        HeaderKey.INSTANT_TIME: "004",
        HeaderKey.SCHEMA: stored_schema(),
        HeaderKey.COMPACTED_BLOCK_TIMES: "001,002",
    }
    content = encode_hfile(keys, values, schema=stored_schema(), created_ms=0, base_file=False, order=key_order(keys))
    shard.add_log(4, encode_log_block(BlockKind.HFILE_DATA, header, content))
    check_shard(shard, {"k0": 2, "k5": 3}, caches_below(tmp_path))
    check_shard(shard, {"k0": 2, "k5": 3}, caches_below(tmp_path))


def wait_until_stored() -> None:
    """Returns when no table is waiting any more: they are stored one after the other."""
    shard_cache._background().submit(int).result()


def cache_files(cache: ShardCache) -> list[Path]:
    wait_until_stored()
    return sorted(Path(cache.folder).glob("*.keys"))


def held_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process: no table is mapped, no seed is known."""
    monkeypatch.setattr(shard_cache, "_HELD", shard_cache._HeldTables())
    shard_cache._SEEDS.clear()


def test_broken_tables_are_noticed_and_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, cache = Shard(tmp_path), ShardCache(str(tmp_path / "cache"))
    model = {f"k{number}": number % 4 for number in range(50)}
    shard.add_base(1, model)
    (before,) = check_shard(shard, model, [cache])
    assert before.built == 1
    (file,) = cache_files(cache)
    sound = file.read_bytes()
    cuts = [sound[:length] for length in (0, 10, len(sound) // 2, len(sound) - 1)]
    flips = [flipped(sound, at) for at in range(0, len(sound), max(1, len(sound) // 200))]
    for broken in (*cuts, *flips, sound + b"x", bytes(len(sound))):
        file.unlink()
        file.write_bytes(broken)
        held_by_nobody(monkeypatch)
        (counts,) = check_shard(shard, model, [cache])
        assert counts.built == 1, "a broken table is not taken"
        assert file.read_bytes() == sound
    held_by_nobody(monkeypatch)
    (counts,) = check_shard(shard, model, [cache])
    assert (counts.cached, counts.built) == (1, 0)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def test_the_cache_may_be_deleted_at_any_moment(tmp_path: Path) -> None:
    shard, cache = Shard(tmp_path), ShardCache(str(tmp_path / "cache"))
    shard.add_base(1, {"k0": 1})
    check_shard(shard, {"k0": 1}, [cache])
    for file in Path(cache.folder).iterdir():
        file.unlink()
    Path(cache.folder).rmdir()
    (counts,) = check_shard(shard, {"k0": 1}, [cache])
    assert counts.built == 1
    (counts,) = check_shard(shard, {"k0": 1}, [cache])
    assert counts.cached == 1


def held_bytes() -> int:
    """What is held, counted anew."""
    held = shard_cache._HELD
    together = sum(tables.nbytes for _, tables in held._shards.values())
    return together + sum(table.nbytes for table in held._tables.values())


def test_tables_of_a_shard_are_held_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a commit adds is all that a process looks at anew, until a table is gone from the folder."""
    held_by_nobody(monkeypatch)
    joined: list[tuple[int, int]] = []

    def noted(tables: Sequence[KeyTable], older: KeyTables | None = None) -> KeyTables:
        joined.append((len(tables), 0 if older is None else len(older.tables)))
        return of(tables, older)

    of = KeyTables.of
    monkeypatch.setattr(KeyTables, "of", noted)
    shard, cache = Shard(tmp_path), ShardCache(str(tmp_path / "cache"))
    shard.add_base(1, {"k0": 0, "k5": 1})
    check_shard(shard, {"k0": 0, "k5": 1}, [cache])
    for number in (2, 3):
        shard.add_log(number, log_bytes(number, {"k0": number}, set()))
        check_shard(shard, {"k0": number, "k5": 1}, [cache, cache])
    assert joined == [(1, 0), (1, 1), (1, 2)]
    assert shard_cache._HELD._bytes == held_bytes()
    cache_files(cache)[0].unlink()
    (counts,) = check_shard(shard, {"k0": 3, "k5": 1}, [cache])
    assert (counts.cached, counts.built) == (2, 1)
    assert joined[3:] == [(3, 0)]
    assert shard_cache._HELD._bytes == held_bytes()
    shard.logs = shard.logs[:1]
    check_shard(shard, {"k0": 2, "k5": 1}, [cache])
    assert joined[4:] == [(2, 0)]
    assert shard_cache._HELD._bytes == held_bytes()


@pytest.mark.parametrize("bytes_max", [20_000, 100_000, 200_000])
def test_what_is_held_together_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int) -> None:
    held_by_nobody(monkeypatch)
    cache = ShardCache(str(tmp_path / "cache"), bytes_max)
    for number in range(5):
        shard = Shard(tmp_path / str(number))
        shard.add_base(1, {f"k{key}": 1 for key in range(100)})
        shard.add_log(2, log_bytes(2, {"k0": 2}, set()))
        check_shard(shard, {f"k{key}": 1 for key in range(100)} | {"k0": 2}, [cache, cache])
        assert shard_cache._HELD._bytes == held_bytes() <= bytes_max
    held = shard_cache._HELD
    assert len(held._shards) == bytes_max // 70_000
    assert {path for paths, _ in held._shards.values() for path in paths} == held._oldest.keys()


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    shard, cache = Shard(tmp_path), ShardCache(str(tmp_path / "file" / "cache"))
    shard.add_base(1, {"k0": 1})
    (counts,) = check_shard(shard, {"k0": 1}, [cache])
    assert counts.built == 1
    assert "record index cache" in caplog.text


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = ShardCache(str(tmp_path / "cache"), 8_000)
    shards = [Shard(tmp_path / str(number)) for number in range(5)]
    model = {f"k{number}": 1 for number in range(100)}
    for number, shard in enumerate(shards):
        shard.add_base(number, model)
        check_shard(shard, model, [cache])
        sizes = [file.stat().st_size for file in cache_files(cache)]
        assert sum(sizes) <= 8_000
        for file in cache_files(cache):  # Uses lie apart, also on a disk that counts in seconds.
            used = file.stat().st_mtime_ns
            os.utime(file, ns=(used - 10**10, used - 10**10))
        (again,) = check_shard(shards[0], model, [cache])
        assert again.cached == 1, "what is used stays"
    (gone,) = check_shard(shards[1], model, [cache])
    assert gone.built == 1


@pytest.mark.parametrize("few", [300, 301])
def test_keys_that_are_few_in_every_shard_need_no_fingerprints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Nor compiled code for them; one more than can be few in all shards does."""
    table = lakebed.create_table(tmp_path / "t", schema=SCHEMA, key="id", indexes=("record",))
    table.upsert([{"id": "k1", "city": "oslo", "ts": 1}])
    asked: list[int] = []

    def noted(keys: pa.Array, shards: int, seed: bytes, meanwhile: Callable[[], None]) -> HashedKeys:
        asked.append(len(keys))
        return hash_all(keys, shards, seed, meanwhile)

    metadata, hash_all = metadata_of(tmp_path / "t"), key_locations._hash_all
    monkeypatch.setattr(key_locations, "_hash_all", noted)
    monkeypatch.setattr(key_locations, "_few_max", lambda _: 300 / len(metadata.slices("record_index")))
    monkeypatch.setattr(key_locations._Keys, "is_few", True)
    found = locate_keys(metadata, pa.array([f"k{n}" for n in range(few)]), cache=ShardCache(str(tmp_path / "cache")))
    assert np.flatnonzero(found.codes >= 0).tolist() == [1]
    assert bool(asked) is (few > 300)


def a_table(keys: int = 100) -> KeyTable:
    nothing = np.empty(0, np.int64)
    return KeyTable(np.zeros(5 * keys, np.uint32), np.empty(0, np.int32), nothing, (), nothing)


def test_a_table_that_waits_to_be_stored_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, may_store = ShardCache(str(tmp_path / "cache")), threading.Event()
    write = shard_cache._write

    def wait_first(path: str, parts: Iterable[bytes | memoryview]) -> None:
        assert may_store.wait(60)
        write(path, parts)

    monkeypatch.setattr(shard_cache, "_write", wait_first)
    table = a_table()
    cache.keep_soon("one", table)
    assert cache.find("one") is table
    assert not [*tmp_path.rglob("*.keys")]
    may_store.set()
    assert len(cache_files(cache)) == 1
    held_by_nobody(monkeypatch)
    assert cache.find("one") is not None
    assert not shard_cache._WAITING


def test_whoever_makes_tables_faster_than_they_are_stored_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_cache, "_WAITING_BYTES_MAX", 100)
    cache = ShardCache(str(tmp_path / "cache"))
    cache.keep_soon("one", a_table())
    assert len([*tmp_path.rglob("*.keys")]) == 1
    assert not shard_cache._WAITING


def test_a_table_that_cannot_be_stored_later_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = ShardCache(str(tmp_path / "file" / "cache"))
    cache.keep_soon("one", a_table())
    wait_until_stored()
    assert "record index cache" in caplog.text
    assert not shard_cache._WAITING


@pytest.mark.parametrize(
    "sizes",
    [(0,), (3, 0), (0, 5, 400), (30_000, 30_000, 9), (40_000, 40_000, 9), (1, 1, 1, 1, 2000), (9, 2000, 5, 0), (7, 7)],
)
@pytest.mark.parametrize("marked_max", [0, 1 << 20])
def test_the_newest_table_that_knows_a_key_counts(
    monkeypatch: pytest.MonkeyPatch, marked_max: int, sizes: tuple[int, ...]
) -> None:
    """Also if tables have so many keys that nothing marks them, and if they say that it is gone."""
    monkeypatch.setattr(key_table, "_LARGEST_SLOTS_MAX", marked_max)
    rng = np.random.default_rng(len(sizes))
    keys = pa.array([f"key-{number}" for number in range(40_000)])
    prints = fingerprints(keys, b"s" * 16)
    tables, model = [], {}
    for number, size in reversed([*enumerate(sizes)]):
        chosen = rng.choice(len(keys), size, replace=False)
        found = np.where(rng.random(size) < 0.2, GONE, 1 + np.arange(size)).astype(np.uint32)
        slots = np.zeros(5 * (1 + int(size / 0.6)), np.uint32)
        insert_entries(slots, np.ascontiguousarray(prints.reshape(-1, 4)[chosen]).reshape(-1), found)
        instants, ordering = number + np.arange(size), np.arange(size) if number % 2 else np.empty(0, np.int64)
        places = (FileGroupId("p", "all"), FileGroupId("p", f"f{number}"))
        tables.insert(0, KeyTable(slots, np.ones(size, np.int32), instants, places, ordering))
        model.update({int(key): (number, int(entry)) for key, entry in zip(chosen, found, strict=True)})
    asked = rng.permutation(len(keys))
    joined = KeyTables.of(tables)
    for count in range(len(tables)):
        above = KeyTables.of(tables[: count + 1], KeyTables.of(tables[count + 1 :]) if tables[count + 1 :] else None)
        assert (above.largest, above.marks.tobytes()) == (joined.largest, joined.marks.tobytes())
        assert above.largest_marks.tobytes() == joined.largest_marks.tobytes()
        found = key_locations._Found(len(keys))
        probe = key_locations._Probe.of([key_locations._Tables(above, 1, 0)], found, asked, np.array([0, len(keys)]))
        probe.run(prints, threads=None)
        located = found.locations()
        assert located.counts.hits == sum(entry != GONE for _, entry in model.values())
        for key, code, at, value in zip(
            range(len(keys)), located.codes, located.instants_ms, located.ordering, strict=True
        ):
            number, entry = model.get(key, (0, GONE))
            if entry == GONE:
                assert (code, at, value) == (-1, -1, NO_ORDERING)
            else:
                assert located.places[code].file_id == f"f{number}"
                assert (at, value) == (number + entry - 1, entry - 1 if number % 2 else NO_ORDERING)


def test_a_full_cache_is_not_looked_through_for_every_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def counted(folder: str, bytes_max: int, shrink: Callable[[str, int], int] = shard_cache._shrink) -> int:
        looks.append(shrink(folder, bytes_max))
        return looks[-1]

    monkeypatch.setattr(shard_cache, "_shrink", counted)
    table = a_table(20)
    cache = ShardCache(str(tmp_path / "cache"), 50 * 1024)
    for number in range(400):
        cache.keep(str(number), table)
    assert max(looks) <= cache.bytes_max
    assert len(looks) < 400 / 5, "a tenth of it is made free at once"


def test_a_table_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    shard, cache = Shard(tmp_path), ShardCache(str(tmp_path / "cache"), 100)
    shard.add_base(1, {f"k{number}": 1 for number in range(100)})
    check_shard(shard, {f"k{number}": 1 for number in range(100)}, [cache])
    assert cache_files(cache) == []


def probe_in_process(folder: str) -> bool:
    shard, cache = Shard(Path(folder)), ShardCache(f"{folder}/cache", 8_000)
    model = {f"k{number}": number % 4 for number in range(100)}
    for round_ in range(6):
        shard.add_base(round_ % 4, model)
        check_shard(shard, model, [cache])
    return True


def test_several_processes_share_a_cache(tmp_path: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        assert all(pool.map(probe_in_process, [str(tmp_path)] * 3))
    assert [file.name for file in Path(tmp_path / "cache").iterdir() if file.suffix == ".tmp"] == []


def test_tables_in_memory_are_never_kept(tmp_path: Path) -> None:
    shard, cache = Shard(tmp_path), ShardCache(str(tmp_path / "cache"))
    shard.add_log(1, log_bytes(1, {"k0": 1}, set()))
    files = shard.files()
    storage = open_storage("memory://a-table")
    data = (tmp_path / ROOT / files.file_slice.paths[0]).read_bytes()
    storage.create(f"{ROOT}{files.file_slice.paths[0]}", data)
    found = probe_shard(
        ShardFiles(storage, files.file_slice, files.completions), pa.array(["k0", "k1"], pa.string()), cache
    )
    assert found.codes.tolist() == [0, -1]
    assert cache_files(cache) == []


def test_fingerprints_are_siphash() -> None:
    """Vectors of the reference implementation: seed 00..0f, messages '', 00, 00 01, and so on."""
    seed = bytes(range(16))
    messages = pa.array([bytes(range(length)) for length in range(64)], pa.binary())
    prints = fingerprints(messages, seed).astype("<u4").tobytes()
    assert prints[:16].hex() == "a3817f04ba25a8e66df67214c7550293"
    assert prints[16:32].hex() == "da87c1d86b99af44347659119b22fc45"
    assert len({prints[at : at + 16] for at in range(0, len(prints), 16)}) == 64


@given(st.lists(st.binary(max_size=40), max_size=30), st.booleans(), st.binary(min_size=16, max_size=16))
def test_fingerprints_of_several_keys_are_those_of_each(keys: list[bytes], alike: bool, seed: bytes) -> None:
    """Keys that have equally many words are hashed together, others one by one."""
    keys = [key[:16].ljust(16 + number % 8, b"x") for number, key in enumerate(keys)] if alike else keys
    array = pa.array([b"before", *keys], pa.binary())[1:]
    assert fingerprints(array, seed).astype("<u4").tobytes() == b"".join(siphash(key, seed) for key in keys)


def siphash(message: bytes, seed: bytes) -> bytes:
    """SipHash-2-4 with 128 bits of output, by the book."""

    def rotated(word: int, by: int) -> int:
        return (word << by | word >> (64 - by)) & (2**64 - 1)

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0], v[2] = (v[0] + v[1]) % 2**64, (v[2] + v[3]) % 2**64
            v[1], v[3] = rotated(v[1], 13) ^ v[0], rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2], v[0] = (v[2] + v[1]) % 2**64, (v[0] + v[3]) % 2**64
            v[1], v[3] = rotated(v[1], 17) ^ v[2], rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    low, high = struct.unpack("<2Q", seed)
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D ^ 0xEE,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]
    whole = len(message) // 8 * 8
    last = message[whole:].ljust(7, b"\0") + bytes([len(message) % 256])
    for (word,) in struct.iter_unpack("<Q", message[:whole] + last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    lower = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<2Q", lower, v[0] ^ v[1] ^ v[2] ^ v[3])


def test_default_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAKEBED_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("LAKEBED_CACHE_BYTES", "12345")
    cache = default_cache()
    assert cache == ShardCache(str(tmp_path), 12345)
    assert pickle.loads(pickle.dumps(cache)) == cache
    monkeypatch.setenv("LAKEBED_CACHE_BYTES", "much")
    with pytest.raises(InvalidInputError, match="LAKEBED_CACHE_BYTES"):
        default_cache()
    monkeypatch.delenv("LAKEBED_CACHE_BYTES")
    monkeypatch.delenv("LAKEBED_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache().folder == str(tmp_path / "xdg" / "lakebed" / "keys")


SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.sets(st.integers(0, 15), min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 15), min_size=1, max_size=4)),
        st.tuples(st.just("rollback"), st.just(frozenset())),
    ),
    min_size=2,
    max_size=7,
)


def _can_be_rolled_back(path: Path, instant: str) -> bool:
    """A write is not rolled back any more once the metadata table is compacted past it."""
    names = [file.name for file in (path / ".hoodie/metadata/.hoodie/timeline").glob("*_*.commit")]
    return all(name < instant for name in names)


@pytest.mark.usefixtures("probing")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8)
@given(steps=STEPS, index=st.sampled_from(["record", "record_partitioned"]), kind=st.sampled_from(["cow", "mor"]))
def test_histories_of_writes(tmp_path_factory, steps, index: str, kind: str) -> None:
    """Index = scan = probe after each write, rollbacks too: names of log files come again with other content."""
    folder = tmp_path_factory.mktemp("history")
    caches = caches_below(folder)
    table = lakebed.create_table(
        folder / "t", schema=SCHEMA, key="id", partition_by="city", ordering="ts", table_type=kind, indexes=[index]
    )
    for ts, (verb, numbers) in enumerate(steps):
        if verb == "rollback":
            newest = table.timeline.completed()[-1:] if len(table.timeline.commits()) > 1 else ()
            for instant in newest:
                if instant.action.changes_data and _can_be_rolled_back(folder / "t", instant.requested_at):
                    table.rollback(instant.requested_at)
        elif verb == "upsert":
            table.upsert([{"id": f"k{n}", "city": "ab"[n % 2], "ts": ts} for n in sorted(numbers)])
        else:
            table.delete([f"k{n}" for n in sorted(numbers)])
        if not len(table.timeline.commits()):
            continue
        rows = table.to_arrow(columns=["_hoodie_record_key", "_hoodie_partition_path"]).to_pylist()
        metadata = metadata_of(folder / "t")
        assert sorted(key for _, key in entries(metadata)) == sorted(row["_hoodie_record_key"] for row in rows)
        for cache in caches:
            check_all(metadata, cache)


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("options", [{}, {"lakebed.record.index.ordering": "current"}])
def test_a_write_keeps_the_tables_of_what_it_adds(tmp_path: Path, options: dict[str, str]) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
    table = lakebed.create_table(
        tmp_path / "t",
        schema=schema,
        key="id",
        partition_by="city",
        ordering="ts",
        table_type="mor",
        indexes=("record",),
        options=options,
    )
    table.upsert(pa.table({"id": ["a", "b", "c"], "city": ["oslo", "lima", "oslo"], "ts": [1, 1, 1]}))
    table.upsert(pa.table({"id": ["b", "c", "d"], "city": ["rome", "oslo", "lima"], "ts": [2, 2, 2]}))
    result = table.delete(["c"])
    assert result.metrics["cache_misses"] == 0
    metadata = open_handle(tmp_path / "t").state().metadata
    assert isinstance(metadata, MetadataTable)
    counts = locate_keys(metadata, pa.array(["a", "b", "c", "d"]), cache=default_cache()).counts
    assert counts.cached
    assert counts.built == 0
    check_all(metadata, default_cache())


@pytest.mark.usefixtures("probing")
@pytest.mark.parametrize("room", [True, False])
@pytest.mark.parametrize("options", [{}, {"lakebed.record.index.ordering": "current"}])
def test_a_compaction_keeps_the_tables_of_its_base_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], room: bool
) -> None:
    """What is deleted is among them; what there is no room for is built by the next write."""
    if not room:
        monkeypatch.setattr(new_tables, "_BASE_BYTES_MAX", 0)
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = lakebed.create_table(
        tmp_path / "t", schema=schema, key="id", ordering="ts", table_type="mor", indexes=("record",), options=options
    )
    for ts in range(DELTA_COMMITS):
        table.upsert(pa.table({"id": [f"k{ts}", f"k{ts + 1}"], "ts": [ts, ts]}))
        table.delete([f"k{ts}"] if ts % 3 == 0 else ["nobody"])
        metadata = open_handle(tmp_path / "t").state().metadata
        assert isinstance(metadata, MetadataTable)
        compacted = [each for each in metadata.slices("record_index") if each.base and not each.logs]
        if compacted:
            break
    assert compacted
    counts = locate_keys(metadata, pa.array(["k0", "k1", "k2", "nobody"]), cache=default_cache()).counts
    assert (counts.built == 0) is room
    check_all(metadata, default_cache())


@pytest.mark.usefixtures("probing")
def test_a_compaction_does_not_mind_entries_that_only_a_reader_could_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CorruptTableError("bad", path="p")

    cache, stat = ShardCache(str(tmp_path)), WriteStat("f", "record_index/f", "record_index", file_size=1)
    monkeypatch.setattr(new_tables, "build_entries_table", refuse)
    tables = NewTables(cache)
    tables.compacted(stat, Merged(pa.array(["a"]), pa.array([b"x"]).dictionary_encode(), 1, 0, 0, 0))
    tables.keep(open_storage(tmp_path / "t"), InstantTime("20200101000000000"))
    assert not cache_files(cache)


@pytest.mark.usefixtures("probing")
def test_a_write_that_fails_keeps_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lakebed.create_table(
        tmp_path / "t", schema=pa.schema([("id", pa.string())]), key="id", table_type="mor", indexes=("record",)
    )
    ids = [f"k{number}" for number in range(400)]
    table.upsert(pa.table({"id": ids[:100]}))
    table.upsert(pa.table({"id": ids[:200]}))
    before = cache_files(default_cache())

    def refuse(*_: object) -> None:
        raise InvalidInputError("no", hint="none")

    with monkeypatch.context() as broken:
        broken.setattr(Section, "complete", refuse)
        with pytest.raises(InvalidInputError):
            table.upsert(pa.table({"id": ids[100:300]}))
    assert cache_files(default_cache()) == before
    table.upsert(pa.table({"id": ids[200:]}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == sorted(ids)
