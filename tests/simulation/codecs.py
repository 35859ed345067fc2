"""Codecs that are cheap: what protocol code encodes and decodes most of the time in a simulation.

Avro costs more than all the rest of a schedule. Nine schedules of ten therefore write the number of a document instead
of the document, and remember what listings and names decode to. One of ten runs the real codecs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest import mock

import lakebed.metadata.maintenance as maintenance
import lakebed.timeline.active as active
import lakebed.timeline.documents as documents
import lakebed.transaction.pending as pending
import lakebed.transaction.plans as plans_module
import lakebed.transaction.rollback as rollback
import lakebed.transaction.section as section
import lakebed.transaction.transactions as transactions
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.timeline import metadata, plans
from lakebed.format.timeline.instant_names import decode_instant_name
from lakebed.model.commit import ClusteringGroup, ClusteringPlan, ClusteringSlice, CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.timeline.timeline import Timeline

TIMELINE = ".hoodie/timeline"

_DOCUMENTS: dict[bytes, Any] = {}
_LASTING: dict[bytes, Any] = {}
"""The documents of this schedule, and those of tables that schedules start from, by the bytes that stand for them."""


def encode_document(document: Any, **_: Any) -> bytes:
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


@lru_cache(maxsize=100_000)
def _data_file(name: str) -> Any:
    return decode_data_file_name(name)


@dataclass(frozen=True, slots=True)
class Codec:
    """The codecs that the world around the protocol layer uses itself."""

    encode_commit: Callable[..., bytes]
    decode_commit: Callable[..., Any]
    decode_rollback_plan: Callable[..., Any]
    encode_compaction_plan: Callable[..., bytes]
    decode_compaction_plan: Callable[..., Any]
    decode_clean_plan: Callable[..., Any]


@lru_cache(maxsize=1000)
def _real_commit(data: bytes, *, path: str) -> CommitMetadata:
    """What readers decode again and again, and the protocol layer does not."""
    return metadata.decode_commit(data, path=path)


REAL = Codec(
    metadata.encode_commit,
    _real_commit,
    plans.decode_rollback_plan,
    metadata.encode_compaction_plan,
    metadata.decode_compaction_plan,
    plans.decode_clean_plan,
)
FAST = Codec(encode_document, decode_commit, decode_document, encode_document, decode_document, decode_document)


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


class _Timeline:
    def __init__(self, timelines: _Timelines) -> None:
        self.of = timelines.of


@lru_cache(maxsize=100_000)
def _instant_at(path: str) -> Instant | None:
    return decode_instant(path.rpartition("/")[2])


@contextmanager
def remembered_listings() -> Iterator[Callable[[], None]]:
    """The protocol layer with timelines that are parsed once. Gives what is to be called between schedules."""
    known = _Timelines()
    with ExitStack() as stack:
        for module, name, value in (
            (active, "list_instants", known.list_instants),
            (active, "Timeline", _Timeline(known)),
            (section, "list_instants", known.list_instants),
            (section, "Timeline", _Timeline(known)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield known.forget


def _clustering_plan(data: bytes, **_: Any) -> ClusteringPlan:
    groups, is_removable = decode_document(data)
    slices = tuple([ClusteringSlice(group.partition, group.file_id, None) for group in sorted(groups)])
    extra = {plans_module.REMOVABLE: "true"} if is_removable else {}
    return ClusteringPlan((ClusteringGroup(slices),), extra_metadata=extra)


@contextmanager
def fast_codecs() -> Iterator[None]:
    """The protocol layer with cheap documents."""
    with ExitStack() as stack:
        for module, name, value in (
            (transactions, "encode_commit", encode_document),
            (documents, "decode_commit", decode_commit),
            (rollback, "decode_commit", decode_commit),
            (rollback, "encode_rollback", encode_document),
            (rollback, "encode_rollback_plan", encode_document),
            (rollback, "decode_rollback_plan", decode_document),
            (rollback, "decode_data_file_name", lambda name, **_: _data_file(name)),
            (pending, "decode_compaction_plan", decode_document),
            (pending, "decode_clustering_plan", _clustering_plan),
            (plans_module, "decode_compaction_plan", decode_document),
            (plans_module, "decode_clustering_plan", _clustering_plan),
            (maintenance, "encode_commit", encode_document),
            (maintenance, "encode_compaction_plan", encode_document),
            (maintenance, "decode_compaction_plan", decode_document),
            (maintenance, "encode_clean", encode_document),
            (maintenance, "encode_clean_plan", encode_document),
            (maintenance, "decode_clean_plan", decode_document),
            (maintenance, "decode_data_file_name", lambda name, **_: _data_file(name)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield
