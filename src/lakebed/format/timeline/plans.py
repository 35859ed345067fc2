"""Plans of table services and restores, as timeline files store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.format.guard import check_files, check_partitions
from lakebed.format.timeline.metadata import decode_document, encode_document, encode_rollback
from lakebed.model.commit import (
    CleanPlan,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    InstantRef,
    RestoreMetadata,
    RestorePlan,
    RollbackPlan,
)


def decode_rollback_plan(data: bytes, *, path: str) -> RollbackPlan:
    """The plan of a rollback."""
    document = decode_document(data, "HoodieRollbackPlan", path=path)
    target = document.get("instantToRollback") or {}
    files: dict[str, list[str]] = {}
    for request in document.get("RollbackRequests") or ():
        names = map(_file_name, request.get("filesToBeDeleted") or ())
        files.setdefault(request["partitionPath"], []).extend(names)
    check_files(files, path=path)
    return RollbackPlan(
        InstantRef(target.get("commitTime", ""), target.get("action", "")),
        {partition: tuple(names) for partition, names in files.items()},
    )


def encode_rollback_plan(plan: RollbackPlan, *, table_url: str) -> bytes:
    """The plan of a rollback; the format requires absolute paths, which begin with `table_url`."""
    requests = [
        {
            "partitionPath": partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": [_file_url(table_url, partition, name)],
            "logBlocksToBeDeleted": {},
        }
        for partition, names in plan.files.items()
        for name in names
    ]
    target = {"commitTime": plan.target.requested_at, "action": plan.target.action}
    return encode_document(
        {"instantToRollback": target, "RollbackRequests": requests, "version": 1}, "HoodieRollbackPlan"
    )


def decode_clean_plan(data: bytes, *, path: str) -> CleanPlan:
    """The plan of a clean."""
    document = decode_document(data, "HoodieCleanerPlan", path=path)
    earliest = document.get("earliestInstantToRetain")
    files = {
        partition: tuple(_file_name(info.get("filePath") or "") for info in infos)
        for partition, infos in (document.get("filePathsToBeDeletedPerPartition") or {}).items()
    }
    partitions = tuple(document.get("partitionsToBeDeleted") or ())
    check_files(files, path=path)
    check_partitions(partitions, path=path)
    return CleanPlan(
        earliest_to_retain=InstantRef(earliest["timestamp"], earliest["action"]) if earliest else None,
        last_completed=document.get("lastCompletedCommitTimestamp") or "",
        policy=document["policy"],
        files=files,
        partitions=partitions,
        extra_metadata=document.get("extraMetadata") or {},
    )


def encode_clean_plan(plan: CleanPlan, *, table_url: str) -> bytes:
    """The plan of a clean; the format requires absolute paths, which begin with `table_url`."""
    earliest = plan.earliest_to_retain
    document = {
        "earliestInstantToRetain": earliest
        and {"timestamp": earliest.requested_at, "action": earliest.action, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": plan.last_completed,
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": _file_url(table_url, partition, name), "isBootstrapBaseFile": False} for name in names
            ]
            for partition, names in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        "extraMetadata": dict(plan.extra_metadata),
    }
    return encode_document(document, "HoodieCleanerPlan")


def decode_clustering_plan(data: bytes, *, path: str) -> ClusteringPlan:
    """The plan of a clustering."""
    document = decode_document(data, "HoodieRequestedReplaceMetadata", path=path)
    plan = document.get("clusteringPlan") or {}
    strategy = plan.get("strategy") or {}
    groups = tuple(_decode_clustering_group(group) for group in plan.get("inputGroups") or ())
    for piece in (piece for group in groups for piece in group.slices):
        names = (*piece.log_files, *((piece.base_file,) if piece.base_file else ()))
        check_files({piece.partition: names}, path=path)
    return ClusteringPlan(
        groups=groups,
        strategy=strategy.get("strategyClassName") or "",
        params=strategy.get("strategyParams") or {},
        preserve_meta_columns=bool(plan.get("preserveHoodieMetadata")),
        extra_metadata=plan.get("extraMetadata") or {},
    )


def encode_clustering_plan(plan: ClusteringPlan, *, table_url: str) -> bytes:
    """The plan of a clustering; the format requires absolute paths, which begin with `table_url`."""
    clustering = {
        "inputGroups": [_encode_clustering_group(group, table_url) for group in plan.groups],
        "strategy": {"strategyClassName": plan.strategy, "strategyParams": dict(plan.params), "version": 1},
        "extraMetadata": dict(plan.extra_metadata),
        "version": 1,
        "preserveHoodieMetadata": plan.preserve_meta_columns,
        "missingSchedulePartitions": [],
    }
    document = {"operationType": "CLUSTER", "clusteringPlan": clustering, "extraMetadata": {}, "version": 1}
    return encode_document(document, "HoodieRequestedReplaceMetadata")


def _decode_clustering_group(group: Mapping[str, Any]) -> ClusteringGroup:
    slices = tuple(
        ClusteringSlice(
            partition=piece.get("partitionPath") or "",
            file_id=piece.get("fileId") or "",
            base_file=_file_name(piece.get("dataFilePath") or "") or None,
            log_files=tuple(map(_file_name, piece.get("deltaFilePaths") or ())),
        )
        for piece in group.get("slices") or ()
    )
    count = group.get("numOutputFileGroups")
    return ClusteringGroup(slices, 1 if count is None else count, group.get("metrics") or {})


def _encode_clustering_group(group: ClusteringGroup, table_url: str) -> dict[str, Any]:
    slices = [
        {
            "dataFilePath": _file_url(table_url, piece.partition, piece.base_file) if piece.base_file else "",
            "deltaFilePaths": [_file_url(table_url, piece.partition, name) for name in piece.log_files],
            "fileId": piece.file_id,
            "partitionPath": piece.partition,
            "bootstrapFilePath": "",
            "version": 1,
        }
        for piece in group.slices
    ]
    return {
        "slices": slices,
        "metrics": dict(group.metrics),
        "numOutputFileGroups": group.output_count,
        "extraMetadata": None,
        "version": 1,
    }


def _file_url(table_url: str, partition: str, name: str) -> str:
    return "/".join(filter(None, (table_url, partition, name)))


def _file_name(url: str) -> str:
    return url.rpartition("/")[2]


def decode_restore_plan(data: bytes, *, path: str) -> RestorePlan:
    """The plan of a restore."""
    document = decode_document(data, "HoodieRestorePlan", path=path)
    instants = document.get("instantsToRollback") or ()
    return RestorePlan(
        document.get("savepointToRestoreTimestamp") or "",
        tuple(InstantRef(instant["commitTime"], instant["action"]) for instant in instants),
    )


def encode_restore_plan(plan: RestorePlan) -> bytes:
    """The plan of a restore."""
    document = {
        "instantsToRollback": _instants(plan.instants),
        "version": 2,
        "savepointToRestoreTimestamp": plan.target,
    }
    return encode_document(document, "HoodieRestorePlan")


def encode_restore(metadata: RestoreMetadata) -> bytes:
    """The completed file of a restore."""
    rollbacks = {
        time: [decode_document(encode_rollback(undone), "HoodieRollbackMetadata", path=time)]
        for time, undone in metadata.undone.items()
    }
    document = {
        "startRestoreTime": metadata.started_at,
        "timeTakenInMillis": 0,
        "instantsToRollback": [instant.requested_at for instant in metadata.instants],
        "hoodieRestoreMetadata": rollbacks,
        "version": 1,
        "restoreInstantInfo": _instants(metadata.instants),
    }
    return encode_document(document, "HoodieRestoreMetadata")


def _instants(instants: Sequence[InstantRef]) -> list[dict[str, str]]:
    return [{"commitTime": instant.requested_at, "action": instant.action} for instant in instants]
