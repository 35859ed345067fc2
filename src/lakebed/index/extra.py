"""Extra metadata of delta commits of the metadata table: what they say of indexes, as long as everyone keeps to it.

Some things are true of an index only while every writer sees to them. A delta commit that does so says it, with a mark
of the index's kind, if the one before it said it, too. One that is silent ends the chain, until the index is rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.format.metadata.datum import committed_schema
from lakebed.index.kinds import kind_of
from lakebed.metadata.table import ROOT
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import Instant
from lakebed.model.words import Action
from lakebed.timeline import Documents
from lakebed.transaction.section import Section


def first_extra(definitions: Mapping[str, IndexDefinition]) -> dict[str, str]:
    """The extra metadata of a delta commit that builds these indexes."""
    return {"schema": committed_schema(), **_marks(definitions)}


def next_extra(
    section: Section, definitions: Mapping[str, IndexDefinition], *, built: str | None = None, kept: bool = True
) -> dict[str, str]:
    """The extra metadata of a delta commit: what was said stays so, and all is so of an index that it has `built`.

    Unless what a write should have kept was `kept`, it does not say so.
    """
    new = {name: definition for name, definition in definitions.items() if name == built}
    old = {name: definition for name, definition in definitions.items() if name != built}
    marks = _marks(old, kept=kept)
    if marks:
        said = _said_last(section)
        marks = {name: value for name, value in marks.items() if name in said}
    return {**first_extra(new), **marks}


def _marks(definitions: Mapping[str, IndexDefinition], *, kept: bool = True) -> dict[str, str]:
    marks = (kind_of(name).marks(definition, kept=kept) for name, definition in definitions.items())
    return {name: value for each in marks for name, value in each.items()}


def _said_last(section: Section) -> Mapping[str, str]:
    """The extra metadata of the latest delta commit, ignoring log compactions."""
    timeline = section.metadata_timeline
    done = [i for i in timeline.completed() if i.action is Action.DELTA_COMMIT]
    newest = max((i for i in done if i.requested_at not in timeline.log_compactions), key=_completion, default=None)
    if newest is None:
        return {}
    return Documents(section.ports.storage, section.config, ROOT).commit(newest).extra_metadata


def _completion(instant: Instant) -> str:
    return instant.completed_at or ""
