"""Marks in the extra metadata of delta commits: guarantees about an index that hold while every writer keeps them.

A delta commit that keeps a guarantee carries its mark if the delta commit before it did. One without the mark, such as
another engine's, ends the guarantee until the index is rebuilt.
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
    """Extra metadata of a delta commit that builds these indexes."""
    return {"schema": committed_schema(), **_marks(definitions)}


def next_extra(
    section: Section, definitions: Mapping[str, IndexDefinition], *, built: str | None = None, kept: bool = True
) -> dict[str, str]:
    """Extra metadata of a delta commit: the marks of the one before it, and all marks of an index that it has `built`.

    If the write did not keep the guarantees (`kept`), their marks are left out.
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
