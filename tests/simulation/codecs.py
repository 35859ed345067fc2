"""Codecs that are cheap: what protocol code encodes and decodes most of the time in a simulation.

Avro costs more than all the rest of a schedule. Nine schedules of ten therefore keep documents as pickles, which are as
reversible, and remember what listings and names decode to. One of ten runs the real codecs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest import mock

import lakebed.timeline.active as active
import lakebed.timeline.config as config_module
import lakebed.timeline.documents as documents
import lakebed.transaction.pending as pending
import lakebed.transaction.rollback as rollback
import lakebed.transaction.section as section
import lakebed.transaction.transactions as transactions
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.properties import decode_properties
from lakebed.format.timeline import metadata, plans
from lakebed.format.timeline.instant_names import decode_instant_name
from lakebed.model.commit import CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.timeline.timeline import Timeline

TIMELINE = ".hoodie/timeline"

_decode = lru_cache(maxsize=20_000)(pickle.loads)
_properties = lru_cache(maxsize=100)(lambda data, path: decode_properties(data, path=path))


def encode_document(document: Any, **_: Any) -> bytes:
    """A document as bytes."""
    return pickle.dumps(document, protocol=5)


def decode_document(data: bytes, **_: Any) -> Any:
    """The document that was encoded."""
    return _decode(data)


def decode_commit(data: bytes, **_: Any) -> Any:
    """The commit that was encoded; an empty file says nothing."""
    return _decode(data) if data else CommitMetadata()


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


REAL = Codec(
    metadata.encode_commit, metadata.decode_commit, plans.decode_rollback_plan, metadata.encode_compaction_plan
)
FAST = Codec(encode_document, decode_commit, decode_document, encode_document)


class _Timelines:
    """Timelines of listings: a listing that is the same object has the same instants."""

    def __init__(self) -> None:
        self._instants: dict[int, tuple[Any, Any]] = {}
        self._timelines: dict[int, tuple[Any, Any]] = {}

    def forget(self) -> None:
        self._instants.clear()
        self._timelines.clear()

    def list_instants(self, storage: Any, config: TableConfig, root: str = "") -> Any:
        del config
        listing = storage.list(f"{root}{TIMELINE}")
        known = self._instants.get(id(listing))
        if known is None:
            found = (decode_instant(listed.path.rpartition("/")[2]) for listed in listing)
            known = self._instants[id(listing)] = (listing, tuple(i for i in found if i is not None))
        return known[1]

    def of(self, instants: Any) -> Timeline:
        if not isinstance(instants, tuple | frozenset):
            return Timeline.of(instants)
        known = self._timelines.get(id(instants))
        if known is None:
            known = self._timelines[id(instants)] = (instants, Timeline.of(instants))
        return known[1]


class _Timeline:
    def __init__(self, timelines: _Timelines) -> None:
        self.of = timelines.of


@lru_cache(maxsize=100)
def _table_config(items: tuple[tuple[str, str], ...], path: str) -> TableConfig:
    return TableConfig(dict(items), path)


@contextmanager
def fast_codecs() -> Iterator[Callable[[], None]]:
    """The protocol layer with cheap codecs. Gives what is to be called between schedules, to free memory."""
    known = _Timelines()
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
            (config_module, "decode_properties", lambda data, path: _properties(data, path)),
            (config_module, "check_table_checksum", lambda properties, path: None),
            (config_module, "TableConfig", lambda properties, path: _table_config(tuple(properties.items()), path)),
            (active, "list_instants", known.list_instants),
            (section, "list_instants", known.list_instants),
            (section, "Timeline", _Timeline(known)),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield known.forget
