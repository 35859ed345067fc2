"""Contents of timeline files: Avro containers, except for the JSON commits of table version 6.

`decode_document` and `encode_document` convert between bytes and dictionaries for every schema of the timeline. The
functions below convert to and from the values of `lakebed.model.commit`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import fastavro

from lakebed.errors import CorruptTableError
from lakebed.format.avro.container import AVRO_MAGIC, decode_container, encode_container
from lakebed.format.guard import check_files, check_partitions, decode_json_object, decoding
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

_COMMIT = "HoodieCommitMetadata"
_REPLACE_COMMIT = "HoodieReplaceCommitMetadata"

_NO_PREV_COMMIT = "null"
"""The text that the format stores if a file has no predecessor."""

_TYPED_STAT_FIELDS = frozenset(
    [
        *("fileId", "path", "partitionPath", "prevCommit", "prevBaseFile", "totalWriteBytes", "fileSizeInBytes"),
        *("numWrites", "numDeletes", "numUpdateWrites", "numInserts"),
        *("baseFile", "logFiles", "logVersion", "logOffset", "cdcStats"),
    ]
)


def decode_document(data: bytes, schema_name: str, *, path: str) -> dict[str, Any]:
    """The record of a timeline file with the schema `schema_name`, decoded with the schema in the file.

    Fields have the types of our schema of that name; fields that the writer did not know are missing.
    """
    name, document = decode_container(data, path=path)
    if name != schema_name:
        raise CorruptTableError(f"{schema_name} is expected, not {name}", path=path)
    return _checked(document, schema_name, path)


def encode_document(document: Mapping[str, Any], schema_name: str) -> bytes:
    """A timeline file with one record; missing fields get the schema's defaults."""
    return encode_container(document, _schema_text(schema_name))


def decode_commit(data: bytes, *, path: str) -> CommitMetadata:
    """A commit, delta commit or replace commit, in Avro or JSON; an empty file gives empty metadata."""
    if not data:
        return CommitMetadata()
    if data.startswith(AVRO_MAGIC):
        name, document = decode_container(data, path=path)
        if name not in (_COMMIT, _REPLACE_COMMIT):
            raise CorruptTableError(f"{_COMMIT} is expected, not {name}", path=path)
    else:
        document = _decode_json_commit(data, path)
    document = _checked(document, _REPLACE_COMMIT, path)
    stats, replaced = document.get("partitionToWriteStats"), document.get("partitionToReplaceFileIds")
    check_partitions((*(stats or ()), *(replaced or ())), path=path)
    return CommitMetadata(
        write_stats={key: tuple(_decode_stat(stat, key) for stat in value) for key, value in (stats or {}).items()},
        replaced_file_ids={key: tuple(value) for key, value in (replaced or {}).items()},
        operation=document.get("operationType"),
        compacted=bool(document.get("compacted")),
        extra_metadata=document.get("extraMetadata") or {},
    )


def encode_commit(metadata: CommitMetadata, *, replace: bool) -> bytes:
    """The content of a commit or delta commit, or, with `replace`, of a replace commit."""
    assert replace or not metadata.replaced_file_ids, "only replace commits replace file groups"
    write_stats = {
        partition: [_encode_stat(stat) for stat in stats] for partition, stats in metadata.write_stats.items()
    }
    document = {
        # Values name their union branch; otherwise the encoder would search all of their content for it.
        "partitionToWriteStats": ("map", write_stats),
        "compacted": metadata.compacted,
        "extraMetadata": ("map", dict(metadata.extra_metadata)),
        "version": None,
        "operationType": metadata.operation,
    }
    if not replace:
        return encode_document(document, _COMMIT)
    replaced = {key: list(value) for key, value in metadata.replaced_file_ids.items()}
    document["partitionToReplaceFileIds"] = ("map", replaced)
    return encode_document(document, _REPLACE_COMMIT)


def decode_clean(data: bytes, *, path: str) -> CleanMetadata:
    """A completed clean."""
    document = decode_document(data, "HoodieCleanMetadata", path=path)
    return CleanMetadata(
        started_at=document["startCleanTime"],
        earliest_to_retain=document["earliestCommitToRetain"],
        last_completed=document.get("lastCompletedCommitTimestamp", ""),
        partitions={key: _decode_cleaned(value) for key, value in document["partitionMetadata"].items()},
        time_taken_ms=document["timeTakenInMillis"],
        total_files_deleted=document["totalFilesDeleted"],
        extra_metadata=document.get("extraMetadata") or {},
    )


def encode_clean(metadata: CleanMetadata) -> bytes:
    """The content of a completed clean."""
    document = {
        "startCleanTime": metadata.started_at,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": metadata.total_files_deleted,
        "earliestCommitToRetain": metadata.earliest_to_retain,
        "lastCompletedCommitTimestamp": metadata.last_completed,
        "partitionMetadata": {key: _encode_cleaned(value) for key, value in metadata.partitions.items()},
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(metadata.extra_metadata),
    }
    return encode_document(document, "HoodieCleanMetadata")


def decode_rollback(data: bytes, *, path: str) -> RollbackMetadata:
    """A completed rollback."""
    document = decode_document(data, "HoodieRollbackMetadata", path=path)
    instants = document.get("instantsRollback") or ()
    return RollbackMetadata(
        started_at=document["startRollbackTime"],
        commits=tuple(document["commitsRollback"]),
        instants=tuple(InstantRef(instant["commitTime"], instant["action"]) for instant in instants),
        partitions={key: _decode_rolled_back(value) for key, value in document["partitionMetadata"].items()},
        time_taken_ms=document["timeTakenInMillis"],
        total_files_deleted=document["totalFilesDeleted"],
    )


def encode_rollback(metadata: RollbackMetadata) -> bytes:
    """The content of a completed rollback."""
    instants = [{"commitTime": instant.requested_at, "action": instant.action} for instant in metadata.instants]
    document = {
        "startRollbackTime": metadata.started_at,
        "timeTakenInMillis": metadata.time_taken_ms,
        "totalFilesDeleted": metadata.total_files_deleted,
        "commitsRollback": list(metadata.commits),
        "partitionMetadata": {key: _encode_rolled_back(value) for key, value in metadata.partitions.items()},
        "version": 1,
        "instantsRollback": instants,
    }
    return encode_document(document, "HoodieRollbackMetadata")


def decode_savepoint(data: bytes, *, path: str) -> SavepointMetadata:
    """A savepoint."""
    document = decode_document(data, "HoodieSavepointMetadata", path=path)
    return SavepointMetadata(
        files={key: tuple(value["savepointDataFile"]) for key, value in document["partitionMetadata"].items()},
        saved_by=document["savepointedBy"],
        saved_at_ms=document["savepointedAt"],
        comments=document["comments"],
    )


def encode_savepoint(metadata: SavepointMetadata) -> bytes:
    """The content of a savepoint."""
    partitions = {
        key: {"partitionPath": key, "savepointDataFile": list(names)} for key, names in metadata.files.items()
    }
    document = {
        "savepointedBy": metadata.saved_by,
        "savepointedAt": metadata.saved_at_ms,
        "comments": metadata.comments,
        "partitionMetadata": partitions,
        "version": 1,
    }
    return encode_document(document, "HoodieSavepointMetadata")


def decode_compaction_plan(data: bytes, *, path: str) -> CompactionPlan:
    """The plan of a compaction or log compaction."""
    document = decode_document(data, "HoodieCompactionPlan", path=path)
    operations = tuple(_decode_operation(operation) for operation in document.get("operations") or ())
    for operation in operations:
        names = (*operation.log_files, *((operation.base_file,) if operation.base_file else ()))
        check_files({operation.partition: names}, path=path)
    return CompactionPlan(
        operations=operations,
        strategy=document.get("strategy") or {},
        preserve_meta_columns=bool(document.get("preserveHoodieMetadata")),
        skipped_partitions=tuple(document.get("missingSchedulePartitions") or ()),
        extra_metadata=document.get("extraMetadata") or {},
    )


def encode_compaction_plan(plan: CompactionPlan) -> bytes:
    """The plan of a compaction or log compaction."""
    document = {
        "operations": [_encode_operation(operation) for operation in plan.operations],
        "extraMetadata": dict(plan.extra_metadata),
        "version": 2,
        "strategy": dict(plan.strategy) or None,
        "preserveHoodieMetadata": plan.preserve_meta_columns,
        "missingSchedulePartitions": list(plan.skipped_partitions),
    }
    return encode_document(document, "HoodieCompactionPlan")


def decode_index_plan(data: bytes, *, path: str) -> IndexPlan:
    """The plan of an indexing instant."""
    return _decode_index(decode_document(data, "HoodieIndexPlan", path=path))


def encode_index_plan(plan: IndexPlan) -> bytes:
    """The plan of an indexing instant."""
    return encode_document(_encode_index(plan), "HoodieIndexPlan")


def decode_index_commit(data: bytes, *, path: str) -> IndexPlan:
    """What a completed indexing instant has built."""
    return _decode_index(decode_document(data, "HoodieIndexCommitMetadata", path=path))


def encode_index_commit(built: IndexPlan) -> bytes:
    """The content of a completed indexing instant."""
    return encode_document({**_encode_index(built), "operationType": None}, "HoodieIndexCommitMetadata")


@cache
def _schema_text(schema_name: str) -> str:
    return (resources.files("lakebed.format") / "schemas" / f"{schema_name}.avsc").read_text("utf-8").strip()


@cache
def _schema(schema_name: str) -> Any:
    return fastavro.parse_schema(json.loads(_schema_text(schema_name)))


def _checked(document: dict[str, Any], schema_name: str, path: str) -> dict[str, Any]:
    """`document`; CorruptTableError if its fields do not have the types of our schema, whatever the file's schema."""
    with decoding(path, schema_name):
        if not fastavro.validate(document, _schema(schema_name), raise_errors=False):
            raise CorruptTableError(f"fields of {schema_name} have wrong types", path=path)
    return document


def _decode_json_commit(data: bytes, path: str) -> dict[str, Any]:
    document = decode_json_object(data, path=path, what="commit metadata")
    extra = document.get("extraMetadata")
    if isinstance(extra, dict):
        # In JSON a key may have no value, which Avro does not allow.
        document["extraMetadata"] = {key: value for key, value in extra.items() if value is not None}
    return document


def _decode_stat(stat: Mapping[str, Any], partition: str) -> WriteStat:
    get = stat.get
    prev_commit, own_partition = get("prevCommit"), get("partitionPath")
    return WriteStat(
        file_id=get("fileId") or "",
        path=get("path") or "",
        partition=partition if own_partition is None else own_partition,
        prev_commit=None if prev_commit == _NO_PREV_COMMIT else prev_commit,
        num_writes=get("numWrites") or 0,
        num_deletes=get("numDeletes") or 0,
        num_updates=get("numUpdateWrites") or 0,
        num_inserts=get("numInserts") or 0,
        total_write_bytes=get("totalWriteBytes") or 0,
        file_size=get("fileSizeInBytes") or 0,
        prev_base_file=get("prevBaseFile"),
        base_file=get("baseFile"),
        log_files=tuple(get("logFiles") or ()),
        log_version=get("logVersion"),
        log_offset=get("logOffset"),
        cdc_stats=get("cdcStats") or {},
        extra={key: value for key, value in stat.items() if key not in _TYPED_STAT_FIELDS and value is not None},
    )


def _encode_stat(stat: WriteStat) -> dict[str, Any]:
    return {
        **stat.extra,
        "fileId": stat.file_id,
        "path": stat.path or None,
        # The workload profile of an inflight instant has neither: its files have no path yet.
        "partitionPath": stat.partition if stat.path else None,
        "prevCommit": _NO_PREV_COMMIT if stat.prev_commit is None else stat.prev_commit,
        "numWrites": stat.num_writes,
        "numDeletes": stat.num_deletes,
        "numUpdateWrites": stat.num_updates,
        "numInserts": stat.num_inserts,
        "totalWriteBytes": stat.total_write_bytes,
        "fileSizeInBytes": stat.file_size,
        "prevBaseFile": stat.prev_base_file,
        "baseFile": stat.base_file,
        "logFiles": list(stat.log_files) or None,
        "logVersion": stat.log_version,
        "logOffset": stat.log_offset,
        "cdcStats": dict(stat.cdc_stats) or None,
    }


def _decode_cleaned(partition: Mapping[str, Any]) -> CleanedPartition:
    return CleanedPartition(
        partition=partition["partitionPath"],
        policy=partition["policy"],
        planned=tuple(partition["deletePathPatterns"]),
        deleted=tuple(partition["successDeleteFiles"]),
        failed=tuple(partition["failedDeleteFiles"]),
        is_partition_deleted=bool(partition.get("isPartitionDeleted")),
    )


def _encode_cleaned(partition: CleanedPartition) -> dict[str, Any]:
    return {
        "partitionPath": partition.partition,
        "policy": partition.policy,
        "deletePathPatterns": list(partition.planned),
        "successDeleteFiles": list(partition.deleted),
        "failedDeleteFiles": list(partition.failed),
        "isPartitionDeleted": partition.is_partition_deleted,
    }


def _decode_rolled_back(partition: Mapping[str, Any]) -> RolledBackPartition:
    return RolledBackPartition(
        partition=partition["partitionPath"],
        deleted=tuple(partition["successDeleteFiles"]),
        failed=tuple(partition["failedDeleteFiles"]),
        rollback_log_files=partition.get("rollbackLogFiles") or {},
        failed_log_files=partition.get("logFilesFromFailedCommit") or {},
    )


def _encode_rolled_back(partition: RolledBackPartition) -> dict[str, Any]:
    return {
        "partitionPath": partition.partition,
        "successDeleteFiles": list(partition.deleted),
        "failedDeleteFiles": list(partition.failed),
        "rollbackLogFiles": dict(partition.rollback_log_files),
        "logFilesFromFailedCommit": dict(partition.failed_log_files),
    }


def _decode_operation(operation: Mapping[str, Any]) -> CompactionOperation:
    return CompactionOperation(
        partition=operation.get("partitionPath") or "",
        file_id=operation.get("fileId") or "",
        base_instant=operation.get("baseInstantTime") or "",
        base_file=operation.get("dataFilePath"),
        log_files=tuple(operation.get("deltaFilePaths") or ()),
        metrics=operation.get("metrics") or {},
    )


def _encode_operation(operation: CompactionOperation) -> dict[str, Any]:
    return {
        "baseInstantTime": operation.base_instant,
        "deltaFilePaths": list(operation.log_files),
        "dataFilePath": operation.base_file,
        "fileId": operation.file_id,
        "partitionPath": operation.partition,
        "metrics": dict(operation.metrics),
    }


def _decode_index(document: Mapping[str, Any]) -> IndexPlan:
    infos: Sequence[Mapping[str, Any]] = document.get("indexPartitionInfos") or ()
    return IndexPlan(
        tuple(
            IndexedPartition(
                partition=info.get("metadataPartitionPath") or "",
                up_to=info.get("indexUptoInstant") or "",
                extra_metadata=info.get("extraMetadata") or {},
            )
            for info in infos
        )
    )


def _encode_index(plan: IndexPlan) -> dict[str, Any]:
    infos = [
        {
            "version": 1,
            "metadataPartitionPath": partition.partition,
            "indexUptoInstant": partition.up_to,
            "extraMetadata": dict(partition.extra_metadata),
        }
        for partition in plan.partitions
    ]
    return {"version": 1, "indexPartitionInfos": infos}
