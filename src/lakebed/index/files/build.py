"""Building and checking the list of files, from the folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.index.build import Source, pieces_source
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import listed_files
from lakebed.index.files.entries import file_entries
from lakebed.metadata.files import read_metadata_files
from lakebed.table import TableState


def files_source(state: TableState, file_ids: Sequence[str]) -> Source:
    """The list of partitions and the files of each, from one listing of the table."""
    return pieces_source([listed_files(state)], file_entries, file_ids)


def check_files(checked: Checked, tally: Tally) -> None:
    """The list of files and the folders, as far as files are of completed instants."""
    completion_of = checked.state.latest.completion_of
    indexed = {
        partition: {file.name: file.size or 0 for file in files if completion_of(file.instant) is not None}
        for partition, files in read_metadata_files(checked.metadata).items()
    }
    tally.compare(_sizes(indexed), _sizes(listed_files(checked.state)))


def _sizes(files: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    return {
        f"{partition}/{name}" if partition else name: f"{size} bytes"
        for partition, names in files.items()
        for name, size in names.items()
    }
