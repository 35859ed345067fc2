"""Archiving: moving old instants from the active timeline into the history, under the table's lock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.errors import StorageUnavailableError
from lakebed.format.timeline.history import (
    ArchivedInstant,
    HistoryFile,
    ManifestEntry,
    decode_history,
    decode_history_name,
    decode_manifest,
    decode_version,
    encode_history,
    encode_history_name,
    encode_manifest,
    encode_version,
    history_table,
)
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome
from lakebed.storage.confirm import create_file, delete_file, swap_shared_file
from lakebed.timeline import Archive
from lakebed.transaction.section import Section, lost_lock

_PENDING_AS = {
    Action.COMMIT: (Action.COMMIT, Action.COMPACTION),
    Action.DELTA_COMMIT: (Action.DELTA_COMMIT, Action.LOG_COMPACTION),
    Action.REPLACE_COMMIT: (Action.REPLACE_COMMIT, Action.CLUSTERING),
}
_MERGED_FILES = 10
"""So many files of one level of the history become one of the next."""
_MERGED_BYTES = 1 << 30
"""Files of the history that are larger are left as they are."""
_NAMES_MAX = 10
"""So many names are tried for a new file: each that is taken was left by a process that was interrupted."""
_KEPT_MANIFESTS = 3
"""Readers may still be at one of the newest manifests, and at the files that it names."""


def archive(section: Section, instants: Sequence[Instant], root: str = "") -> None:
    """Moves completed instants into the history: first they are there, then they are gone here.

    A crash in between leaves instants in both places, or files of the history that no manifest names; neither matters.
    Then files of the history are merged, level by level, where there are many.
    """
    there = Archive(section.ports.storage, section.config, root).holds(instants)
    new = [instant for instant in instants if instant not in there]
    if new:
        times = [instant.requested_at for instant in new]
        rows = history_table(_row(section, instant, root) for instant in new)
        _add_file(section, HistoryFile(min(times), max(times), 0), encode_history(rows), root)
    for instant in sorted(instants, key=lambda i: i.requested_at):
        _remove(section, instant, root)
    level = 0
    while _merge_level(section, root, level):
        level += 1
    if new or level:
        _drop_old_files(section, root, kept=_KEPT_MANIFESTS + level)


def finish_archiving(section: Section) -> None:
    """Ends what a process left that died between both steps: what the history has is no longer on the timeline.

    Whoever takes completed instants back does this first. The history would still tell of them. It would do so, too,
    if a process that has lost the lock while it archived them could still have its manifest count.
    """
    if section.ports.lock.can_be_lost:
        _renew_manifest(section)
    archived = Archive(section.ports.storage, section.config).holds(section.timeline.completed())
    for instant in sorted(archived, key=lambda i: i.requested_at):
        section.check_lease()
        _remove(section, instant, "")


def _row(section: Section, instant: Instant, root: str) -> ArchivedInstant:
    storage = section.ports.storage
    plans = (
        storage.find(section.path(Instant(instant.requested_at, action, State.REQUESTED), root))
        for action in _pending_actions(instant)
    )
    plan = next((plan for plan in plans if plan), None)
    return ArchivedInstant(instant, storage.get(section.path(instant, root)), plan)


def _add_file(section: Section, file: HistoryFile, data: bytes, root: str, merged: Collection[str] = ()) -> None:
    """Puts a file into the history, in the place of those that were merged into it.

    Whoever lost the lock may still have its manifest count, if nobody else had one since: so a file that is there is
    never taken away here, nor taken for one's own.
    """
    storage, folder = section.ports.storage, f"{root}{section.config.history_path}"
    stored = storage.find_with_etag(f"{folder}/_version_")
    version, entries = _load_manifest(section, root)
    name = encode_history_name(file)
    if name in (entry.name for entry in entries):
        raise lost_lock(section.ports)  # Another process has archived these.
    section.check_lease()
    name = _create_file(section, folder, file, data)
    entries = (*(entry for entry in entries if entry.name not in merged), ManifestEntry(name, len(data)))
    if not _put_manifest(section, folder, version + 1, entries, stored and stored[1]):
        raise lost_lock(section.ports)


def _put_manifest(
    section: Section, folder: str, number: int, entries: Sequence[ManifestEntry], etag: str | None
) -> bool:
    """Has a manifest with a new number count, unless another one has come to count since `etag` was seen."""
    storage = section.ports.storage
    while not create_file(storage, f"{folder}/manifest_{number}", encode_manifest(entries)):
        number += 1  # One that a crashed attempt left is not taken away: it may be that of who has the lock by now.
    return swap_shared_file(storage, f"{folder}/_version_", encode_version(number), etag)


def _renew_manifest(section: Section) -> None:
    """The same manifest under a new number: no other that is on its way can come to count any more."""
    storage, folder = section.ports.storage, section.config.history_path
    for _ in range(_NAMES_MAX):
        stored = storage.find_with_etag(f"{folder}/_version_")
        version, entries = _load_manifest(section, "")
        section.check_lease()
        if _put_manifest(section, folder, version + 1, entries, stored and stored[1]):
            return
    raise lost_lock(section.ports)


def _create_file(section: Section, folder: str, file: HistoryFile, data: bytes) -> str:
    """The name of a new file, under which nobody has stored one: its range may be a little too wide."""
    for _ in range(_NAMES_MAX):
        name = encode_history_name(file)
        if section.ports.storage.create(f"{folder}/{name}", data) is Outcome.DONE:
            return name
        file = replace(file, max=InstantTime(f"{int(file.max) + 1:0{len(file.max)}}"))
    raise StorageUnavailableError(
        f"{section.ports.storage.url}: could not add a file to the timeline history",
        hint="run the call again when the store answers",
    )


def _load_manifest(section: Section, root: str) -> tuple[int, tuple[ManifestEntry, ...]]:
    storage, folder = section.ports.storage, f"{root}{section.config.history_path}"
    found = storage.find(f"{folder}/_version_")
    version = decode_version(found, path=f"{folder}/_version_") if found is not None else 0
    return version, _load_entries(section, root, version) if version else ()


def _load_entries(section: Section, root: str, version: int) -> tuple[ManifestEntry, ...]:
    manifest = f"{root}{section.config.history_path}/manifest_{version}"
    return decode_manifest(section.ports.storage.get(manifest), path=manifest)


def _merge_level(section: Section, root: str, level: int) -> bool:
    """Merges the oldest files of a level into one of the next, once there are enough of them."""
    _, entries = _load_manifest(section, root)
    named = sorted((file.min, entry.name, file) for entry in entries if (file := _of_level(entry, level)))
    if len(named) < _MERGED_FILES:
        return False
    oldest = named[:_MERGED_FILES]
    paths = [f"{root}{section.config.history_path}/{name}" for _, name, _ in oldest]
    rows = pa.concat_tables([decode_history(section.ports.storage.get(path), path=path) for path in paths])
    files = [file for _, _, file in oldest]
    merged = HistoryFile(min(file.min for file in files), max(file.max for file in files), level + 1)
    _add_file(section, merged, encode_history(rows), root, merged=[name for _, name, _ in oldest])
    return True


def _of_level(entry: ManifestEntry, level: int) -> HistoryFile | None:
    file = decode_history_name(entry.name)
    return file if file is not None and file.level == level and entry.size <= _MERGED_BYTES else None


def _drop_old_files(section: Section, root: str, kept: int) -> None:
    """Removes old manifests, and then the files that none of the `kept` newest ones names.

    To be called once this section has put a manifest there: by now nobody else can have one count that names them.
    """
    version, _ = _load_manifest(section, root)
    storage, folder = section.ports.storage, f"{root}{section.config.history_path}"
    names = [listed.path.rpartition("/")[2] for listed in storage.list(folder)]
    manifests = sorted(int(name[9:]) for name in names if name.startswith("manifest_") and name[9:].isdecimal())
    old = [number for number in manifests if number <= version][:-kept]
    if not old:
        return
    needed = {e.name for n in manifests if n <= version and n not in old for e in _load_entries(section, root, n)}
    section.check_lease()
    for number in old:
        delete_file(storage, f"{folder}/manifest_{number}")
    for name in names:
        if decode_history_name(name) is not None and name not in needed:
            delete_file(storage, f"{folder}/{name}")


def _remove(section: Section, instant: Instant, root: str) -> None:
    """The completed file goes last: without it the instant would look as if it were still pending.

    All of them, if there are two: for Apache Hudi, what lies behind the first instant here and is not here does not
    count, and its compactions would leave out the logs of all writes that are archived with this one.
    """
    for action in _pending_actions(instant):
        for state in (State.REQUESTED, State.INFLIGHT):
            section.remove(Instant(instant.requested_at, action, state), root)
    for completed in section.completed_files(instant, root):
        section.remove(completed, root)


def _pending_actions(instant: Instant) -> tuple[Action, ...]:
    return _PENDING_AS.get(instant.action, (instant.action,))
