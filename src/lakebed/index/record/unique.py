"""Whether keys that a write brings are unique: for a write that began before the index was there to ask."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakebed.errors import WriteConflictError
from lakebed.index.facts import FileFacts
from lakebed.index.record.probe import find_locations, is_partitioned
from lakebed.metadata import MetadataTable
from lakebed.model.files import FileGroupId


def check_unique(metadata: MetadataTable, facts: Sequence[FileFacts], replaced: Collection[FileGroupId]) -> None:
    """Raises if a key that is new to its file group lives in another one, which the write does not take it from."""
    gone = {key for file in facts if file.deleted_keys is not None for key in file.deleted_keys.to_pylist()}
    homes = {
        key: FileGroupId(file.stat.partition, file.stat.file_id)
        for file in facts
        if file.inserted_keys is not None
        for key in file.inserted_keys.to_pylist()
        if key not in gone
    }
    per_partition = is_partitioned(metadata)
    for key, places in find_locations(metadata, homes).items():
        for place in places:
            found, home = FileGroupId(place.partition, place.file_id), homes[key]
            is_rival = not per_partition or found.partition == home.partition
            if is_rival and found != home and found not in replaced:
                raise WriteConflictError(
                    f"another write inserted the same keys meanwhile, {key!r} among them",
                    hint="run the write again: it will update them",
                )
