"""The archived timeline of layout 2: Parquet files in levels, listed by a manifest.

    _version_                      the number n of the manifest that counts, as text
    manifest_<n>                   JSON: names and sizes of the files that make up the history
    <min>_<max>_<level>.parquet    one row per instant, sorted by requested time; min and max are requested times

Level 0 is written by archiving; files of one level are merged into one of the next. Merged files and old manifests
may linger, so only what the current manifest lists is history.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptTableError
from lakebed.format.guard import decode_json_object, decoding, encode_json_object
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
    """What the name of a history file says: the range of requested times in it, and its level."""

    min: InstantTime
    max: InstantTime
    level: int


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """An archived instant, with the bytes of its completed file and of its plan, as far as it had them."""

    instant: Instant
    metadata: bytes | None = None
    plan: bytes | None = None


def decode_version(data: bytes, *, path: str) -> int:
    """The number of the manifest that counts."""
    text = data.decode("latin-1").strip()
    if not _VERSION.fullmatch(text):
        raise CorruptTableError(f"not a manifest version: {text!r:.40}", path=path)
    return int(text)


def encode_version(version: int) -> bytes:
    """The content of `_version_`."""
    return str(version).encode()


def decode_manifest(data: bytes, *, path: str) -> tuple[ManifestEntry, ...]:
    """The files that make up the history."""
    content = decode_json_object(data, path=path, what="history manifest")
    with decoding(path, "history manifest"):
        return tuple(_manifest_entry(entry["fileName"], entry["fileLen"]) for entry in content["files"])


def encode_manifest(entries: Iterable[ManifestEntry]) -> bytes:
    """A manifest with these files."""
    return encode_json_object({"files": [{"fileName": entry.name, "fileLen": entry.size} for entry in entries]})


def decode_history_name(name: str) -> HistoryFile | None:
    """What a file name of the history folder says; None for other files."""
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
    """The completed instants in rows that `decode_history` gave; actions that we do not know are left out.

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
    # The name becomes part of a path: nothing but a history file of this folder will do.
    if not isinstance(name, str) or decode_history_name(name) is None:
        raise ValueError(f"{name!r:.80} is not the name of a history file")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"{name} cannot have {size!r:.20} bytes")
    return ManifestEntry(name, size)
