"""A prepared commit as bytes: another process can commit it if the one that prepared it dies.

The file is a zip archive; checksums tell a truncated or damaged one:

    commit.json     instant, write set, what was seen, one entry per file, digests of the other members; `version`
                    says which form this is
    commit.avro     the commit metadata, as the timeline will have it
    columns.arrow   the data columns of the table that the commit was planned on
    *.arrow         record keys: inserted, deleted, hidden, new
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from lakebed.commit.prepared import NewKeys, PreparedCommit, StagedKeys
from lakebed.engine.exchange import Shelf, StagedFile
from lakebed.errors import UnsupportedTableError
from lakebed.format.guard import decoding
from lakebed.format.timeline.metadata import decode_commit
from lakebed.index.facts import FileFacts, decode_facts, encode_facts
from lakebed.index.key_batches import KeyChanges, KeyFiles, StoredKeys
from lakebed.index.kind import Expected
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.index import EntryOrdering
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.storage import Storage
from lakebed.transaction.conflicts import WriteKind, WriteSet

_VERSION = 1
_DOCUMENT = "commit.json"
_KEY, _ORDERING = "key", "ordering"
_FLAGS = ("knows_keys", "compacts", "keeps_current")
_BYTES_MAX = 4 << 30
"""Unpacked bytes of an archive that is read: keys of larger writes are staged in files of their own."""


def encode_prepared(prepared: PreparedCommit, table: str) -> bytes:
    """The prepared commit of rows, of a table with that name."""
    members: dict[str, bytes] = {
        "commit.avro": prepared.document,
        "inserted.arrow": _encode_keys([(f.inserted_keys, f.ordering) for f in prepared.facts]),
        "deleted.arrow": _encode_keys([(f.deleted_keys, None) for f in prepared.facts]),
        "hidden.arrow": _encode_keys([(change.deleted, None) for change in prepared.hidden_keys]),
    }
    if prepared.columns is not None:
        members["columns.arrow"] = _encode_table(prepared.columns.empty_table())
    if callable(prepared.new_keys):
        members["new.arrow"] = _encode_table(prepared.new_keys())
    digests = {name: _digest(data) for name, data in members.items()}
    document = {"version": _VERSION, "table": table, "members": digests, **_document(prepared)}
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr(_DOCUMENT, json.dumps(document))
        for name, data in members.items():
            archive.writestr(name, data)
    return sink.getvalue()


def decode_prepared(data: bytes, storage: Storage, *, path: str) -> tuple[PreparedCommit, str]:
    """The prepared commit and the name of its table. Keys of a large write lie in `storage`."""
    with decoding(path, "prepared commit"):
        members = _unpack(data)
        document = json.loads(members[_DOCUMENT])
        if document["version"] != _VERSION:
            raise UnsupportedTableError(
                f"{path} is a prepared commit of version {document['version']}; this is version {_VERSION}",
                hint="commit it with the version of lakebed that prepared it, or roll the write back and run it again",
            )
        if document["members"] != {name: _digest(member) for name, member in members.items() if name != _DOCUMENT}:
            raise ValueError("it is truncated or damaged: members are missing or changed")
        return _Decoder(document, members, storage, path).prepared(), document["table"]


def _digest(member: bytes) -> str:
    return blake2b(member, digest_size=16).hexdigest()


def _unpack(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _BYTES_MAX:
                raise ValueError("it is too large")
            return {member.filename: archive.read(member) for member in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"it is truncated or damaged: {error}") from error


def _document(prepared: PreparedCommit) -> dict[str, Any]:
    (_, writes), expected = prepared.of_rows, prepared.expected
    return {
        "instant": prepared.instant,
        "action": str(prepared.action),
        "writes": {
            "kind": writes.kind.value,
            "appended": _groups(writes.appended),
            "rewritten": _groups(writes.rewritten),
            "added": _groups(writes.added),
            "partitions": sorted(writes.partitions),
        },
        "seen": sorted(prepared.seen),
        "expected": {
            "partitions": sorted(expected.partitions),
            "columns": expected.columns,
            "ordering": None if expected.ordering is None else asdict(expected.ordering),
            "partition_shards": expected.partition_shards,
            "gathered": {index: list(columns) for index, columns in expected.gathered.items()},
        },
        "facts": [*_facts(prepared)],
        "replaced": _groups(prepared.replaced),
        "hidden": [[change.partition, change.file_id, len(change.deleted or ())] for change in prepared.hidden_keys],
        "key_files": None if prepared.key_files is None else _key_files(prepared.key_files),
        "new_keys": _staged(prepared.new_keys) if isinstance(prepared.new_keys, StagedKeys) else None,
        **{flag: getattr(prepared, flag) for flag in _FLAGS},
    }


def _facts(prepared: PreparedCommit) -> Iterator[dict[str, Any]]:
    """One entry per file; its write stat is that of the commit metadata."""
    places = {
        id(stat): [partition, number]
        for partition, stats in prepared.of_rows[0].write_stats.items()
        for number, stat in enumerate(stats)
    }
    for file in prepared.facts:
        yield {
            "stat": places[id(file.stat)],
            "inserted": _count(file.inserted_keys),
            "deleted": _count(file.deleted_keys),
            "has_ordering": file.ordering is not None,
            "facts": encode_facts(file),
        }


class _Decoder:
    """Puts a prepared commit together again."""

    def __init__(self, document: Mapping[str, Any], members: Mapping[str, bytes], storage: Storage, path: str) -> None:
        self._document, self._members, self._storage, self._path = document, members, storage, path

    def prepared(self) -> PreparedCommit:
        """The commit."""
        document = self._document
        metadata = decode_commit(self._members["commit.avro"], path=self._path)
        columns = self._members.get("columns.arrow")
        return PreparedCommit(
            InstantTime(document["instant"]),
            Action(document["action"]),
            metadata,
            _write_set(document["writes"]),
            frozenset(map(InstantTime, document["seen"])),
            _expected(document["expected"]),
            tuple(self._facts(metadata)),
            columns=None if columns is None else _decode_table(columns).schema,
            replaced=_decode_groups(document["replaced"]),
            hidden_keys=tuple(self._hidden()),
            key_files=self._key_files(),
            new_keys=self._new_keys(),
            **{flag: bool(document[flag]) for flag in _FLAGS},
        )

    def _facts(self, metadata: CommitMetadata) -> Iterator[FileFacts]:
        entries = self._document["facts"]
        inserted = self._keys("inserted.arrow", [entry["inserted"] for entry in entries])
        deleted = self._keys("deleted.arrow", [entry["deleted"] for entry in entries])
        for entry, (keys, ordering), (gone, _) in zip(entries, inserted, deleted, strict=True):
            partition, number = entry["stat"]
            stat: WriteStat = metadata.write_stats[partition][number]
            facts = decode_facts(entry["facts"], stat)
            known = ordering if entry["has_ordering"] else None
            yield replace(facts, inserted_keys=keys, deleted_keys=gone, ordering=known)

    def _hidden(self) -> Iterator[KeyChanges]:
        hidden = self._document["hidden"]
        keys = self._keys("hidden.arrow", [count for _, _, count in hidden])
        for (partition, file_id, _), (gone, _) in zip(hidden, keys, strict=True):
            yield KeyChanges(partition, file_id, deleted=gone)

    def _keys(self, member: str, counts: Sequence[int | None]) -> list[tuple[pa.Array | None, pa.Array | None]]:
        """Slices of the arrays of a member, None where nothing was given."""
        table = _decode_table(self._members[member]).combine_chunks()
        if table.num_rows != sum(count or 0 for count in counts):
            raise ValueError(f"{member} has {table.num_rows} keys")
        found: list[tuple[pa.Array | None, pa.Array | None]] = []
        start = 0
        for count in counts:
            part = table.slice(start, count or 0)
            start += count or 0
            ordering = _one(part[_ORDERING]) if _ORDERING in part.column_names else None
            found.append((None, None) if count is None else (_one(part[_KEY]), ordering))
        return found

    def _key_files(self) -> KeyFiles | None:
        given = self._document["key_files"]
        if given is None:
            return None
        groups = (StoredKeys(p, id_, tuple(shards), _staged_file(file)) for p, id_, shards, file in given["groups"])
        return KeyFiles(Shelf(self._storage, given["folder"]), tuple(groups))

    def _new_keys(self) -> NewKeys | None:
        staged, data = self._document["new_keys"], self._members.get("new.arrow")
        if staged is not None:
            return StagedKeys(Shelf(self._storage, staged["folder"]), tuple(map(_staged_file, staged["files"])))
        return None if data is None else _Table(_decode_table(data))


class _Table:
    """New keys that were read from a file."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __call__(self) -> pa.Table:
        """The keys."""
        return self._table


def _groups(groups: frozenset[FileGroupId]) -> list[list[str]]:
    return sorted([group.partition, group.file_id] for group in groups)


def _decode_groups(groups: Sequence[Sequence[str]]) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId(partition, file_id) for partition, file_id in groups)


def _write_set(given: Mapping[str, Any]) -> WriteSet:
    appended, rewritten, added = (_decode_groups(given[name]) for name in ("appended", "rewritten", "added"))
    return WriteSet(WriteKind(given["kind"]), appended, rewritten, added, frozenset(given["partitions"]))


def _expected(given: Mapping[str, Any]) -> Expected:
    ordering = None if given["ordering"] is None else EntryOrdering(**given["ordering"])
    return Expected(
        frozenset(given["partitions"]),
        tuple(given["columns"]),
        ordering,
        given["partition_shards"],
        {index: tuple(columns) for index, columns in given["gathered"].items()},
    )


def _key_files(files: KeyFiles) -> dict[str, Any]:
    groups = [[each.partition, each.file_id, each.shards, asdict(each.file)] for each in files.groups]
    return {"folder": files.shelf.folder, "groups": groups}


def _staged(keys: StagedKeys) -> dict[str, Any]:
    return {"folder": keys.shelf.folder, "files": [asdict(file) for file in keys.files]}


def _staged_file(given: Mapping[str, Any]) -> StagedFile:
    labels = tuple(tuple(label) if isinstance(label, list) else label for label in given["labels"])
    return StagedFile(
        given["path"], given["head"], given["batch_rows"], tuple(given["offsets"]), labels, tuple(given["starts"])
    )


def _count(keys: pa.Array | None) -> int | None:
    return None if keys is None else len(keys)


def _encode_keys(parts: Sequence[tuple[pa.Array | None, pa.Array | None]]) -> bytes:
    """One table of the keys of all parts; ordering values, where some have them, are null for the others."""
    tables = []
    for keys, ordering in parts:
        if keys is not None:
            columns = {_KEY: keys} if ordering is None else {_KEY: keys, _ORDERING: ordering}
            table = pa.table(columns)
            tables.append(table.set_column(0, _KEY, table[_KEY].cast(pa.string())))
    empty = pa.table({_KEY: pa.array([], pa.string())})
    return _encode_table(pa.concat_tables(tables or [empty], promote_options="default"))


def _encode_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decode_table(data: bytes) -> pa.Table:
    table = pa.ipc.open_stream(data).read_all()
    table.validate(full=True)
    return table


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
