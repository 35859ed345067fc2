"""Archiving: moving old instants from the active timeline into the history, under the table's lock."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.format.timeline.history import (
    ArchivedInstant,
    HistoryFile,
    ManifestEntry,
    decode_manifest,
    decode_version,
    encode_history,
    encode_history_name,
    encode_manifest,
    encode_version,
    history_table,
)
from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.timeline import Archive
from lakebed.transaction.section import Section
from lakebed.transaction.settle import create_file, delete_file, replace_shared_file

_PENDING_AS = {
    Action.COMMIT: (Action.COMMIT, Action.COMPACTION),
    Action.DELTA_COMMIT: (Action.DELTA_COMMIT, Action.LOG_COMPACTION),
    Action.REPLACE_COMMIT: (Action.REPLACE_COMMIT, Action.CLUSTERING),
}


def archive(section: Section, instants: Sequence[Instant], root: str = "") -> None:
    """Moves completed instants into the history: first they are there, then they are gone here.

    A crash in between leaves instants in both places, or files of the history that no manifest names; neither matters.
    """
    there = Archive(section.ports.storage, section.config, root).holds(instants)
    new = [instant for instant in instants if instant not in there]
    if new:
        times = [instant.requested_at for instant in new]
        rows = history_table(_row(section, instant, root) for instant in new)
        _add_file(section, HistoryFile(min(times), max(times), 0), encode_history(rows), root)
    for instant in sorted(instants, key=lambda i: i.requested_at):
        _remove(section, instant, root)


def _row(section: Section, instant: Instant, root: str) -> ArchivedInstant:
    storage = section.ports.storage
    plans = (
        storage.find(section.path(Instant(instant.requested_at, action, State.REQUESTED), root))
        for action in _pending_actions(instant)
    )
    plan = next((plan for plan in plans if plan), None)
    return ArchivedInstant(instant, storage.get(section.path(instant, root)), plan)


def _add_file(section: Section, file: HistoryFile, data: bytes, root: str) -> None:
    storage, folder = section.ports.storage, f"{root}{section.config.history_path}"
    found = storage.find(f"{folder}/_version_")
    version = decode_version(found, path=f"{folder}/_version_") if found is not None else 0
    manifest = f"{folder}/manifest_{version}"
    entries = decode_manifest(storage.get(manifest), path=manifest) if version else ()
    name = encode_history_name(file)
    assert name not in (entry.name for entry in entries), "the history has none of these instants"
    entries = (*entries, ManifestEntry(name, len(data)))
    section.check_lease()
    for path, content in ((f"{folder}/{name}", data), (f"{folder}/manifest_{version + 1}", encode_manifest(entries))):
        delete_file(storage, path)  # What a crashed attempt left: no manifest that counts names it.
        create_file(storage, path, content)
    replace_shared_file(storage, f"{folder}/_version_", encode_version(version + 1))


def _remove(section: Section, instant: Instant, root: str) -> None:
    """The completed file goes last: without it the instant would look as if it were still pending."""
    for action in _pending_actions(instant):
        for state in (State.REQUESTED, State.INFLIGHT):
            section.remove(Instant(instant.requested_at, action, state), root)
    section.remove(instant, root)


def _pending_actions(instant: Instant) -> tuple[Action, ...]:
    return _PENDING_AS.get(instant.action, (instant.action,))
