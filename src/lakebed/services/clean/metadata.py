"""What a clean or restore takes out of the metadata table, worked out in the section in which it completes."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.commit.entries import metadata_commit
from lakebed.engine.randomness import new_write_token
from lakebed.errors import CorruptTableError
from lakebed.index.change import MetadataChange
from lakebed.index.extra import next_extra
from lakebed.index.kind import Update
from lakebed.index.obliged import find_obliged
from lakebed.index.update import CurrentStats, write_change
from lakebed.metadata import MetadataTable
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import InstantTime
from lakebed.table import TableHandle
from lakebed.transaction.section import Section
from lakebed.transaction.times import instant_ms, timeline_zone


@dataclass(frozen=True, slots=True)
class FilesGone:
    """Files and partitions that are no more, for every index that the table has."""

    handle: TableHandle
    change: MetadataChange

    def is_ready(self, section: Section) -> bool:
        """Names are all that it has."""
        del section
        return True

    def get_ready(self) -> None:
        """Nothing is missing."""

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata:
        """Writes log files into the metadata table; what its delta commit is to say."""
        state = self.handle.state().at(section.config, section.timeline)
        if not isinstance(state.metadata, MetadataTable):
            raise CorruptTableError(state.metadata.reason, path=".hoodie/metadata")
        obliged = find_obliged(section, state.metadata)
        update = Update(
            instant=instant,
            instant_ms=instant_ms(instant, timeline_zone(section.config)),
            partitions=obliged.partitions,
            groups=obliged.groups,
            definitions=state.definitions,
            stats=CurrentStats(state.metadata, _no_current_files),
            building=obliged.building,
        )
        created_ms = section.ports.clock.now_ms()
        stats = write_change(section.files, self.change, update, token=new_write_token(0), created_ms=created_ms)
        extra = next_extra(section, state.definitions) | obliged.extra_metadata
        return metadata_commit(stats, extra)


def _no_current_files(partition: str) -> tuple[str, ...]:
    raise AssertionError(f"statistics of {partition} are not made anew when files go")
