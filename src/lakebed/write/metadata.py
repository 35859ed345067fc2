"""What a write adds to the metadata table, worked out in the commit section, from the table as it stands then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.engine.randomness import new_write_token
from lakebed.errors import CorruptTableError, WriteConflictError
from lakebed.format.timeline.metadata import encode_commit
from lakebed.index.change import MetadataChange, change_of_commit
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.index.kind import Update
from lakebed.index.kinds import kind_of
from lakebed.index.obliged import find_obliged
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.index.record.current_entries import next_extra
from lakebed.index.record.entries import KeyChanges
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.ordering import find_ordering
from lakebed.index.record.prepared_keys import PreparedKeys
from lakebed.index.record.stored_keys import KeyFiles
from lakebed.index.update import Ready, write_change
from lakebed.metadata import MetadataTable
from lakebed.metadata.files import note_added
from lakebed.model.commit import CommitMetadata, WriteStat, stats_by_partition
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.table import TableState
from lakebed.transaction.pending import foreign_writes
from lakebed.transaction.section import METADATA, Section, end_tickets
from lakebed.transaction.times import instant_ms, timeline_zone
from lakebed.view import latest_slices
from lakebed.view.listing import parse_data_files
from lakebed.write.values import WriteContext, WrittenFile


@dataclass(frozen=True, slots=True)
class CommitChanges:
    """The files of a write, and the file groups that it replaces, for every index that the table has.

    The keys of a large write are in `key_files`. With `compacts` the files take the place of whole file slices. With
    `keeps_current`, entries of the record index that were current are so afterwards. `tables` gets key tables of what
    is added to a record index; some of that may be `prepared`. A large write `knows_keys` if it
    found shards to sort them by.
    """

    state: TableState
    context: WriteContext
    written: Sequence[WrittenFile]
    replaced: frozenset[FileGroupId]
    replaced_keys: tuple[KeyChanges, ...] = ()
    key_files: KeyFiles | None = None
    compacts: bool = False
    keeps_current: bool = True
    tables: NewTables | None = None
    prepared: PreparedKeys | None = None
    knows_keys: bool = True

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata:
        """Writes log files into the metadata table; what its delta commit is to say."""
        state = self.state.at(section.config, section.timeline)
        if not isinstance(state.metadata, MetadataTable):
            raise CorruptTableError(state.metadata.reason, path=".hoodie/metadata")
        obliged = find_obliged(section, state.metadata)
        partitions = obliged.partitions
        self._check_prepared(partitions)
        self._check_columns(state)
        others = foreign_writes(section, instant)
        known = CurrentStats(state.metadata, lambda partition: self._current_files(state, partition))
        update = Update(
            instant=instant,
            instant_ms=instant_ms(instant, timeline_zone(section.config)),
            partitions=partitions,
            groups=obliged.groups,
            definitions=state.definitions,
            stats=known,
            groups_per_partition=self.context.partition_shards,
            others_write=bool(others),
            building=obliged.building,
        )
        change = change_of_commit(
            self.written,
            replaced=sorted({group.partition for group in self.replaced}),
            replaced_keys=self.replaced_keys,
            key_files=self.key_files,
            compacts=self.compacts,
        )
        ordering = find_ordering(state.definitions, section.config)
        is_kept = self.keeps_current and ordering == self.context.entry_ordering
        extra = next_extra(section, state.definitions.get("record_index"), kept=is_kept) | obliged.extra_metadata
        is_late = self._was_overtaken(state) or _has_later(section, instant) or any(t > instant for t in others)
        ahead = tuple(name for name in partitions if kind_of(name).newest_request_wins)
        if ahead and is_late:
            _write_ahead(section, change, replace(update, partitions=ahead), extra)
        ready = self.prepared.ready_for(change, update) if self.prepared is not None else None
        written = _write(section, change, update, extra, self.tables, ready)
        for stat in written.write_stats.get("files", ()):
            note_added(state.metadata, change.added, stat.path)
        if not others and not is_late and PARTITION_STATS not in obliged.building:
            known.remember(_names(written.write_stats.get(PARTITION_STATS, ())))
        return written

    def _check_prepared(self, partitions: Sequence[str]) -> None:
        """Raises for an index that was created since this write began, unless the write is fit for it.

        Statistics, filters and the keys that an overwrite hides are gathered only for a table that has the index. New
        keys are, but another write may have brought them, too: only an index in which they are looked up tells. Keys of
        a large write are kept only if there is an index to be told.
        """
        config = self.context.config
        known = (*config.metadata_partitions, *config.metadata_partitions_inflight)
        brings_keys = any(file.inserted_keys is not None and len(file.inserted_keys) for file in self.written)
        is_fit = not self.replaced and not brings_keys and self.key_files is None
        for partition in partitions:
            is_keys = partition == "record_index"
            if (partition not in known and not (is_keys and is_fit)) or (is_keys and not self.knows_keys):
                raise WriteConflictError(
                    f"the index {partition} was created while this write ran",
                    hint="run the write again: it will update the index",
                )

    def _check_columns(self, state: TableState) -> None:
        """Raises if statistics of more columns are kept than when this write began: its files would have none."""
        definition = state.definitions.get(COLUMN_STATS)
        if definition is None or COLUMN_STATS not in state.config.metadata_partitions:
            return
        if not set(definition.source_fields) <= set(self.context.stats_columns):
            raise WriteConflictError(
                "the columns of column_stats changed while this write ran",
                hint="run the write again: it will collect statistics of the new columns",
            )

    def _was_overtaken(self, state: TableState) -> bool:
        """Whether a write that was requested later has completed in one of the same partitions."""
        own = {file.stat.partition for file in self.written} | {group.partition for group in self.replaced}
        later = (i for i in state.timeline.commits() if i.requested_at > self.context.instant)
        return any(own & {*(found := state.documents.commit(i)).write_stats, *found.replaced_file_ids} for i in later)

    def _current_files(self, state: TableState, partition: str) -> Collection[str]:
        """Names of the files in the partition's latest slices once this write has completed."""
        own = {
            file.stat.path.rpartition("/")[2]: file.stat.file_size
            for file in self.written
            if file.stat.partition == partition
        }
        files = (*state.files.get(partition, ()), *parse_data_files(own, partition))
        snapshot, instant = state.latest, self.context.instant
        slices = latest_slices(
            {partition: files},
            lambda time: InstantTime("9" * 17) if time == instant else snapshot.completion_of(time),
            layout=state.config.timeline_layout,
            replaced=state.replaced(snapshot) | self.replaced,
        )
        return {path.rpartition("/")[2] for file_slice in slices for path in file_slice.paths}


def _names(stats: Iterable[WriteStat]) -> list[str]:
    return [stat.path.rpartition("/")[2] for stat in stats]


def _has_later(section: Section, instant: InstantTime) -> bool:
    """Whether the metadata table has statistics that a write added ahead of an instant of its own, after this one."""
    known = {i.requested_at for i in section.timeline}
    done = (i.requested_at for i in section.metadata_timeline.completed() if i.action is Action.DELTA_COMMIT)
    return any(time > instant and time not in known for time in done)


def _write(
    section: Section,
    change: MetadataChange,
    update: Update,
    extra: Mapping[str, str],
    tables: NewTables | None = None,
    ready: Ready | None = None,
) -> CommitMetadata:
    token, created_ms = new_write_token(0), section.ports.clock.now_ms()
    stats = write_change(section.files, change, update, token=token, created_ms=created_ms, beside=tables, ready=ready)
    return metadata_commit(stats, extra)


def _write_ahead(section: Section, change: MetadataChange, update: Update, extra: Mapping[str, str]) -> None:
    """Statistics of partitions in a delta commit of their own, which is newer than that of any other write.

    Readers take the statistics of the newest instant for the whole truth. A write that was overtaken by one that was
    requested later has an older instant: what it says there would not be seen, and its rows would be pruned away. So
    it is where another engine's later write is under way, which has worked its statistics out without this one. If
    the write does not complete, the statistics are a little too wide, which excludes nothing that is there.
    """
    instant = section.next_time()
    ticket = section.open_ticket(instant)
    for state in (State.REQUESTED, State.INFLIGHT):
        section.add(Instant(instant, Action.DELTA_COMMIT, state), root=METADATA)
    written = _write(section, change, replace(update, instant=instant), extra)
    done = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, section.next_time())
    outcome = section.complete(ticket, done, encode_commit(written, replace=False), METADATA)
    end_tickets(section.ports, instant, outcome)


def metadata_commit(stats: Sequence[WriteStat], extra: Mapping[str, str]) -> CommitMetadata:
    """The delta commit of the metadata table."""
    return CommitMetadata(
        write_stats=stats_by_partition(stats),
        operation="UPSERT_PREPPED",
        extra_metadata=extra,
    )
