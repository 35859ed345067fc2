"""The format's enumerations."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """An enumeration of texts in the format: members equal their text and print as it."""

    # Equal values need equal hashes; Enum hashes the member's name instead.
    __hash__ = str.__hash__

    def __str__(self) -> str:
        return str(self.value)


class Action(Word):
    """What an instant does."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"

    @property
    def when_completed(self) -> Action:
        """The action of the completed instant: services complete as commits, delta commits or replace commits."""
        return _COMPLETED_AS.get(self, self)

    @property
    def changes_data(self) -> bool:
        """Whether a completed instant of this action adds or hides data files."""
        return self in _CHANGE_DATA


_CHANGE_DATA = frozenset((Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT))
_COMPLETED_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}


class State(Word):
    """The state of an instant."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


class TableType(Word):
    """Whether updates rewrite base files or append log files."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(Word):
    """Which of two records of one key wins."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS
