"""Plans of table services that timeline files carry: what is to be done, before it is done."""

from __future__ import annotations

from lakebed.format.timeline.metadata import decode_document, encode_document
from lakebed.model.commit import CleanPlan, InstantRef, RollbackPlan
from lakebed.model.files import FileGroupId


def decode_rollback_plan(data: bytes, *, path: str) -> RollbackPlan:
    """The plan of a rollback."""
    document = decode_document(data, "HoodieRollbackPlan", path=path)
    target = document.get("instantToRollback") or {}
    files: dict[str, list[str]] = {}
    for request in document.get("RollbackRequests") or ():
        names = [file.rpartition("/")[2] for file in request.get("filesToBeDeleted") or ()]
        files.setdefault(request["partitionPath"], []).extend(names)
    return RollbackPlan(
        InstantRef(target.get("commitTime", ""), target.get("action", "")),
        {partition: tuple(names) for partition, names in files.items()},
    )


def encode_rollback_plan(plan: RollbackPlan, *, table_url: str) -> bytes:
    """The plan of a rollback; the format asks for absolute paths, which begin with `table_url`."""
    requests = [
        {
            "partitionPath": partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": ["/".join(filter(None, (table_url, partition, name)))],
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
    files = document.get("filePathsToBeDeletedPerPartition") or {}
    return CleanPlan(
        earliest_to_retain=InstantRef(earliest["timestamp"], earliest["action"]) if earliest else None,
        last_completed=document.get("lastCompletedCommitTimestamp") or "",
        policy=document["policy"],
        files={
            partition: tuple((info.get("filePath") or "").rpartition("/")[2] for info in infos)
            for partition, infos in files.items()
        },
        partitions=tuple(document.get("partitionsToBeDeleted") or ()),
        extra_metadata=document.get("extraMetadata") or {},
    )


def encode_clean_plan(plan: CleanPlan, *, table_url: str) -> bytes:
    """The plan of a clean; the format asks for absolute paths, which begin with `table_url`."""
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
                {"filePath": "/".join(filter(None, (table_url, partition, name))), "isBootstrapBaseFile": False}
                for name in names
            ]
            for partition, names in plan.files.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        "extraMetadata": dict(plan.extra_metadata),
    }
    return encode_document(document, "HoodieCleanerPlan")


def decode_clustering_extra(data: bytes, *, path: str) -> dict[str, str]:
    """The extra metadata of a clustering plan."""
    document = decode_document(data, "HoodieRequestedReplaceMetadata", path=path)
    return dict((document.get("clusteringPlan") or {}).get("extraMetadata") or {})


def decode_clustering_groups(data: bytes, *, path: str) -> frozenset[FileGroupId]:
    """The file groups that a clustering plan is to rewrite; none for the empty plan of an overwrite."""
    document = decode_document(data, "HoodieRequestedReplaceMetadata", path=path)
    groups = (document.get("clusteringPlan") or {}).get("inputGroups") or ()
    return frozenset(
        FileGroupId(piece.get("partitionPath") or "", piece.get("fileId") or "")
        for group in groups
        for piece in group.get("slices") or ()
    )
