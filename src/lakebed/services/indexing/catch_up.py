"""Catching up with engines that do not keep an index up to date while lakebed builds it.

Every commit of lakebed that completes after the plan is on the timeline says which indexes it covers. Work is left for
commits without such a word. Their entries are made from their files and put into log files of their own instants: under
the instant of the build they would lie below entries of earlier commits, and lose to them for ever.

A write of another engine that was in flight before the index was marked as being built may not know of it, so the build
waits for it; not for a plan that nobody executes, nor for what is dead.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.errors import CorruptTableError, WriteConflictError
from lakebed.format.file_names import decode_data_file_name
from lakebed.index.change import MetadataChange, change_of_clean, change_of_commit
from lakebed.index.data_files import StoredFile, current_files
from lakebed.index.facts import FileFacts
from lakebed.index.foreign import GroupScans
from lakebed.index.kind import Update
from lakebed.index.kinds import kind_of
from lakebed.index.obliged import COVERS, PlannedShards, find_groups
from lakebed.index.update import CurrentStats, write_change
from lakebed.metadata import MetadataTable
from lakebed.metadata.table import ROOT
from lakebed.model.commit import CommitMetadata
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action
from lakebed.services.indexing.schedule import Begun, IndexWork
from lakebed.services.indexing.steps import fresh_state
from lakebed.table import TableState
from lakebed.timeline import Documents, Timeline, load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.plans import is_begun_elsewhere
from lakebed.transaction.rollback import targets_of_rollbacks
from lakebed.transaction.section import Section
from lakebed.transaction.times import instant_ms, timeline_zone

_SECONDS_BETWEEN_LOOKS = 0.5


class CatchUp:
    """The commits since a build was planned, and the entries of those that do not cover the index."""

    def __init__(self, work: IndexWork, begun: Begun) -> None:
        self._work, self._begun = work, begun
        self._partition, self._since = begun.request.partition, begun.attempt.instant
        self._covered: set[InstantTime] = set()
        self._changes: dict[InstantTime, MetadataChange] = {}
        self._missing: tuple[Instant, ...] = ()
        self._waits_for: tuple[InstantTime, ...] = ()
        self._began_ms = work.transactions.ports.clock.now_ms()

    def look(self) -> None:
        """Reads what is missing by now, without the lock: what is done then need not be done under it."""
        storage, table = self._work.transactions.ports.storage, self._work.table
        config = load_config(storage)
        self._state = table.afresh(config, load_timeline(storage, config))
        done = load_timeline(storage, config, ROOT)
        self._missing = tuple(self._find_missing(self._state, done))
        self.get_ready()

    def is_ready(self, section: Section) -> bool:
        """Whether nothing is missing that is not at hand, and nobody is waited for."""
        self._state = fresh_state(self._work.table, section)
        self._missing = tuple(self._find_missing(self._state, section.metadata_timeline))
        self._waits_for = tuple(self._find_unsettled(section))
        return not self._missing and not self._waits_for

    def get_ready(self) -> None:
        """Reads what is missing; waits, but not for ever. Without the lock."""
        for instant in self._missing:
            self._changes[instant.requested_at] = self._change_of(instant)
        if not self._waits_for:
            return
        clock, limit = self._work.transactions.ports.clock, self._work.options.check_seconds
        if clock.now_ms() - self._began_ms > limit * 1000:
            raise WriteConflictError(
                f"{min(self._waits_for)} of another engine was in flight before {self._partition} was built, and "
                f"still is after {limit} s",
                hint="create the index again when it has ended, or let it wait longer: "
                "hoodie.metadata.index.check.timeout.seconds",
            )
        clock.sleep(_SECONDS_BETWEEN_LOOKS)

    def write(self, section: Section) -> None:
        """Stores the entries of commits that do not cover the index, in log files of their instants."""
        for instant in sorted(self._changes):
            self._write(section, instant, self._changes[instant])

    def _write(self, section: Section, instant: InstantTime, change: MetadataChange) -> None:
        state, partition, metadata = self._state, self._partition, self._state.metadata
        assert isinstance(metadata, MetadataTable), "indexes are built in the metadata table"
        groups = find_groups(section.ports.storage, partition, (), self._planned_shards())
        if groups is None:
            raise CorruptTableError("a shard is missing", path=f"{ROOT}{partition}", hint="create the index again")
        section.ports.at("index.D9")
        write_change(
            section.files,
            change,
            Update(
                instant=instant,
                instant_ms=instant_ms(instant, timeline_zone(section.config)),
                partitions=(partition,),
                groups={partition: groups},
                definitions=state.definitions,
                stats=CurrentStats(metadata, lambda name: current_files(state).get(name, ())),
                building=frozenset((partition,)),
            ),
            token=self._work.codec.new_token(0),
            created_ms=section.ports.clock.now_ms(),
            encode=self._work.codec.encode,
        )

    def _planned_shards(self) -> PlannedShards:
        count = self._begun.plan.shards_of(self._partition)
        assert count is not None
        return PlannedShards(count, self._begun.build)

    def _find_missing(self, state: TableState, metadata_timeline: Timeline) -> Iterator[Instant]:
        """Commits since the plan that do not cover the index, and whose entries are not at hand."""
        documents = Documents(state.storage, state.config, ROOT)
        done = {i.requested_at: i for i in metadata_timeline.completed() if i.action is Action.DELTA_COMMIT}
        for instant in state.timeline.completed():
            is_change = instant.action.changes_data or instant.action is Action.CLEAN
            if not is_change or (instant.completed_at or "") < self._since or instant.requested_at in self._covered:
                continue
            delta = done.get(instant.requested_at)
            if delta is not None and covers(documents.commit(delta), self._partition):
                self._covered.add(instant.requested_at)
            elif instant.requested_at not in self._changes:
                yield instant

    def _find_unsettled(self, section: Section) -> Iterator[InstantTime]:
        """Live writes and cleans of other engines that were begun before the build, and are not about to be undone."""
        pending = {i.requested_at for i in section.timeline.pending()} - targets_of_rollbacks(section)
        return (instant for instant in sorted(self._begun.flight.others & pending) if self._is_alive(section, instant))

    def _is_alive(self, section: Section, instant: InstantTime) -> bool:
        pending = next(i for i in section.timeline.pending() if i.requested_at == instant)
        return section.heartbeats.get(instant, False) or is_begun_elsewhere(section, pending)

    def _change_of(self, instant: Instant) -> MetadataChange:
        """What a commit of another engine means for the index, from its files."""
        if instant.action is Action.CLEAN:
            return change_of_clean(self._state.documents.clean(instant))
        commit = self._state.documents.commit(instant)
        scans = GroupScans(self._state, self._work.scan, instant)
        facts = tuple(self._facts_of(commit, scans))
        replaced = [FileGroupId(name, id_) for name, ids in commit.replaced_file_ids.items() for id_ in ids]
        return change_of_commit(
            facts,
            replaced=sorted({group.partition for group in replaced}),
            replaced_keys=kind_of(self._partition).find_hidden_keys(replaced, scans),
            compacts=instant.action is Action.COMMIT and commit.compacted,
        )

    def _facts_of(self, commit: CommitMetadata, scans: GroupScans) -> Iterator[FileFacts]:
        kind, definitions = kind_of(self._partition), self._state.definitions
        for stat in commit.stats:
            file = decode_data_file_name(stat.path.rpartition("/")[2], size=stat.file_size)
            if file is not None:
                stored = StoredFile(self._state.storage, stat.partition, file)
                yield kind.complete_foreign(FileFacts(stat), stored, definitions, scans)


def covers(delta: CommitMetadata, partition: str) -> bool:
    """Whether a delta commit of the metadata table has the entries of its write for a partition that is being built."""
    return partition in delta.extra_metadata.get(COVERS, "").split(",") or partition in delta.write_stats
