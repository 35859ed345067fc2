"""Tagging the rows of a large write, lot by lot: a task sees all rows of its keys, and nobody those of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.engine.exchange import RowRange, Shelf, StagedFile
from lakebed.index.key_batches import ProbeCounts, default_cache
from lakebed.model.index import IndexWindow
from lakebed.model.words import RECORD_KEY
from lakebed.write.plan import Finder, inserts_by_partition, new_keys
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.tag.files import NO_TAGS, Ints, Tagged, rows_by_partition
from lakebed.write.tag.index import KeyIndex, tag_by_index
from lakebed.write.tag.window import tag_in_window
from lakebed.write.values import POSITION


@dataclass(frozen=True, slots=True)
class TaggedLot:
    """Where the rows of a lot are to be written.

    Labels of `rows` are the number of the slice that holds the key, or the partition of rows that are new; positions
    are a column of theirs. `partitions` are those of all rows that came in. `new_keys` are as those of a WritePlan.
    """

    rows: StagedFile
    partitions: tuple[str, ...]
    counts: ProbeCounts | None
    new_keys: StagedFile | None


@dataclass(frozen=True, slots=True)
class TagLot:
    """Combines the rows of a lot, finds their keys unless `find` is None, and stages them by where they are to go."""

    shelf: Shelf
    arrangement: Arrangement
    find: Finder | None

    def __call__(self, lot: tuple[RowRange, ...]) -> TaggedLot:
        """What is found; each call makes new files, and its result says which."""
        rows = pa.concat_tables(self.shelf.read(lot)).unify_dictionaries()
        rows = self.arrangement.combined(rows)
        tagged = self.find(rows) if self.find else Tagged(rows, NO_TAGS)
        inserts = inserts_by_partition(tagged.rows, tagged.tags)
        keys = None if tagged.counts is None else new_keys(tagged, inserts)
        return TaggedLot(
            self._stage(tagged, inserts),
            tuple(rows_by_partition(rows)),
            tagged.counts,
            self.shelf.put(keys, [RECORD_KEY], [0, keys.num_rows]) if keys is not None and keys.num_rows else None,
        )

    def _stage(self, tagged: Tagged, inserts: Mapping[str, Ints]) -> StagedFile:
        tags = tagged.tags
        order = np.argsort(tags.targets, kind="stable")
        targets, counts = np.unique(tags.targets, return_counts=True)
        numbers = np.concatenate([tags.rows[order], *inserts.values()])
        positions = np.full(len(numbers), -1, np.int64)
        positions[: len(order)] = tags.positions[order]
        rows = tagged.rows.combine_chunks().take(pa.array(numbers)).append_column(POSITION, pa.array(positions))
        starts = np.cumsum([0, *counts, *map(len, inserts.values())]).tolist()
        return self.shelf.put(rows, [*targets.tolist(), *inserts], starts)


def tag_in_worker(rows: pa.Table, index: KeyIndex, window: IndexWindow | None = None) -> Tagged:
    """Rows with the slices that hold their keys, found with the cache of the host that this runs on."""
    index = replace(index, cache=default_cache())
    return tag_by_index(rows, index) if window is None else tag_in_window(rows, index, window)
