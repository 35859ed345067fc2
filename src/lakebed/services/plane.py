"""What table services do with rows and index entries: handed in, so that the rest of them runs without any.

Services plan, take turns, check for conflicts and commit. The functions here read and write data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakebed.commit.entries import CommitEntries
from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.engines import Engine, InProcess
from lakebed.index.facts import FileFacts
from lakebed.options import IndexOptions
from lakebed.services.clustering.tasks import ClusteringTask, run_clustering_task
from lakebed.services.compaction.tasks import CompactionTask, compact_logs, compact_slice
from lakebed.services.indexing.lost import rebuild_lost
from lakebed.table import TableHandle, TableState
from lakebed.transaction.transactions import MetadataWriter, Transactions

DELETES = InProcess(16)
"""Where files are deleted: a thread waits for the store to answer."""


@dataclass(frozen=True, slots=True)
class ServicePlane:
    """Tasks of compactions and clusterings, index entries of commits, and how lost indexes are rebuilt."""

    compact: Callable[[CompactionTask], tuple[FileFacts, ...]] = compact_slice
    compact_logs: Callable[[CompactionTask], tuple[FileFacts, ...]] = compact_logs
    cluster: Callable[[ClusteringTask], tuple[FileFacts, ...]] = run_clustering_task
    entries: Callable[[TableState, PreparedCommit], MetadataWriter] = CommitEntries
    rebuild_lost: Callable[[Transactions, TableHandle, IndexOptions], tuple[str, ...]] = rebuild_lost
    deletes: Engine = DELETES
