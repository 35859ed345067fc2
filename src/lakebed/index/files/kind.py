"""The kind `files`: every metadata table has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from lakebed.index.build import Build, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.files.build import check_files, files_source
from lakebed.index.files.entries import file_entries, no_files
from lakebed.index.files.merge import MergeFiles
from lakebed.index.kind import Expected, IndexKind, Update
from lakebed.metadata.entries import Entries
from lakebed.model.index import IndexDefinition


class Files(IndexKind):
    """The list of partitions and data files."""

    partition = "files"
    is_default = True
    switches: ClassVar[Mapping[str, str]] = {"hoodie.metadata.enable": "files"}
    words = ("files",)
    has_few = True
    merge = MergeFiles()

    def is_expected(self, partition: str, expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Always: names and sizes are in write stats."""
        del partition, expected, definitions
        return True

    def first_entries(self, file_ids: Sequence[str]) -> Iterable[tuple[str, Entries]]:
        """A list of no partitions."""
        return ((file_ids[0], no_files()),)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Files and partitions that came and went."""
        del partition, update
        return file_entries(change.added, change.deleted, change.removed_partitions)

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """One listing of the table."""
        return files_source(build.state, file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """The list of files and the folders."""
        check_files(checked, tally)


FILES = Files()
