"""Tables that Apache Hudi wrote, cleaned, archived and set back by lakebed: the rows stay the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import UnsupportedTableError
from lakebed.model.words import Action
from lakebed.services.archive import ArchiveLimits, archive_timeline
from lakebed.services.clean.plan import CleanPolicy, Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.restore import restore
from lakebed.services.savepoint import savepoint
from rows import same_rows, spark_rows

from .serviced_tables import context_of

TABLES = (
    "hudi120_cow_part_clean_archive",
    "hudi111_cow_nonpart_archive_lsm_levels",
    "hudi111_cow_part_replace",
    "hudi111_cow_nonpart_clustered",
    "hudi120_mor_part_compacted",
    "hudi111_mor_nonpart_rollback_savepoint_restore",
    "hudi111_cow_part_rli_fg4",
    "hudi111_cow_part_no_mdt",
    "hudi111_mor_part_cdc",
)
VERSIONS = Retention(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions=1)


@pytest.mark.parametrize("name", TABLES)
def test_they_are_cleaned_and_archived(unpack, tmp_path: Path, name: str) -> None:
    real = unpack(name)
    path = Path(shutil.copytree(real.path, tmp_path / "t"))
    for retention in (Retention(commits=1), VERSIONS):
        table = lakebed.open_table(path)
        instant = schedule_clean(context_of(table), retention)
        if instant is not None:
            execute_clean(context_of(table), instant)
        archive_timeline(context_of(table), ArchiveLimits(min_commits=1, max_commits=2), retention)
        for options in ({}, {"hoodie.metadata.enable": "false"}):
            again = lakebed.open_table(path, options=options)
            assert same_rows(spark_rows(again.to_arrow()), real.rows)
    state = lakebed.open_table(path)._handle.state()
    names = {file.name for files in state.files.values() for file in files}
    versions = [base for base in names if base.endswith(".parquet")]
    groups = {file_slice.group.file_id for file_slice in state.latest_slices}
    saved = any(i.action is Action.SAVEPOINT for i in state.timeline)
    assert saved or len(versions) <= len(groups), "one version of each group is left"


def test_one_is_set_back_to_a_savepoint(unpack, tmp_path: Path) -> None:
    path = Path(shutil.copytree(unpack("hudi120_mor_part_compacted").path, tmp_path / "t"))
    table = lakebed.open_table(path)
    first = table.timeline.commits()[0].requested_at
    before = spark_rows(table.to_arrow(as_of=first))
    savepoint(context_of(table), first)
    done = restore(context_of(table), first)
    assert done.counts["instants"] > 0
    again = lakebed.open_table(path)
    assert same_rows(spark_rows(again.to_arrow()), before)
    assert [i.requested_at for i in again.timeline.commits()] == [first]


def test_older_versions_are_refused(unpack, tmp_path: Path) -> None:
    path = Path(shutil.copytree(unpack("hudi015_cow_part_clean_archive").path, tmp_path / "t"))
    context = context_of(lakebed.open_table(path))
    for call in (lambda: schedule_clean(context), lambda: archive_timeline(context), lambda: savepoint(context)):
        with pytest.raises(UnsupportedTableError, match="version 6"):
            call()
