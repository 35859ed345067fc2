"""A commit that is ready to be made: every file is stored, nothing is visible yet.

    begin → plan → execute → PreparedCommit → commit(prepared)

It is a frozen value, the same for writes, compactions, clusterings, cleans and restores. `commit/stored.py` turns that
of a write into bytes, so that another process can commit it if its own process died (`write/recommit.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.exchange import Shelf, StagedFile
from lakebed.format.timeline.metadata import encode_clean, encode_commit
from lakebed.format.timeline.plans import encode_restore
from lakebed.index.change import MetadataChange, change_of_clean, change_of_commit
from lakebed.index.facts import FileFacts
from lakebed.index.key_batches import KeyChanges, KeyFiles
from lakebed.index.kind import Expected
from lakebed.model.commit import CleanMetadata, CommitMetadata, RestoreMetadata
from lakebed.model.files import FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.transaction.conflicts import WriteSet


@dataclass(frozen=True, slots=True)
class StagedKeys:
    """Record keys and partition paths of a large write, in files."""

    shelf: Shelf
    files: tuple[StagedFile, ...]


NewKeys = Callable[[], pa.Table] | StagedKeys
"""Record keys and partition paths of rows that the key index did not know."""


_NOTHING_EXPECTED = Expected()


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """All that a commit section needs of a write or table service.

    `seen` are the writes in the snapshot that it was planned on, and `columns` the data columns of the table there;
    `expected` are the indexes that its facts are enough for. `new_keys` is None if no index was asked for keys.
    The keys of a large write are in `key_files`; one that did not keep them for want of an index does not `know_keys`.
    `hidden_keys` are those of the `replaced` file groups. With `compacts` the files take the place of whole file
    slices. With `keeps_current`, entries of the record index that were current are so afterwards.

    What changes no rows, a clean or a restore, conflicts with no write: it has no write set.
    """

    instant: InstantTime
    action: Action
    metadata: CommitMetadata | CleanMetadata | RestoreMetadata
    writes: WriteSet | None = None
    seen: frozenset[InstantTime] = frozenset()
    expected: Expected = _NOTHING_EXPECTED
    facts: tuple[FileFacts, ...] = ()
    columns: pa.Schema | None = None
    replaced: frozenset[FileGroupId] = frozenset()
    hidden_keys: tuple[KeyChanges, ...] = ()
    key_files: KeyFiles | None = None
    new_keys: NewKeys | None = None
    knows_keys: bool = True
    compacts: bool = False
    keeps_current: bool = True

    @property
    def document(self) -> bytes:
        """The content of the completed file on the timeline."""
        match self.metadata:
            case CleanMetadata():
                return encode_clean(self.metadata)
            case RestoreMetadata():
                return encode_restore(self.metadata)
            case _:
                is_replace = self.action.when_completed is Action.REPLACE_COMMIT
                return encode_commit(self.metadata, replace=is_replace)

    @property
    def of_rows(self) -> tuple[CommitMetadata, WriteSet]:
        """The metadata and the write set of a commit that changes rows."""
        assert isinstance(self.metadata, CommitMetadata), self.action
        assert self.writes is not None, self.action
        return self.metadata, self.writes

    @property
    def change(self) -> MetadataChange:
        """What the commit means for the metadata table."""
        if isinstance(self.metadata, CleanMetadata):
            return change_of_clean(self.metadata)
        return change_of_commit(
            self.facts,
            replaced=sorted({group.partition for group in self.replaced}),
            replaced_keys=self.hidden_keys,
            key_files=self.key_files,
            compacts=self.compacts,
        )

    @property
    def changes_rows(self) -> bool:
        """Whether it adds files, or hides file groups."""
        return bool(self.facts or self.replaced)

    @property
    def partitions(self) -> set[str]:
        """The data partitions that it changes."""
        return {file.stat.partition for file in self.facts} | {group.partition for group in self.replaced}

    @property
    def is_staged(self) -> bool:
        """Whether its keys are not among its facts: there were too many."""
        return self.key_files is not None or not self.knows_keys
