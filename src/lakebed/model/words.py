"""The format's closed vocabularies."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A word that the format spells out: equal to, and printed as, its spelling."""

    # Equal to its spelling, so found by it in sets and dictionaries; an Enum's own hash is that of the member's name.
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
        """The action of the completed instant: a service completes as the kind of write that it is."""
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
