"""Plans to build indexes that are pending on the timeline, ours and those of other engines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.format.timeline.metadata import decode_index_plan
from lakebed.model.commit import IndexPlan
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.timeline import Timeline
from lakebed.transaction.section import Section, instant_path

_LOG = logging.getLogger(__name__)
SHARDS, BUILD, ON_DUPLICATE = "lakebed.shards", "lakebed.build", "lakebed.on_duplicate"
"""In the extra metadata of a planned partition: how many shards it is to have, the MDT instant that builds it, and what
to do if a key occurs more than once."""


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """A pending indexing instant and what it is to build."""

    instant: Instant
    plan: IndexPlan

    @property
    def partitions(self) -> tuple[str, ...]:
        """The metadata-table partitions that it is to build."""
        return tuple(each.partition for each in self.plan.partitions)

    @property
    def is_own(self) -> bool:
        """Whether lakebed made the plan: it then says which delta commits build its partitions."""
        return bool(self.plan.partitions) and all(map(self.build_of, self.partitions))

    def build_of(self, partition: str) -> InstantTime | None:
        """The delta commit of the metadata table that builds a partition; None if the plan does not say."""
        said = self._extra(partition).get(BUILD)
        return InstantTime(said) if said else None

    def shards_of(self, partition: str) -> int | None:
        """How many shards it makes of a partition; None if the plan does not name it or does not say."""
        said = self._extra(partition).get(SHARDS, "")
        return int(said) if said.isdecimal() else None

    def on_duplicate_of(self, partition: str) -> str:
        """What to do if a key occurs more than once, as whoever made the plan asked for it."""
        return self._extra(partition).get(ON_DUPLICATE, "fail")

    def owns(self, build: str) -> bool:
        """Whether this plan may own a delta commit of the metadata table that has no write on the table's timeline.

        A plan of another engine does not name its delta commit: any may be its own while the plan is in flight. The
        age of the plan proves nothing: a large index takes hours, and its engine writes no heartbeats.
        """
        said = {self._extra(each.partition).get(BUILD) for each in self.plan.partitions} or {None}
        return build in said or (None in said and self.instant.state is State.INFLIGHT)

    def _extra(self, partition: str) -> Mapping[str, str]:
        return next((each.extra_metadata for each in self.plan.partitions if each.partition == partition), {})


def pending_plans(storage: Storage, config: TableConfig, timeline: Timeline) -> Iterator[PendingPlan]:
    """The pending index plans. An unreadable one obliges no writer, and is assumed to own whatever is being built."""
    for instant in timeline.pending():
        if instant.action is Action.INDEXING:
            path = instant_path(config, Instant(instant.requested_at, Action.INDEXING, State.REQUESTED))
            data = storage.find(path)
            if data is not None:
                yield PendingPlan(instant, _decode(data, path))


def plans_of(section: Section) -> Iterator[PendingPlan]:
    """The pending index plans that a section sees."""
    return pending_plans(section.ports.storage, section.config, section.timeline)


def _decode(data: bytes, path: str) -> IndexPlan:
    try:
        return decode_index_plan(data, path=path)
    except CorruptTableError as error:
        _LOG.warning("an index plan cannot be read: %s", error)
        return IndexPlan()
