"""Archiving: moving old instants from the active timeline into the history, under the table's lock."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from lakebed.errors import StorageUnavailableError
from lakebed.format.timeline.archive import (
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
    join_history,
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
MERGED_FILES = 10
"""Number of history files of one level that are merged into one file of the next."""
_MERGED_BYTES = 1 << 30
"""History files above this size, in bytes, are not merged."""
_NAMES_MAX = 10
"""Number of names to try for a new history file; a taken name was left by an interrupted process."""
_KEPT_MANIFESTS = 3
"""Number of manifests to keep, with the files that they name: readers may still use them."""


def archive(section: Section, instants: Sequence[Instant], root: str = "", *, merged_files: int = MERGED_FILES) -> None:
    """Moves completed instants into the history: adds them there, then deletes them from the active timeline.

    A crash in between leaves instants in both places, or history files that no manifest names; both are harmless.
    Then levels of the history that have `merged_files` files are merged.
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
    while _merge_level(section, root, level, merged_files):
        level += 1
    if new or level:
        _drop_old_files(section, root, kept=_KEPT_MANIFESTS + level)


def finish_archiving(section: Section) -> None:
    """Finishes an archiving run that died half way: deletes instants that the history has from the active timeline.

    A restore or a rollback of completed instants calls this first; else the history would still list what it undoes.
    If the lock can be lost, it also publishes a new manifest, so that a manifest prepared by a stale archiver fails
    its compare-and-swap.
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
    """Adds a file to the history and removes the `merged` files from the manifest.

    The manifest of a process that lost the lock may still become current, if no other was published since. So an
    existing file is never deleted here, nor assumed to be our own.
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
    """Publishes a manifest under a new number; False if another was published since `etag` was read."""
    storage = section.ports.storage
    while not create_file(storage, f"{folder}/manifest_{number}", encode_manifest(entries)):
        number += 1  # One that a crashed attempt left is not taken away: it may be that of who has the lock by now.
    return swap_shared_file(storage, f"{folder}/_version_", encode_version(number), etag)


def _renew_manifest(section: Section) -> None:
    """Publishes the current manifest under a new number: one prepared by a stale process then fails its swap."""
    storage, folder = section.ports.storage, section.config.history_path
    for _ in range(_NAMES_MAX):
        stored = storage.find_with_etag(f"{folder}/_version_")
        version, entries = _load_manifest(section, "")
        section.check_lease()
        if _put_manifest(section, folder, version + 1, entries, stored and stored[1]):
            return
    raise lost_lock(section.ports)


def _create_file(section: Section, folder: str, file: HistoryFile, data: bytes) -> str:
    """Stores a new history file under a free name, and returns the name; its range may be slightly too wide."""
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


def _merge_level(section: Section, root: str, level: int, count: int) -> bool:
    """Merges the oldest `count` files of a level into one of the next; False if it has fewer."""
    _, entries = _load_manifest(section, root)
    named = sorted((file.min, entry.name, file) for entry in entries if (file := _of_level(entry, level)))
    if len(named) < count:
        return False
    oldest = named[:count]
    paths = [f"{root}{section.config.history_path}/{name}" for _, name, _ in oldest]
    rows = join_history([decode_history(section.ports.storage.get(path), path=path) for path in paths])
    files = [file for _, _, file in oldest]
    merged = HistoryFile(min(file.min for file in files), max(file.max for file in files), level + 1)
    _add_file(section, merged, encode_history(rows), root, merged=[name for _, name, _ in oldest])
    return True


def _of_level(entry: ManifestEntry, level: int) -> HistoryFile | None:
    file = decode_history_name(entry.name)
    return file if file is not None and file.level == level and entry.size <= _MERGED_BYTES else None


def _drop_old_files(section: Section, root: str, kept: int) -> None:
    """Removes old manifests, and then the files that none of the `kept` newest ones names.

    Call it only after this section has published a manifest: then no stale manifest that names them can become current.
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
    """Deletes the files of an instant, the completed file last: without it the instant would look pending.

    If there are two completed files, both go. Apache Hudi ignores writes that come after the first instant of the
    active timeline and are not on it, so its compactions would skip the logs of all writes archived together with this
    one.
    """
    for action in _pending_actions(instant):
        for state in (State.REQUESTED, State.INFLIGHT):
            section.remove(Instant(instant.requested_at, action, state), root)
    for completed in section.completed_files(instant, root):
        section.remove(completed, root)


def _pending_actions(instant: Instant) -> tuple[Action, ...]:
    return _PENDING_AS.get(instant.action, (instant.action,))
