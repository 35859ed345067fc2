"""The archived timeline of layout 1: log files whose Avro blocks hold one entry per instant and state.

An instant usually has three entries (requested, inflight, completed), which may lie in different files. An entry
carries the content of its timeline file as a nested record; it is handed on as the Avro container file that table
versions 8 and 9 have in its place, so that the decoders of timeline files apply to both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from lakebed.errors import CorruptTableError
from lakebed.format.avro.container import decode_datum, decode_writer_schema
from lakebed.format.guard import decoding
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file
from lakebed.format.timeline.history import ArchivedInstant
from lakebed.format.timeline.metadata import encode_document
from lakebed.model.instant import Instant, instant_time
from lakebed.model.words import Action, State

_INT = struct.Struct(">i")
_ACTIONS = {str(action): action for action in Action}

_METADATA = {
    Action.COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    Action.DELTA_COMMIT: ("hoodieCommitMetadata", "HoodieCommitMetadata"),
    Action.REPLACE_COMMIT: ("hoodieReplaceCommitMetadata", "HoodieReplaceCommitMetadata"),
    Action.CLEAN: ("hoodieCleanMetadata", "HoodieCleanMetadata"),
    Action.ROLLBACK: ("hoodieRollbackMetadata", "HoodieRollbackMetadata"),
    Action.SAVEPOINT: ("hoodieSavePointMetadata", "HoodieSavepointMetadata"),
    Action.INDEXING: ("hoodieIndexCommitMetadata", "HoodieIndexCommitMetadata"),
}
_PLANS = {
    Action.COMPACTION: ("hoodieCompactionPlan", "HoodieCompactionPlan"),
    Action.LOG_COMPACTION: ("hoodieCompactionPlan", "HoodieCompactionPlan"),
    Action.REPLACE_COMMIT: ("hoodieRequestedReplaceMetadata", "HoodieRequestedReplaceMetadata"),
    Action.CLEAN: ("hoodieCleanerPlan", "HoodieCleanerPlan"),
}
_PROGRESS = {state: order for order, state in enumerate(State)}


def decode_archived_log(data: bytes, *, path: str) -> tuple[ArchivedInstant, ...]:
    """The instants that a file of the archive tells of, each in the furthest state it has here, in file order.

    Actions that we do not know are left out.
    """
    merged: dict[tuple[str, Action], ArchivedInstant] = {}
    for block in decode_log_file(data, path=path, torn="skip"):
        for entry in _entries(block, path):
            with decoding(path, "archived instant", offset=block.offset):
                archived = _decode_entry(entry)
            if archived is not None:
                # A savepoint has the requested time of the commit it keeps, hence the action.
                key = archived.instant.requested_at, archived.instant.action.when_completed
                merged[key] = _merge(merged[key], archived) if key in merged else archived
    return tuple(merged.values())


def _entries(block: LogBlock, path: str) -> Iterator[dict[str, Any]]:
    """The records of a block: version, count, then each record behind its length."""
    if block.kind is not BlockKind.AVRO_DATA:
        raise CorruptTableError("an archive holds Avro blocks only", path=path, offset=block.offset)
    schema = decode_writer_schema(block.header.get(HeaderKey.SCHEMA, ""), path=path)
    at = 2 * _INT.size
    with decoding(path, "archive block", offset=block.content_offset):
        (count,) = _INT.unpack_from(block.content, _INT.size)
    for _ in range(count):
        with decoding(path, "archive block", offset=block.content_offset + at):
            (size,) = _INT.unpack_from(block.content, at)
            at += _INT.size
            if not 0 <= size <= len(block.content) - at:
                raise ValueError(f"a record of {size} bytes exceeds the block")
        yield decode_datum(bytes(block.content[at : at + size]), schema, path=path, offset=block.content_offset + at)
        at += size


def _decode_entry(entry: dict[str, Any]) -> ArchivedInstant | None:
    action = _ACTIONS.get(entry["actionType"])
    if action is None:
        return None
    requested_at = instant_time(entry["commitTime"])
    # Entries from before states were told apart are of completed instants.
    state = State((entry.get("actionState") or "completed").lower())
    if state is State.COMPLETED:
        # As in the names of layout 1. The entry may know when the instant completed, but the times of
        # archived and active instants are compared with each other.
        instant = Instant(requested_at, action, state, requested_at)
        return ArchivedInstant(instant, metadata=_nested(entry, _METADATA.get(action)))
    return ArchivedInstant(Instant(requested_at, action, state), plan=_nested(entry, _PLANS.get(action)))


def _nested(entry: dict[str, Any], place: tuple[str, str] | None) -> bytes | None:
    field, schema_name = place or ("", "")
    content = entry.get(field)
    return None if content is None else encode_document(content, schema_name)


def _merge(one: ArchivedInstant, other: ArchivedInstant) -> ArchivedInstant:
    furthest = max(one, other, key=lambda archived: _PROGRESS[archived.instant.state])
    return ArchivedInstant(furthest.instant, one.metadata or other.metadata, one.plan or other.plan)
