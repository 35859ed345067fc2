"""Codecs that are cheap: what protocol code encodes and decodes most of the time in a simulation.

Avro costs more than all the rest of a schedule. Nine schedules of ten therefore write the number of a document instead
of the document, and remember what listings and names decode to. One of ten runs the real codecs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import lakebed.services.restore  # Modules whose functions are swapped must be loaded by then.
import lakebed.services.savepoint
import lakebed.services.table_services
import lakebed.timeline.timeline as active
import lakebed.transaction.section as section
import lakebed.write.recommit  # noqa: F401
from lakebed.commit import stored
from lakebed.format.file_names import decode_instant_name
from lakebed.format.timeline import archive as history
from lakebed.format.timeline import metadata, plans
from lakebed.model.commit import CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.timeline.timeline import Timeline

TIMELINE = ".hoodie/timeline"

_DOCUMENTS: dict[bytes, Any] = {}
_LASTING: dict[bytes, Any] = {}
"""The documents of this schedule, and those of tables that schedules start from, by the bytes that stand for them."""


def encode_document(document: Any, *_: Any, **__: Any) -> bytes:
    """A document as bytes."""
    data = b"document %d" % len(_DOCUMENTS)
    _DOCUMENTS[data] = document
    return data


def encode_lasting(document: Any, **_: Any) -> bytes:
    """A document as bytes that outlast the schedule."""
    data = b"lasting %d" % len(_LASTING)
    _LASTING[data] = document
    return data


def decode_document(data: bytes, **_: Any) -> Any:
    """The document that was encoded."""
    return _DOCUMENTS[data] if data in _DOCUMENTS else _LASTING[data]


def decode_commit(data: bytes, **_: Any) -> Any:
    """The commit that was encoded; an empty file says nothing."""
    return decode_document(data) if data else CommitMetadata()


@lru_cache(maxsize=100_000)
def decode_instant(name: str) -> Instant | None:
    """The instant of a file name, in the layout that simulated tables have."""
    return decode_instant_name(name, layout=2)


@dataclass(frozen=True, slots=True)
class Codec:
    """The codecs that the world around the protocol layer uses itself."""

    encode_commit: Callable[..., bytes]
    decode_commit: Callable[..., Any]
    decode_rollback_plan: Callable[..., Any]
    decode_compaction_plan: Callable[..., Any]
    decode_clustering_plan: Callable[..., Any]
    decode_clean_plan: Callable[..., Any]
    decode_restore_plan: Callable[..., Any]
    decode_savepoint: Callable[..., Any]
    decode_history: Callable[..., Any]


@lru_cache(maxsize=1000)
def _real_commit(data: bytes, *, path: str) -> CommitMetadata:
    """What readers decode again and again, and the protocol layer does not."""
    return metadata.decode_commit(data, path=path)


def _real_history(data: bytes, *, path: str) -> list[history.ArchivedInstant]:
    return list(history.archived_instants(history.decode_history(data, path=path), path=path))


REAL = Codec(
    metadata.encode_commit,
    _real_commit,
    plans.decode_rollback_plan,
    metadata.decode_compaction_plan,
    plans.decode_clustering_plan,
    plans.decode_clean_plan,
    plans.decode_restore_plan,
    metadata.decode_savepoint,
    _real_history,
)
FAST = Codec(encode_document, decode_commit, *[decode_document] * 7)

Swap = tuple[Any, str, Any, Any]
"""An attribute, what it is, and what it is to be for a while."""


def find_uses(replacements: Mapping[Callable[..., Any], Any]) -> tuple[Swap, ...]:
    """Every place of lakebed that has one of these functions by name, with what is to be there instead."""
    by_id = {id(old): new for old, new in replacements.items()}
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == "lakebed"]
    return tuple(
        (module, name, value, by_id[id(value)])
        for module in modules
        for name, value in list(vars(module).items())
        if id(value) in by_id
    )


@contextmanager
def swapped(swaps: Iterable[Swap]) -> Iterator[None]:
    """Attributes with other values; tens of them, thousands of times, so by hand."""
    for owner, name, _, new in swaps:
        setattr(owner, name, new)
    try:
        yield
    finally:
        for owner, name, old, _ in swaps:
            setattr(owner, name, old)


class _Timelines:
    """Timelines of listings: a listing that is the same object has the same instants."""

    def __init__(self) -> None:
        self._instants: dict[int, tuple[Any, Any]] = {}
        self._timelines: dict[int, tuple[Any, Any]] = {}

    def forget(self) -> None:
        self._instants.clear()
        self._timelines.clear()
        _DOCUMENTS.clear()

    def list_instants(self, storage: Any, config: TableConfig, root: str = "") -> Any:
        del config
        listing = storage.list(f"{root}{TIMELINE}")
        known = self._instants.get(id(listing))
        if known is None:
            found = [_instant_at(listed.path) for listed in listing]
            known = self._instants[id(listing)] = (listing, tuple([i for i in found if i is not None]))
        return known[1]

    def of(self, instants: Any) -> Timeline:
        if not isinstance(instants, tuple):
            return Timeline.of(instants)
        known = self._timelines.get(id(instants))
        if known is None:
            known = self._timelines[id(instants)] = (instants, Timeline.of(instants))
        return known[1]


@lru_cache(maxsize=100_000)
def _instant_at(path: str) -> Instant | None:
    return decode_instant(path.rpartition("/")[2])


_KNOWN = _Timelines()


class _Remembered(Timeline):
    """A timeline that is made once for each listing."""

    of = staticmethod(_KNOWN.of)


_LISTINGS = (
    *find_uses({active.list_instants: _KNOWN.list_instants}),
    (active, "Timeline", Timeline, _Remembered),
    (section, "Timeline", Timeline, _Remembered),
)


@contextmanager
def remembered_listings() -> Iterator[Callable[[], None]]:
    """The protocol layer with timelines that are parsed once. Gives what is to be called between schedules."""
    with swapped(_LISTINGS):
        yield _KNOWN.forget


def _decode_completions(data: bytes, **_: Any) -> dict[str, str]:
    found = [each.instant for each in decode_document(data)]
    return {i.requested_at: i.completed_at for i in found if i.action.changes_data}


def _join(tables: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(row for table in tables for row in table)


def _decode_prepared(data: bytes, storage: Any, **_: Any) -> Any:
    del storage
    return decode_document(data)


def _encode_prepared(prepared: Any, table: str) -> bytes:
    return encode_document((prepared, table))


_ENCODERS = (
    metadata.encode_commit,
    metadata.encode_clean,
    metadata.encode_rollback,
    metadata.encode_savepoint,
    metadata.encode_compaction_plan,
    plans.encode_rollback_plan,
    plans.encode_clean_plan,
    plans.encode_clustering_plan,
    plans.encode_restore_plan,
    plans.encode_restore,
    history.encode_history,
)
_DECODERS = (
    metadata.decode_clean,
    metadata.decode_rollback,
    metadata.decode_savepoint,
    metadata.decode_compaction_plan,
    plans.decode_rollback_plan,
    plans.decode_clean_plan,
    plans.decode_clustering_plan,
    plans.decode_restore_plan,
    history.decode_history,
)
_CHEAP: tuple[Swap, ...] = (
    *find_uses(dict.fromkeys(_ENCODERS, encode_document)),
    *find_uses(dict.fromkeys(_DECODERS, decode_document)),
    *find_uses({metadata.decode_commit: decode_commit, history.history_table: tuple, history.join_history: _join}),
    *find_uses({history.decode_completions: _decode_completions, history.decode_instants: decode_document}),
    *find_uses({stored.encode_prepared: _encode_prepared, stored.decode_prepared: _decode_prepared}),
)


@contextmanager
def fast_codecs() -> Iterator[None]:
    """The protocol layer with cheap documents."""
    with swapped(_CHEAP):
        yield
