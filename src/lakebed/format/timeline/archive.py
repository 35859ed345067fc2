"""The archived timeline: in layout 2 Parquet files in levels, listed by a manifest; in layout 1 log files.

    _version_                      the number n of the current manifest, as text
    manifest_<n>                   JSON: names and sizes of the files of the history
    <min>_<max>_<level>.parquet    one row per instant, sorted by requested time; min and max are requested times

Level 0 is written by archiving; files of one level are merged into one of the next. Merged files and old manifests
may linger, so only what the current manifest lists is history.

A log file of layout 1 has Avro blocks with one entry per instant and state: usually three entries per instant
(requested, inflight, completed), possibly in different files. An entry contains the content of its timeline file as a
nested record. It is returned as the Avro container file of table versions 8 and 9, so that one decoder serves both.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptTableError
from lakebed.format.avro.container import decode_nested_record, decode_writer_schema
from lakebed.format.guard import decode_json_object, decoding, encode_json_object
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file
from lakebed.format.timeline.metadata import encode_document
from lakebed.model.instant import Instant, InstantTime, instant_time
from lakebed.model.words import Action, State

HISTORY_SCHEMA = pa.schema(
    (
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    )
)
_ROW_VERSION = 1
_NAME = re.compile(r"([0-9]{14,20})_([0-9]{14,20})_([0-9]{1,9})\.parquet", re.ASCII)
_VERSION = re.compile(r"[0-9]{1,18}", re.ASCII)
_ACTIONS = {str(action): action for action in Action}
_WRITES = [str(action) for action in (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)]


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A file of the history and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """The fields of a history file's name: the range of requested times in it, and its level."""

    min: InstantTime
    max: InstantTime
    level: int


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """An archived instant, with the bytes of its completed file and of its plan; None if it had none."""

    instant: Instant
    metadata: bytes | None = None
    plan: bytes | None = None


def decode_version(data: bytes, *, path: str) -> int:
    """The number of the current manifest."""
    text = data.decode("latin-1").strip()
    if not _VERSION.fullmatch(text):
        raise CorruptTableError(f"not a manifest version: {text!r:.40}", path=path)
    return int(text)


def encode_version(version: int) -> bytes:
    """The content of `_version_`."""
    return str(version).encode()


def decode_manifest(data: bytes, *, path: str) -> tuple[ManifestEntry, ...]:
    """The files of the history."""
    content = decode_json_object(data, path=path, what="history manifest")
    with decoding(path, "history manifest"):
        return tuple(_manifest_entry(entry["fileName"], entry["fileLen"]) for entry in content["files"])


def encode_manifest(entries: Iterable[ManifestEntry]) -> bytes:
    """A manifest with these files."""
    return encode_json_object({"files": [{"fileName": entry.name, "fileLen": entry.size} for entry in entries]})


def decode_history_name(name: str) -> HistoryFile | None:
    """The fields of a history file's name; None for other files."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return HistoryFile(instant_time(found[1]), instant_time(found[2]), int(found[3]))


def encode_history_name(file: HistoryFile) -> str:
    """The name of a history file."""
    return f"{file.min}_{file.max}_{file.level}.parquet"


def decode_history(data: bytes, *, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a history file, with `columns` of HISTORY_SCHEMA or all of them."""
    wanted = pa.schema([HISTORY_SCHEMA.field(name) for name in columns or HISTORY_SCHEMA.names])
    with decoding(path, "archived timeline"):
        table = _read_parquet(data, wanted.names).select(wanted.names).cast(wanted)
        table.validate(full=True)
        return table


def encode_history(table: pa.Table) -> bytes:
    """A history file with the rows of `table`, which has HISTORY_SCHEMA, sorted by requested time."""
    avro_schema = (resources.files("lakebed.format") / "schemas" / "HoodieLSMTimelineInstant.avsc").read_text("utf-8")
    footer = {"parquet.avro.schema": avro_schema.strip(), "writer.model.name": "avro"}
    sink = pa.BufferOutputStream()
    options = {"compression": "gzip", "use_dictionary": False, "store_schema": False, "version": "1.0"}
    with pq.ParquetWriter(sink, HISTORY_SCHEMA, **options) as writer:
        writer.write_table(table.cast(HISTORY_SCHEMA).sort_by("instantTime"))
        writer.add_key_value_metadata(footer)
    return sink.getvalue().to_pybytes()


def history_table(archived: Iterable[ArchivedInstant]) -> pa.Table:
    """Completed instants as rows of HISTORY_SCHEMA."""
    rows = [
        {
            "instantTime": entry.instant.requested_at,
            "completionTime": entry.instant.completed_at,
            "action": str(entry.instant.action),
            "metadata": entry.metadata,
            "plan": entry.plan,
            "version": _ROW_VERSION,
        }
        for entry in archived
    ]
    return pa.Table.from_pylist(rows, HISTORY_SCHEMA)


def join_history(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of several history files."""
    return pa.concat_tables(tables)


def decode_instants(data: bytes, *, path: str) -> tuple[ArchivedInstant, ...]:
    """The completed instants of a history file."""
    return tuple(archived_instants(decode_history(data, path=path), path=path))


def decode_completions(data: bytes, *, path: str) -> dict[InstantTime, InstantTime]:
    """When the writes of a history file completed, by requested time."""
    table = decode_history(data, path=path, columns=("instantTime", "completionTime", "action"))
    table = table.filter(pc.is_in(table["action"], value_set=pa.array(_WRITES, pa.string())))
    times = zip(table["instantTime"].to_pylist(), table["completionTime"].to_pylist(), strict=True)
    return {instant_time(requested): instant_time(completed) for requested, completed in times if completed}


def archived_instants(table: pa.Table, *, path: str) -> Iterator[ArchivedInstant]:
    """The completed instants in the rows of `decode_history`; unknown actions are skipped.

    Without the columns `metadata` and `plan`, only the instants themselves.
    """
    for row in table.to_pylist():
        action = _ACTIONS.get(row["action"])
        if action is None:
            continue
        with decoding(path, "archived instant"):
            requested_at = instant_time(row["instantTime"])
            completed_at = instant_time(row["completionTime"] or requested_at)
        instant = Instant(requested_at, action, State.COMPLETED, completed_at)
        yield ArchivedInstant(instant, row.get("metadata"), row.get("plan"))


def _read_parquet(data: bytes, columns: list[str]) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(data))
    # A row holds at least an instant time of its own, so rows cannot outnumber bytes.
    if not 0 <= file.metadata.num_rows <= len(data):
        raise ValueError(f"{file.metadata.num_rows} rows in {len(data)} bytes")
    return file.read(columns=columns, use_threads=False)


def _manifest_entry(name: object, size: object) -> ManifestEntry:
    # The name becomes part of a path, so it must be that of a history file in this folder.
    if not isinstance(name, str) or decode_history_name(name) is None:
        raise ValueError(f"{name!r:.80} is not the name of a history file")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"{name} cannot have {size!r:.20} bytes")
    return ManifestEntry(name, size)


_INT = struct.Struct(">i")
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
    """The instants of an archived log file in file order, each in its furthest state; unknown actions are skipped."""
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
    """The records of a block: version, count, then length-prefixed records."""
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
        yield decode_nested_record(
            bytes(block.content[at : at + size]), schema, path=path, offset=block.content_offset + at
        )
        at += size


def _decode_entry(entry: dict[str, Any]) -> ArchivedInstant | None:
    action = _ACTIONS.get(entry["actionType"])
    if action is None:
        return None
    requested_at = instant_time(entry["commitTime"])
    # Old entries have no state: their instants are completed.
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
