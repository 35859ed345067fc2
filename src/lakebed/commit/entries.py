"""What a commit adds to the indexes, worked out in its section, from the table as it stands then.

An index that was planned or built since the write began is no reason to refuse it: the section is left, what the
entries need is read from the write's own files, and the section is entered again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.engines import map_bounded
from lakebed.errors import CorruptTableError, WriteConflictError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.timeline.metadata import encode_commit
from lakebed.index.change import MetadataChange
from lakebed.index.data_files import StoredFile
from lakebed.index.extra import next_extra
from lakebed.index.facts import FileFacts
from lakebed.index.key_batches import KeyChanges, NewTables, PreparedKeys
from lakebed.index.keys import find_ordering
from lakebed.index.kind import Update
from lakebed.index.kinds import kind_of
from lakebed.index.obliged import Obliged, find_obliged
from lakebed.index.update import CurrentStats, Ready, write_change
from lakebed.metadata import MetadataTable
from lakebed.metadata.files import note_added
from lakebed.metadata.shard_writes import SHARD_CODEC, ShardCodec
from lakebed.metadata.table import FILES
from lakebed.model.commit import CommitMetadata, WriteStat, stats_by_partition
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.table import TableState
from lakebed.transaction.pending import foreign_writes
from lakebed.transaction.section import METADATA, Section, end_tickets
from lakebed.transaction.times import instant_ms, timeline_zone
from lakebed.view import latest_slices
from lakebed.view.slices import parse_data_files


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was made for the section before it: log files of the record index, and `tables` of its new keys."""

    keys: PreparedKeys | None = None
    tables: NewTables | None = None


NOTHING_AHEAD = Ahead()


class CommitEntries:
    """The entries of a prepared commit, for every index that the table has when it is made.

    `state` is the table as the write saw it; `hidden_keys` reads the keys of the file groups that it replaces. `codec`
    makes the log files of the metadata table.
    """

    def __init__(
        self,
        state: TableState,
        prepared: PreparedCommit,
        ahead: Ahead = NOTHING_AHEAD,
        hidden_keys: Callable[[], tuple[KeyChanges, ...]] = tuple,
        codec: ShardCodec = SHARD_CODEC,
    ) -> None:
        self.seen, self._prepared, self._ahead, self._hidden_keys = state, prepared, ahead, hidden_keys
        self._codec = codec
        self._appeared: tuple[str, ...] = ()

    def is_ready(self, section: Section) -> bool:
        """Whether the facts are enough for the indexes that count now; raises if they can never be."""
        state, metadata = self._look(section)
        self._state, self._obliged = state, self.find_obliged(section, metadata)
        for partition in self._appeared:
            if metadata.has(partition):
                kind_of(partition).check_new(metadata, self._prepared.facts, self._prepared.replaced)
        obliged = self._obliged.partitions if self._prepared.changes_rows else ()
        self._missing = tuple(partition for partition in obliged if not self._is_expected(partition, state))
        if self._missing and self._prepared.is_staged:
            for partition in self._missing:
                if kind_of(partition).wants_keys:
                    raise WriteConflictError(
                        f"the index {partition} was created while this write ran",
                        hint="run the write again: it will keep the index up to date",
                    )
        return not self._missing

    def find_obliged(self, section: Section, metadata: MetadataTable) -> Obliged:
        """The partitions of the metadata table that it writes to."""
        return find_obliged(section, metadata)

    def get_ready(self) -> None:
        """Reads what entries for the missing indexes need, from the files of the write. Without the lock."""
        state, prepared, kinds = self._state, self._prepared, [kind_of(name) for name in self._missing]

        def completed(facts: FileFacts) -> FileFacts:
            file = decode_data_file_name(facts.stat.path.rpartition("/")[2], size=facts.stat.file_size)
            assert file is not None, facts.stat.path
            for kind in kinds:
                facts = kind.complete(facts, StoredFile(state.storage, facts.stat.partition, file), state.definitions)
            return facts

        facts = tuple(map_bounded(prepared.facts, completed))
        expected = prepared.expected.grown(self._missing, state.definitions)
        self._prepared = replace(prepared, facts=facts, expected=expected)
        if prepared.replaced and any(kind.wants_keys for kind in kinds):
            self._prepared = replace(self._prepared, hidden_keys=self._hidden_keys())
        self._appeared = (*self._appeared, *self._missing)

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata:
        """Writes log files into the metadata table; what its delta commit is to say."""
        state, obliged, prepared = self._state, self._obliged, self._prepared
        metadata = state.metadata
        assert isinstance(metadata, MetadataTable), "it was there when the section was entered"
        others = foreign_writes(section, instant) if prepared.changes_rows else ()
        known = CurrentStats(metadata, lambda partition: self._current_files(state, partition))
        update = Update(
            instant=instant,
            instant_ms=instant_ms(instant, timeline_zone(section.config)),
            partitions=obliged.partitions,
            groups=obliged.groups,
            definitions=state.definitions,
            stats=known,
            groups_per_partition=prepared.expected.partition_shards,
            others_write=bool(others),
            building=obliged.building,
        )
        change, extra = prepared.change, self._extra(section, obliged)
        ahead = tuple(name for name in obliged.partitions if kind_of(name).newest_request_wins)
        is_late = prepared.changes_rows and self._is_late(section, others)
        if ahead and is_late:
            self._write_ahead(section, change, replace(update, partitions=ahead), extra)
        ready = self._ahead.keys.ready_for(change, update) if self._ahead.keys is not None else None
        written = self._write(section, change, update, extra, beside=self._ahead.tables, ready=ready)
        for stat in written.write_stats.get(FILES, ()) if prepared.changes_rows else ():
            note_added(metadata, change.added, stat.path)
        if not others and not is_late and obliged.building.isdisjoint(ahead):
            known.remember(_names(stat for name in ahead for stat in written.write_stats.get(name, ())))
        return written

    def _write(
        self,
        section: Section,
        change: MetadataChange,
        update: Update,
        extra: Mapping[str, str],
        *,
        beside: NewTables | None = None,
        ready: Ready | None = None,
    ) -> CommitMetadata:
        stats = write_change(
            section.files,
            change,
            update,
            token=self._codec.new_token(0),
            created_ms=section.ports.clock.now_ms(),
            beside=beside,
            ready=ready,
            encode=self._codec.encode,
        )
        return metadata_commit(stats, extra)

    def _write_ahead(self, section: Section, change: MetadataChange, update: Update, extra: Mapping[str, str]) -> None:
        """Statistics of partitions in a delta commit of their own, which is newer than that of any other write.

        Readers take the statistics of the newest instant for the whole truth. A write that was overtaken by one that
        was requested later has an older instant: its statistics would not be seen, and its rows would be pruned away.
        The same happens while another engine's later write is in flight, which worked its statistics out without this
        one. If the write does not complete, the statistics are a little too wide, which excludes nothing that is there.
        """
        instant = section.next_time()
        ticket = section.open_ticket(instant)
        for state in (State.REQUESTED, State.INFLIGHT):
            section.add(Instant(instant, Action.DELTA_COMMIT, state), root=METADATA)
        written = self._write(section, change, replace(update, instant=instant), extra)
        done = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, section.next_time())
        outcome = section.complete(ticket, done, encode_commit(written, replace=False), METADATA)
        end_tickets(section.ports, instant, outcome)

    def _look(self, section: Section) -> tuple[TableState, MetadataTable]:
        state = self.seen.at(section.config, section.timeline, section.metadata_timeline)
        if not isinstance(state.metadata, MetadataTable):
            raise CorruptTableError(state.metadata.reason, path=".hoodie/metadata")
        return state, state.metadata

    def _is_expected(self, partition: str, state: TableState) -> bool:
        return kind_of(partition).is_expected(partition, self._prepared.expected, state.definitions)

    def _extra(self, section: Section, obliged: Obliged) -> dict[str, str]:
        """The extra metadata of the delta commit: whether entries are current, and which indexes it covers."""
        definitions, prepared = self._state.definitions, self._prepared
        ordering = find_ordering(definitions, section.config)
        is_same = not prepared.changes_rows or ordering == prepared.expected.ordering
        is_kept = prepared.keeps_current and is_same
        return next_extra(section, definitions, kept=is_kept) | obliged.extra_metadata

    def _is_late(self, section: Section, others: Collection[InstantTime]) -> bool:
        """Whether statistics of partitions would be hidden by those of a write that was requested later."""
        instant = self._prepared.instant
        is_overtaken = self._was_overtaken(self._state) or _has_later(section, instant)
        return is_overtaken or any(time > instant for time in others)

    def _was_overtaken(self, state: TableState) -> bool:
        """Whether a write that was requested later has completed in one of the same partitions."""
        own, instant = self._prepared.partitions, self._prepared.instant
        later = (i for i in state.timeline.commits() if i.requested_at > instant)
        return any(own & {*(found := state.documents.commit(i)).write_stats, *found.replaced_file_ids} for i in later)

    def _current_files(self, state: TableState, partition: str) -> Collection[str]:
        """Names of the files in the partition's latest slices once this commit has completed."""
        own = {
            file.stat.path.rpartition("/")[2]: file.stat.file_size
            for file in self._prepared.facts
            if file.stat.partition == partition
        }
        files = (*state.files.get(partition, ()), *parse_data_files(own, partition))
        snapshot, instant = state.latest, self._prepared.instant
        slices = latest_slices(
            {partition: files},
            lambda time: InstantTime("9" * 17) if time == instant else snapshot.completion_of(time),
            layout=state.config.timeline_layout,
            replaced=state.replaced(snapshot) | self._prepared.replaced,
        )
        return {path.rpartition("/")[2] for file_slice in slices for path in file_slice.paths}


def _names(stats: Iterable[WriteStat]) -> list[str]:
    return [stat.path.rpartition("/")[2] for stat in stats]


def _has_later(section: Section, instant: InstantTime) -> bool:
    """Whether the metadata table has statistics that a write added ahead of an instant of its own, after this one."""
    known = {i.requested_at for i in section.timeline}
    done = (i.requested_at for i in section.metadata_timeline.completed() if i.action is Action.DELTA_COMMIT)
    return any(time > instant and time not in known for time in done)


def metadata_commit(stats: Sequence[WriteStat], extra: Mapping[str, str]) -> CommitMetadata:
    """The delta commit of the metadata table."""
    return CommitMetadata(
        write_stats=stats_by_partition(stats),
        operation="UPSERT_PREPPED",
        extra_metadata=extra,
    )
