"""Whether the ordering values in the record index are known to be those that the rows have now.

An entry's value is the one that the row had when the entry was written, so a lower bound. Where every update logs an
entry, too, it is the row's own value, but only as long as nobody writes who does not do so: another engine, or a writer
that began before the index was built. So each delta commit of the metadata table says that entries are current, if it
keeps them so and the one before it said it. One that is silent ends the chain, until the index is built anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.format.metadata.schema import committed_schema
from lakebed.metadata.table import ROOT, MetadataTable
from lakebed.model.index import WINDOW_KEPT, EntryOrdering, IndexDefinition
from lakebed.model.instant import Instant
from lakebed.model.words import Action
from lakebed.timeline import Documents
from lakebed.transaction.section import Section

_CURRENT: Mapping[str, str] = {"lakebed.entries.current": "true"}
"""What the extra metadata of a delta commit has that keeps entries current."""


def are_current(metadata: MetadataTable, ordering: EntryOrdering) -> bool:
    """Whether entries with a value have the value of their row, in the table as this look at it finds it."""
    newest = metadata.newest_delta_commit() if ordering.is_current else None
    return newest is not None and newest.extra_metadata.items() >= _CURRENT.items()


def first_extra(definition: IndexDefinition | None) -> dict[str, str]:
    """The extra metadata of the delta commit that builds the record index: its entries are current, and all there."""
    ordering = definition.ordering if definition is not None else None
    has_window = definition is not None and definition.window is not None
    return {
        "schema": committed_schema(),
        **(_CURRENT if ordering is not None and ordering.is_current else {}),
        **(WINDOW_KEPT if has_window else {}),
    }


def next_extra(section: Section, definition: IndexDefinition | None, *, kept: bool = True) -> dict[str, str]:
    """The extra metadata of any other delta commit: what was so stays so, entries current if it has `kept` them so."""
    extra = first_extra(definition)
    if len(extra) > 1:
        timeline = section.metadata_timeline
        done = [i for i in timeline.completed() if i.action is Action.DELTA_COMMIT]
        newest = max((i for i in done if i.requested_at not in timeline.log_compactions), key=_completion, default=None)
        said = _load_extra(section, newest) if newest is not None else {}
        gone = {*(extra.keys() - said.keys() - {"schema"}), *(() if kept else _CURRENT)}
        extra = {name: value for name, value in extra.items() if name not in gone}
    return extra


def _load_extra(section: Section, instant: Instant) -> Mapping[str, str]:
    return Documents(section.ports.storage, section.config, ROOT).commit(instant).extra_metadata


def _completion(instant: Instant) -> str:
    return instant.completed_at or ""
