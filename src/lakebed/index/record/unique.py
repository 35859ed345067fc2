"""Whether keys that a write brings are unique: for a write that began before the index was there to ask."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakebed.errors import WriteConflictError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.index.facts import FileFacts
from lakebed.index.record.entries import key_texts
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import concat_texts
from lakebed.model.files import FileGroupId


def check_unique(metadata: MetadataTable, facts: Sequence[FileFacts], replaced: Collection[FileGroupId]) -> None:
    """Raises if a key that is new to its file group lives in another one, which the write does not take it from."""
    gone = concat_texts([key_texts(file.deleted_keys) for file in facts])
    for file in facts:
        came = key_texts(file.inserted_keys)
        new = came.filter(pc.invert(pc.is_in(came, gone.cast(came.type))))
        home = FileGroupId(file.stat.partition, file.stat.file_id)
        rivals = {*_places(metadata, new, file.stat.partition)} - {home, *replaced}
        if rivals:
            raise WriteConflictError(
                f"another write inserted keys of this one meanwhile, into {min(map(str, rivals))}",
                hint="run the write again: it will update them",
            )


def _places(metadata: MetadataTable, keys: ArrowArray, partition: str) -> Iterator[FileGroupId]:
    """The file groups that have some of the keys of a data partition."""
    # Imported here: reads load this module, and do not need what locates many keys.
    from lakebed.index.record.key_locations import locate_keys
    from lakebed.index.record.shard_cache import default_cache

    if len(keys):
        found = locate_keys(metadata, keys, pa.repeat(partition, len(keys)).dictionary_encode(), cache=default_cache())
        yield from (found.places[code] for code in np.unique(found.codes[found.codes >= 0]))
