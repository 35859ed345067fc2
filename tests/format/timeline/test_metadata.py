from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.avro.container import AVRO_MAGIC, decode_container, encode_container
from lakebed.format.timeline.metadata import (
    decode_clean,
    decode_commit,
    decode_compaction_plan,
    decode_document,
    decode_index_commit,
    decode_index_plan,
    decode_rollback,
    decode_savepoint,
    encode_clean,
    encode_commit,
    encode_compaction_plan,
    encode_document,
    encode_index_commit,
    encode_index_plan,
    encode_rollback,
    encode_savepoint,
)
from lakebed.model.commit import (
    CleanedPartition,
    CleanMetadata,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    IndexedPartition,
    IndexPlan,
    InstantRef,
    RollbackMetadata,
    RolledBackPartition,
    SavepointMetadata,
    WriteStat,
)
from timeline_files import TableFile, files_named, timeline_files

PATH = ".hoodie/timeline/20261115235530634_20261115235534458.commit"

TYPED: dict[str, tuple[Callable[..., Any], Callable[[Any], bytes]]] = {
    "HoodieCommitMetadata": (decode_commit, lambda value: encode_commit(value, replace=False)),
    "HoodieReplaceCommitMetadata": (decode_commit, lambda value: encode_commit(value, replace=True)),
    "HoodieCleanMetadata": (decode_clean, encode_clean),
    "HoodieRollbackMetadata": (decode_rollback, encode_rollback),
    "HoodieSavepointMetadata": (decode_savepoint, encode_savepoint),
    "HoodieCompactionPlan": (decode_compaction_plan, encode_compaction_plan),
    "HoodieIndexPlan": (decode_index_plan, encode_index_plan),
    "HoodieIndexCommitMetadata": (decode_index_commit, encode_index_commit),
}
UNTYPED = {
    "HoodieCleanerPlan",
    "HoodieRollbackPlan",
    "HoodieRequestedReplaceMetadata",
    "HoodieRestorePlan",
    "HoodieRestoreMetadata",
}


def avro_files() -> list[tuple[TableFile, str, dict[str, Any]]]:
    files = [file for file in timeline_files() if file.data.startswith(AVRO_MAGIC)]
    return [(file, *decode_container(file.data, path=str(file))) for file in files]


def without_empty(value: Any) -> Any:
    """Writers of version 6 do not know the youngest fields, which are null or empty in what we write."""
    if isinstance(value, dict):
        return {key: without_empty(inner) for key, inner in value.items() if inner not in (None, {}, [])}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value


def test_real_avro_files_lose_nothing_as_documents() -> None:
    seen: Counter[str] = Counter()
    for file, name, before in avro_files():
        document = decode_document(file.data, name, path=str(file))
        _, after = decode_container(encode_document(document, name), path=str(file))
        assert document == before
        assert after == before if file.layout == 2 else without_empty(after) == without_empty(before), file
        seen[name] += 1
    assert set(seen) == set(TYPED) | UNTYPED
    assert seen.total() > 1300


def test_real_avro_files_lose_nothing_as_values() -> None:
    for file, name, before in avro_files():
        if name in TYPED:
            decode, encode = TYPED[name]
            _, after = decode_container(encode(decode(file.data, path=str(file))), path=str(file))
            assert after == before if file.layout == 2 else without_empty(after) == without_empty(before), file


def test_real_json_commits_keep_what_avro_knows() -> None:
    count = 0
    for file in timeline_files():
        if not file.data.startswith(b"{"):
            continue
        before = json.loads(file.data)
        metadata = decode_commit(file.data, path=str(file))
        data = encode_commit(metadata, replace="partitionToReplaceFileIds" in before)
        assert decode_commit(data, path=PATH).write_stats.keys() == metadata.write_stats.keys()
        _, after = decode_container(data, path=str(file))
        for stats in before["partitionToWriteStats"].values():
            for stat in stats:
                stat.pop("recordsStats", None)  # Always without content, and not part of the Avro schema.
        assert without_empty(after) == without_empty(before), file
        count += 1
    assert count > 150


def real(pattern: str) -> TableFile:
    (file,) = files_named(pattern)
    return file


def test_a_real_commit() -> None:
    file = real("mor_part_rollback/.hoodie/20261116003124612.deltacommit")
    metadata = decode_commit(file.data, path=str(file))
    assert (metadata.operation, metadata.compacted, metadata.replaced_file_ids) == ("UPSERT", False, {})
    assert json.loads(metadata.schema_json or "")["name"] == "mor_part_rollback_record"
    assert [stat.partition for stat in metadata.stats] == ["eu", "us"]
    (stat,) = metadata.write_stats["eu"]
    name = ".ecacd4e2-1c52-47ee-931e-c39d6aede955-0_20261116003121883.log.1_0-1151-1483"
    assert stat.file_id == "ecacd4e2-1c52-47ee-931e-c39d6aede955-0"
    assert (stat.path, stat.log_files, stat.log_version, stat.log_offset) == (f"eu/{name}", (name,), 1, 0)
    assert stat.base_file == "ecacd4e2-1c52-47ee-931e-c39d6aede955-0_0-1123-1436_20261116003121883.parquet"
    assert (stat.num_writes, stat.num_updates, stat.num_inserts, stat.num_deletes) == (1, 1, 0, 0)
    assert (stat.prev_commit, stat.total_write_bytes, stat.file_size) == ("20261116003121883", 989, 989)
    assert stat.extra["runtimeStats"]["totalUpsertTime"] == 84


def test_a_workload_profile_has_no_paths() -> None:
    file = real("mor_part_rollback/.hoodie/20261116003124612.deltacommit.inflight")
    stats = decode_commit(file.data, path=str(file)).write_stats["eu"]
    assert [(stat.path, stat.partition, stat.prev_commit) for stat in stats] == [
        ("", "eu", None),
        ("", "eu", "20261116003121883"),
    ]


def test_a_real_replace_commit() -> None:
    file = real("cow_nonpart_clustered/.hoodie/20261116003028196.replacecommit")
    metadata = decode_commit(file.data, path=str(file))
    assert metadata.operation == "CLUSTER"
    assert metadata.replaced_file_ids == {
        "": ("b5d0d661-b08b-4509-8993-672b368b79cd-0", "dc300545-e73c-486e-9392-6d6925e76e6f-0")
    }


def test_a_real_clean() -> None:
    file = real("cow_part_clean_archive/.hoodie/20261116003051829.clean")
    metadata = decode_clean(file.data, path=str(file))
    assert metadata.earliest_to_retain == "20261116003049184"
    assert metadata.deleted_files == {
        "eu": ("43d81412-7365-4e62-9ac9-26a6cabebaa3-0_0-484-613_20261116003043087.parquet",),
        "us": ("18957c5c-20d4-4334-b70e-f47e8f50654a-0_1-484-614_20261116003043087.parquet",),
    }


def test_a_real_rollback() -> None:
    file = real("mor_part_rollback/.hoodie/20261116003127685.rollback")
    metadata = decode_rollback(file.data, path=str(file))
    assert metadata.commits == ("20261116003126073",)
    assert metadata.instants == (InstantRef("20261116003126073", "deltacommit"),)
    assert list(metadata.partitions["eu"].rollback_log_files.values()) == [105]


def test_a_real_savepoint() -> None:
    file = real("timeline/*.savepoint")
    assert decode_savepoint(file.data, path=str(file)).files == {
        "": (
            "7e71c0a7-917d-4a98-94bc-ed13fce215ac-0_0-2476-7161_20261115235640660.parquet",
            ".7e71c0a7-917d-4a98-94bc-ed13fce215ac-0_20261115235643255.log.1_0-2500-7206",
        )
    }


def test_an_empty_file_is_an_empty_commit() -> None:
    assert decode_commit(b"", path=PATH) == CommitMetadata()


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"partitionToWriteStats": null, "compacted": null, "extraMetadata": null, "operationType": null}',
        '{"fileIdAndRelativePaths": {"a": "b"}, "totalRecordsDeleted": 0.5, "extraMetadata": {"schema": null}}',
    ],
)
def test_json_commits_may_have_nulls_and_unknown_keys(content: str) -> None:
    assert decode_commit(content.encode(), path=PATH) == CommitMetadata()


def test_json_stats_may_lack_everything() -> None:
    (stat,) = decode_commit(b'{"partitionToWriteStats": {"eu": [{"numWrites": null}]}}', path=PATH).stats
    assert stat == WriteStat("", "", "eu")


@pytest.mark.parametrize(
    "content",
    [
        " ",
        "[]",
        "null",
        "{",
        '{"partitionToWriteStats": []}',
        '{"partitionToWriteStats": {"eu": {}}}',
        '{"partitionToWriteStats": {"eu": [null]}}',
        '{"partitionToWriteStats": {"eu": [{"fileId": 5}]}}',
        '{"partitionToWriteStats": {"eu": [{"numWrites": "5"}]}}',
        '{"partitionToWriteStats": {"eu": [{"numWrites": 5.5}]}}',
        '{"partitionToWriteStats": {"eu": [{"numWrites": 99999999999999999999}]}}',
        '{"partitionToWriteStats": {"eu": [{"logFiles": "a"}]}}',
        '{"partitionToWriteStats": {"eu": [{"runtimeStats": 5}]}}',
        '{"partitionToReplaceFileIds": {"eu": "a"}}',
        '{"extraMetadata": {"schema": 5}}',
        '{"operationType": ["UPSERT"]}',
        '{"operationType": "\\ud800"}',
        '{"a": ' * 5000,
        '{"a": ' + "9" * 5000 + "}",
        '{"operationType": "\xe9"}',
    ],
)
def test_wrong_json_is_refused(content: str) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_commit(content.encode("latin-1"), path=PATH)


def test_the_wrong_document_is_refused() -> None:
    plan = encode_index_plan(IndexPlan())
    for decode in (decode_commit, decode_clean, decode_index_commit):
        with pytest.raises(CorruptTableError, match="HoodieIndexPlan"):
            decode(plan, path=PATH)


def test_types_are_those_of_our_schema_not_of_the_file() -> None:
    fields = [{"name": "savepointedBy", "type": "long"}]
    schema = {"type": "record", "name": "HoodieSavepointMetadata", "fields": fields}
    wrong = encode_container({"savepointedBy": 5}, json.dumps(schema))
    with pytest.raises(CorruptTableError, match="wrong types"):
        decode_savepoint(wrong, path=PATH)


def test_only_replace_commits_replace() -> None:
    with pytest.raises(AssertionError):
        encode_commit(CommitMetadata(replaced_file_ids={"eu": ("a",)}), replace=False)


def test_values_survive_pickling() -> None:
    metadata = CommitMetadata({"eu": (WriteStat("f", "eu/f.parquet", "eu"),)}, extra_metadata={"schema": "{}"})
    assert pickle.loads(pickle.dumps(metadata)) == metadata


names = st.text(max_size=8)
plain = st.characters(exclude_characters="/.\0", exclude_categories=("Cs",))
files = st.text(plain, min_size=1, max_size=8)
"""Names of files: what plans name lies in the table."""
folders = st.just("") | files
file_tuples = st.lists(files, max_size=3).map(tuple)
counts = st.integers(0, 2**63 - 1)
name_tuples = st.lists(names, max_size=3).map(tuple)
texts = st.dictionaries(names, names, max_size=3)
sizes = st.dictionaries(names, counts, max_size=3)
stats = st.builds(
    WriteStat,
    file_id=names,
    path=st.text(min_size=1, max_size=8),
    partition=names,
    prev_commit=st.none() | st.just("20261115235530634"),
    num_writes=counts,
    num_deletes=counts,
    num_updates=counts,
    num_inserts=counts,
    total_write_bytes=counts,
    file_size=counts,
    prev_base_file=st.none() | names,
    base_file=st.none() | names,
    log_files=name_tuples,
    log_version=st.none() | st.integers(0, 2**31 - 1),
    log_offset=st.none() | counts,
    cdc_stats=sizes,
    extra=st.fixed_dictionaries({}, optional={"totalLogBlocks": counts, "tempPath": names}),
)
commits = st.builds(
    CommitMetadata,
    write_stats=st.dictionaries(names, st.lists(stats, max_size=3).map(tuple), max_size=3),
    replaced_file_ids=st.dictionaries(names, name_tuples, max_size=3),
    operation=st.none() | names,
    compacted=st.booleans(),
    extra_metadata=texts,
)
cleaned = st.builds(CleanedPartition, names, names, name_tuples, name_tuples, name_tuples, st.booleans())
rolled_back = st.builds(RolledBackPartition, names, name_tuples, name_tuples, sizes, sizes)
metrics = st.dictionaries(names, st.floats(allow_nan=False), max_size=2)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "HoodieReplaceCommitMetadata": commits,
    "HoodieCleanMetadata": st.builds(
        CleanMetadata, names, names, names, st.dictionaries(names, cleaned, max_size=2), counts, st.just(7), texts
    ),
    "HoodieRollbackMetadata": st.builds(
        RollbackMetadata,
        names,
        name_tuples,
        st.lists(st.builds(InstantRef, names, names), max_size=2).map(tuple),
        st.dictionaries(names, rolled_back, max_size=2),
        counts,
        st.just(7),
    ),
    "HoodieSavepointMetadata": st.builds(
        SavepointMetadata, st.dictionaries(names, name_tuples, max_size=2), names, counts, names
    ),
    "HoodieCompactionPlan": st.builds(
        CompactionPlan,
        operations=st.lists(
            st.builds(CompactionOperation, folders, names, names, st.none() | files, file_tuples, metrics), max_size=2
        ).map(tuple),
        preserve_meta_columns=st.booleans(),
        skipped_partitions=name_tuples,
        extra_metadata=texts,
    ),
    "HoodieIndexPlan": st.builds(
        IndexPlan, st.lists(st.builds(IndexedPartition, names, names, texts), max_size=3).map(tuple)
    ),
}


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(VALUES)))
    decode, encode = TYPED[name]
    value = data.draw(VALUES[name])
    assert decode(encode(value), path=PATH) == value


def test_hostile_bytes() -> None:
    goods: dict[str, bytes] = {}
    for file, name, _ in avro_files():
        goods[name] = min(goods.get(name, file.data), file.data, key=len)
    for seed, (name, good) in enumerate(goods.items()):
        decode = (
            TYPED[name][0] if name in TYPED else lambda data, path, name=name: decode_document(data, name, path=path)
        )
        check_decoder(lambda data, of=decode: of(data, path=PATH), mutations(good, seed=seed, count=150), path=PATH)
    commit = real("mor_part_rollback/.hoodie/20261116003124612.deltacommit").data
    check_decoder(lambda data: decode_commit(data, path=PATH), mutations(commit, seed=99, count=500), path=PATH)
