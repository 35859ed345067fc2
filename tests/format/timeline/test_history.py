from __future__ import annotations

import json
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.timeline.archive import (
    HISTORY_SCHEMA,
    ArchivedInstant,
    HistoryFile,
    ManifestEntry,
    archived_instants,
    decode_history,
    decode_history_name,
    decode_manifest,
    decode_version,
    encode_history,
    encode_history_name,
    encode_manifest,
    encode_version,
    history_table,
)
from lakebed.format.timeline.metadata import decode_clean, decode_commit, decode_document
from lakebed.model.instant import Instant, instant_time
from lakebed.model.words import Action, State
from timeline_files import TableFile, files_named

PATH = ".hoodie/timeline/history/20261115235242042_20261115235254289_0.parquet"
REAL = files_named("history/*.parquet")


def sibling(file: TableFile, name: str) -> TableFile:
    (found,) = (other for other in files_named(f"history/{name}") if _folder(other) == _folder(file))
    return found


def _folder(file: TableFile) -> tuple[str, PurePosixPath]:
    return file.zip, file.path.parent


@pytest.mark.parametrize("version", files_named("history/_version_"), ids=str)
def test_real_histories(version: TableFile) -> None:
    manifest = sibling(version, f"manifest_{decode_version(version.data, path=str(version))}")
    entries = decode_manifest(manifest.data, path=str(manifest))
    assert decode_manifest(encode_manifest(entries), path=PATH) == entries
    for entry in entries:
        file = sibling(version, entry.name)
        assert len(file.data) == entry.size
        table = decode_history(file.data, path=str(file))
        described = decode_history_name(entry.name)
        assert described is not None
        times = table["instantTime"].to_pylist()
        assert (described.min, described.max) == (times[0], times[-1])
        assert times == sorted(times)


def test_levels() -> None:
    (version,) = (f for f in files_named("history/_version_") if f.zip == "hudi111_cow_nonpart_archive_lsm_levels")
    assert decode_version(version.data, path=str(version)) == 8
    manifest = sibling(version, "manifest_8")
    levels = [decode_history_name(entry.name) for entry in decode_manifest(manifest.data, path=str(manifest))]
    assert [file and file.level for file in levels] == [1, 1]


def test_real_instants_carry_whole_timeline_files() -> None:
    seen = set()
    for file in REAL:
        table = decode_history(file.data, path=str(file))
        archived = list(archived_instants(table, path=str(file)))
        assert len(archived) == table.num_rows
        assert history_table(archived).equals(table)
        for entry in archived:
            assert entry.metadata is not None
            seen.add(entry.instant.action)
            if entry.instant.action is Action.CLEAN:
                assert entry.plan is not None
                cleaned = decode_clean(entry.metadata, path=str(file))
                plan = decode_document(entry.plan, "HoodieCleanerPlan", path=str(file))
                assert plan["earliestInstantToRetain"]["timestamp"] == cleaned.earliest_to_retain
            else:
                assert decode_commit(entry.metadata, path=str(file)).operation
    assert seen == {Action.COMMIT, Action.CLEAN, Action.DELTA_COMMIT}


def test_some_columns() -> None:
    file = REAL[0]
    table = decode_history(file.data, path=str(file), columns=("completionTime", "instantTime", "action"))
    assert table.column_names == ["completionTime", "instantTime", "action"]
    instants = [entry.instant for entry in archived_instants(table, path=str(file))]
    every = archived_instants(decode_history(file.data, path=str(file)), path=str(file))
    assert instants == [entry.instant for entry in every]


def test_files_look_like_those_of_apache_hudi() -> None:
    theirs = pq.ParquetFile(pa.BufferReader(REAL[0].data))
    table = decode_history(REAL[0].data, path=PATH)
    ours = pq.ParquetFile(pa.BufferReader(encode_history(table)))
    assert ours.metadata.metadata.keys() == theirs.metadata.metadata.keys()
    theirs_avro, ours_avro = (json.loads(f.metadata.metadata[b"parquet.avro.schema"]) for f in (theirs, ours))
    assert ours_avro == theirs_avro
    for index in range(theirs.metadata.num_columns):
        a, b = theirs.schema.column(index), ours.schema.column(index)
        assert (a.name, a.physical_type, a.max_definition_level) == (b.name, b.physical_type, b.max_definition_level)
        assert a.logical_type.to_json() == b.logical_type.to_json()
        assert ours.metadata.row_group(0).column(index).compression == "GZIP"
    assert decode_history(encode_history(table), path=PATH).equals(table)


times = st.integers(0, 10**17 - 1).map(lambda number: instant_time(f"{number:017}"))
instants = st.builds(Instant, times, st.sampled_from(Action), st.just(State.COMPLETED), times)
archives = st.lists(
    st.builds(ArchivedInstant, instants, st.none() | st.binary(), st.none() | st.binary()),
    unique_by=lambda entry: entry.instant.requested_at,
    max_size=4,
)


@given(archives)
def test_round_trip(archived: list[ArchivedInstant]) -> None:
    table = decode_history(encode_history(history_table(archived)), path=PATH)
    in_order = sorted(archived, key=lambda entry: entry.instant.requested_at)
    assert list(archived_instants(table, path=PATH)) == in_order


@given(st.builds(HistoryFile, times, times, st.integers(0, 999_999_999)))
def test_names_round_trip(file: HistoryFile) -> None:
    assert decode_history_name(encode_history_name(file)) == file


@pytest.mark.parametrize("name", ["_version_", "manifest_1", "a_b_0.parquet", "1_2_0.parquet", f"../{PATH}", ""])
def test_other_files_are_no_history(name: str) -> None:
    assert decode_history_name(name) is None


def row(**changes: object) -> dict[str, object]:
    good = {"instantTime": "20261115235242042", "completionTime": None, "action": "commit", "version": 1}
    return {**good, **changes}


def test_a_missing_completion_time_is_the_requested_time() -> None:
    (archived,) = archived_instants(pa.Table.from_pylist([row()], HISTORY_SCHEMA), path=PATH)
    assert archived.instant.completed_at == "20261115235242042"


def test_unknown_actions_are_left_out() -> None:
    rows = [row(action="schemacommit"), row(action=None)]
    assert list(archived_instants(pa.Table.from_pylist(rows, HISTORY_SCHEMA), path=PATH)) == []


@pytest.mark.parametrize("changes", [{"instantTime": "x"}, {"instantTime": None}, {"completionTime": "now"}])
def test_broken_times_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        list(archived_instants(pa.Table.from_pylist([row(**changes)], HISTORY_SCHEMA), path=PATH))


@pytest.mark.parametrize("data", [b"", b" ", b"-1", b"1.5", b"\xb2", b"9" * 5000, b"1\n2"])
def test_broken_versions_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="_version_"):
        decode_version(data, path="_version_")


def test_versions() -> None:
    assert decode_version(encode_version(12), path="_version_") == 12
    assert decode_version(b"12\n", path="_version_") == 12


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[]",
        '{"files": {}}x',
        '{"files": 1}',
        '{"files": ["a"]}',
        '{"files": [{"fileName": "../secret", "fileLen": 1}]}',
        '{"files": [{"fileName": "20261115235242042_20261115235254289_0.parquet", "fileLen": -1}]}',
        '{"files": [{"fileName": "20261115235242042_20261115235254289_0.parquet", "fileLen": true}]}',
        '{"files": [{"fileName": "20261115235242042_20261115235254289_0.parquet"}]}',
    ],
)
def test_broken_manifests_are_refused(content: str) -> None:
    with pytest.raises(CorruptTableError, match="manifest_1"):
        decode_manifest(content.encode(), path="manifest_1")


def test_an_empty_manifest() -> None:
    assert decode_manifest(encode_manifest([]), path="manifest_1") == ()
    entry = ManifestEntry("20261115235242042_20261115235254289_0.parquet", 1)
    assert decode_manifest(encode_manifest([entry]), path="manifest_1") == (entry,)


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"instantTime": ["x"]}),
        HISTORY_SCHEMA.empty_table().append_column("x", pa.array([], pa.int8())).drop_columns(["plan"]),
        pa.table({name: pa.array([None], pa.string()) for name in HISTORY_SCHEMA.names}),
        pa.table({name: pa.array([[1]]) for name in HISTORY_SCHEMA.names}),
        # A million rows in few bytes.
        pa.table(
            {
                name: pa.nulls(1_000_000, field.type)
                for name, field in zip(HISTORY_SCHEMA.names, HISTORY_SCHEMA, strict=True)
            }
        ),
    ],
)
def test_other_parquet_files_are_refused(table: pa.Table) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_history(parquet(table), path=PATH)


def test_text_that_is_not_utf8_is_refused() -> None:
    wrong = decode_history(REAL[0].data, path=PATH)
    binary = wrong.set_column(2, "action", pa.array([b"\xff"] * wrong.num_rows).cast(pa.binary()))
    with pytest.raises(CorruptTableError, match=PATH):
        decode_history(parquet(binary), path=PATH)


def test_hostile_bytes() -> None:
    def decode(data: bytes) -> object:
        return list(archived_instants(decode_history(data, path=PATH), path=PATH))

    good = min((file.data for file in REAL), key=len)
    assert check_decoder(decode, mutations(good, seed=4, count=600), path=PATH) > 300
    assert check_decoder(decode, truncations(good, step=23), path=PATH) > 100
    manifest = files_named("history/manifest_2")[0].data
    check_decoder(lambda data: decode_manifest(data, path=PATH), mutations(manifest, seed=5, count=300), path=PATH)
