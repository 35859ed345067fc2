from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest

from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.log.file import BlockKind, HeaderKey, encode_log_block
from lakebed.format.timeline.archive import ArchivedInstant, decode_archived_log
from lakebed.format.timeline.metadata import decode_clean, decode_commit, decode_compaction_plan, decode_document
from lakebed.model.instant import Instant, instant_time
from lakebed.model.words import Action, State

PATH = ".hoodie/archived/.commits_.archive.1_1-0-1"


@pytest.fixture(scope="module")
def archives(unpack: Any) -> dict[str, bytes]:
    root = unpack("hudi015_cow_part_clean_archive").path
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob(".commits_.archive*_1-0-1"))}


def of_table(archives: dict[str, bytes], folder: str) -> list[ArchivedInstant]:
    files = {path: data for path, data in archives.items() if path.startswith(folder)}
    return [entry for path, data in files.items() for entry in decode_archived_log(data, path=path)]


def test_the_archive_of_a_real_table(archives: dict[str, bytes]) -> None:
    archived = of_table(archives, ".hoodie/archived")
    assert len(archived) == 10
    for entry in archived:
        instant = entry.instant
        assert (instant.state, instant.completed_at) == (State.COMPLETED, instant.requested_at)
        assert entry.metadata is not None
        if instant.action is Action.COMMIT:
            commit = decode_commit(entry.metadata, path=PATH)
            assert commit.operation in ("UPSERT", "INSERT", "BULK_INSERT")
            assert commit.schema_json is not None
            assert {stat.partition for stat in commit.stats} == {"eu", "us"}
            assert entry.plan is None
        else:
            assert entry.plan is not None
            cleaned = decode_clean(entry.metadata, path=PATH)
            plan = decode_document(entry.plan, "HoodieCleanerPlan", path=PATH)
            assert plan["earliestInstantToRetain"]["timestamp"] == cleaned.earliest_to_retain
    assert sum(entry.instant.action is Action.CLEAN for entry in archived) == 4


def test_the_archive_of_a_real_metadata_table(archives: dict[str, bytes]) -> None:
    archived = of_table(archives, ".hoodie/metadata")
    assert {entry.instant.action for entry in archived} >= {Action.DELTA_COMMIT}
    assert len({entry.instant for entry in archived}) == len(archived)
    for entry in archived:
        assert entry.instant.is_completed
        assert entry.metadata is not None
        if entry.plan is not None:
            assert decode_compaction_plan(entry.plan, path=PATH).operations


TEXT = ["null", "string"]
SCHEMA = {
    "type": "record",
    "name": "HoodieArchivedMetaEntry",
    "fields": [{"name": name, "type": TEXT, "default": None} for name in ("commitTime", "actionType", "actionState")],
}


def block(*entries: dict[str, Any], schema: dict[str, Any] = SCHEMA) -> bytes:
    content = struct.pack(">ii", 3, len(entries))
    for entry in entries:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, entry)
        content += struct.pack(">i", len(sink.getvalue())) + sink.getvalue()
    return encode_log_block(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: json.dumps(schema)}, content)


def entry(action: str, state: str | None, time: str = "20261116003049184") -> dict[str, Any]:
    return {"commitTime": time, "actionType": action, "actionState": state}


def test_entries_of_one_instant_become_one() -> None:
    data = block(entry("compaction", "REQUESTED"), entry("compaction", "INFLIGHT")) + block(
        entry("commit", "COMPLETED")
    )
    time = instant_time("20261116003049184")
    assert decode_archived_log(data, path=PATH) == (
        ArchivedInstant(Instant(time, Action.COMMIT, State.COMPLETED, time)),
    )


def test_a_savepoint_is_not_the_commit_it_keeps() -> None:
    data = block(entry("commit", "COMPLETED"), entry("savepoint", "COMPLETED"))
    actions = [archived.instant.action for archived in decode_archived_log(data, path=PATH)]
    assert actions == [Action.COMMIT, Action.SAVEPOINT]


@pytest.mark.parametrize(
    ("state", "expected"), [("INFLIGHT", State.INFLIGHT), ("REQUESTED", State.REQUESTED), (None, State.COMPLETED)]
)
def test_states(state: str | None, expected: State) -> None:
    (archived,) = decode_archived_log(block(entry("clean", state)), path=PATH)
    assert archived.instant.state is expected


def test_unknown_actions_are_left_out() -> None:
    assert decode_archived_log(block(entry("schemacommit", "COMPLETED")), path=PATH) == ()


def test_a_torn_end_is_passed_over() -> None:
    good = block(entry("clean", None))
    assert len(decode_archived_log(good + good[:-5], path=PATH)) == 1
    assert decode_archived_log(b"", path=PATH) == ()


@pytest.mark.parametrize(
    "data",
    [
        block(entry("clean", "COMPLETED", time="x")),
        block(entry("clean", "DONE")),
        encode_log_block(BlockKind.COMMAND, {}, b""),
        encode_log_block(BlockKind.AVRO_DATA, {}, struct.pack(">ii", 3, 0)),
        encode_log_block(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: json.dumps(SCHEMA)}, b""),
        encode_log_block(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: json.dumps(SCHEMA)}, struct.pack(">ii", 3, 2**31 - 1)),
        encode_log_block(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: json.dumps(SCHEMA)}, struct.pack(">iii", 3, 1, -1)),
        encode_log_block(BlockKind.AVRO_DATA, {HeaderKey.SCHEMA: json.dumps(SCHEMA)}, struct.pack(">iii", 3, 9, 0)),
    ],
)
def test_broken_archives_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="archive"):
        decode_archived_log(data, path=PATH)


def test_nested_records_of_other_types_are_refused() -> None:
    nested = {"type": "record", "name": "HoodieCommitMetadata", "fields": [{"name": "operationType", "type": "int"}]}
    fields = [*SCHEMA["fields"], {"name": "hoodieCommitMetadata", "type": nested}]
    wrong = block(
        entry("commit", None) | {"hoodieCommitMetadata": {"operationType": 5}}, schema={**SCHEMA, "fields": fields}
    )
    with pytest.raises(CorruptTableError, match="archive"):
        decode_archived_log(wrong, path=PATH)


def test_hostile_bytes(archives: dict[str, bytes]) -> None:
    good = min(archives.values(), key=len)
    check_decoder(lambda data: decode_archived_log(data, path=PATH), mutations(good, seed=6, count=150), path=PATH)
    small = block(entry("clean", "COMPLETED"), entry("commit", "COMPLETED"))
    check_decoder(lambda data: decode_archived_log(data, path=PATH), mutations(small, seed=7, count=500), path=PATH)
    check_decoder(lambda data: decode_archived_log(data, path=PATH), truncations(small), path=PATH)
