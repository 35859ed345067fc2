"""Timeline files of a restore: which instants it is to undo, and what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.format.timeline.metadata import decode_document, encode_document, encode_rollback
from lakebed.model.commit import InstantRef, RestorePlan, RollbackMetadata


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


def encode_restore(started_at: str, plan: RestorePlan, undone: Mapping[str, RollbackMetadata]) -> bytes:
    """What a restore did: the rollback of each instant, as far as this process made it."""
    rollbacks = {
        time: [decode_document(encode_rollback(metadata), "HoodieRollbackMetadata", path=time)]
        for time, metadata in undone.items()
    }
    document = {
        "startRestoreTime": started_at,
        "timeTakenInMillis": 0,
        "instantsToRollback": [instant.requested_at for instant in plan.instants],
        "hoodieRestoreMetadata": rollbacks,
        "version": 1,
        "restoreInstantInfo": _instants(plan.instants),
    }
    return encode_document(document, "HoodieRestoreMetadata")


def _instants(instants: Sequence[InstantRef]) -> list[dict[str, str]]:
    return [{"commitTime": instant.requested_at, "action": instant.action} for instant in instants]
