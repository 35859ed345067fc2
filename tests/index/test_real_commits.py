"""For every commit and clean of the real tables: the entries we would write are those that Apache Hudi wrote."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from conftest import REAL_TABLES, catalogue
from lakebed.index.change import MetadataChange
from lakebed.index.kind import Update
from lakebed.index.obliged import list_groups
from lakebed.index.partition_stats.current import PartitionStats
from lakebed.index.partition_stats.entries import widened_stats
from lakebed.index.update import plan_change
from lakebed.model.commit import WriteStat
from lakebed.model.instant import Instant
from lakebed.model.metadata import ColumnStats
from lakebed.model.words import Action
from metadata_commits import Logged, RealCommits, planned

_PARTITIONS = {entry["zip"].removesuffix(".zip"): entry["metadata_partitions"] for entry in catalogue()}
TABLES = [name for name in REAL_TABLES if name.startswith(("hudi111", "hudi120")) and "files" in _PARTITIONS[name]]
OURS = ("files", "column_stats", "bloom_filters", "record_index", "partition_stats")


class FromFiles:
    """Statistics that are found out from data files; of partitions there are none before."""

    def __init__(self, commits: RealCommits, instant: Instant) -> None:
        self._commits, self._instant = commits, instant

    def current_files(self, partition: str) -> Collection[str]:
        # Hudi counts the file groups that an overwrite hides among those that are current after it; where nothing is
        # written, it knows better.
        overwrites = bool(self._commits.commit(self._instant).write_stats)
        return self._commits.current_files(self._instant, partition, with_replaced=overwrites)

    def of_partition(self, partition: str, columns: Sequence[str]) -> Sequence[ColumnStats]:
        return ()

    def of_files(self, partition: str, names: Collection[str], columns: Sequence[str]) -> Sequence[ColumnStats]:
        paths = (f"{partition}/{name}" if partition else name for name in names)
        return [each for path in paths for each in self._commits.file(WriteStat("", path, partition)).column_stats]

    def learn(self, stats: PartitionStats, columns: Sequence[str]) -> None:
        pass


@pytest.mark.parametrize("name", TABLES)
def test_entries_are_those_of_hudi(unpack, name: str) -> None:
    commits = RealCommits(unpack(name))
    partitions = [partition for partition in OURS if partition in commits.metadata.ready]
    groups = list_groups(commits.state.storage, partitions)
    checked = 0
    for instant in commits.instants():
        change = commits.change(instant)
        if change is None or not commits.logged(instant, "files"):
            continue
        update = Update(
            instant.requested_at,
            commits.instant_ms(instant),
            partitions,
            groups,
            commits.state.definitions,
            FromFiles(commits, instant),
        )
        # As Hudi does: the statistics of partitions are always those of all current files.
        writes = plan_change(replace(change, rewritten=change.rewritten.union(change.added)), update)
        for partition in partitions:
            theirs = commits.logged(instant, partition)
            ours = planned(writes, partition)
            if instant.action is Action.REPLACE_COMMIT:
                ours, theirs = comparable(ours, theirs), comparable(theirs, theirs)
            assert ours == theirs, (instant, partition)
        checked += 1
    assert checked


def comparable(logged: dict[str, Logged], theirs: dict[str, Logged]) -> dict[str, Logged]:
    """Entries of a replace commit without those that only one of us writes.

    Hudi logs a list of no partitions where nothing is written. It leaves the statistics of partitions that an overwrite
    of the whole table emptied, where we delete them or take them anew.
    """
    found = {}
    for file_id, each in logged.items():
        known = theirs.get(file_id, Logged({}))
        extra = each.records.keys() - known.records.keys() if file_id.startswith("partition-stats") else set()
        records = {key: value for key, value in each.records.items() if value != {} and key not in extra}
        deletes = each.deletes if known.deletes else frozenset()
        if records or deletes:
            found[file_id] = Logged(records, deletes)
    return found


@pytest.mark.parametrize("name", [name for name in TABLES if "partition_stats" in _PARTITIONS[name]])
def test_widened_partition_stats_are_those_of_hudi(unpack, name: str) -> None:
    """Where a commit only adds files, what Hudi said before and the new files give what it says next."""
    commits = RealCommits(unpack(name))
    known: dict[str, dict[str, ColumnStats]] = {}
    for instant in commits.instants():
        logged = commits.logged(instant, "partition_stats").get("partition-stats-0000-0", Logged({}))
        change = commits.change(instant) or MetadataChange()
        found: dict[str, dict[str, ColumnStats]] = {}
        for stats in logged.records.values():
            assert isinstance(stats, ColumnStats)
            found.setdefault(stats.file_name, {})[stats.column] = stats
        for partition, theirs in found.items():
            added = change.column_stats.get(partition, ())
            if added and partition in known and partition not in change.rewritten:
                ours = widened_stats(partition, known[partition].values(), added)
                assert {each.column: each for each in ours} == theirs
            known[partition] = theirs
        for partition in change.rewritten - found.keys():
            known.pop(partition, None)


@pytest.mark.parametrize("name", TABLES)
def test_files_that_supersede_others_are_known(unpack, name: str) -> None:
    """A partition is rewritten exactly if the commit left a file of it out of the latest slices."""
    commits = RealCommits(unpack(name))
    before: dict[str, frozenset[str]] = {}
    for instant in (i for i in commits.instants() if i.action is not Action.CLEAN):
        change = commits.change(instant)
        listed = commits.state.files.keys() | before.keys()
        after = {p: commits.current_files(instant, p, with_replaced=False) for p in listed}
        if change is not None:
            lost = {p for p in before if before[p] - after[p]}
            assert lost <= change.rewritten, instant
        before = after
