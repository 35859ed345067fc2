"""Findings of the doctor, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakebed.model.words import Word

_EXAMPLES = 5


class FindingKind(Word):
    """The sort of a finding."""

    CONFIG = "configuration"
    """hoodie.properties is missing or broken, or its backup was left behind."""
    PENDING = "pending"
    """An instant whose process is gone, or a plan that nobody executes."""
    LEFTOVER = "leftover"
    """A heartbeat, ticket, marker or cancellation whose instant is over or never existed."""
    LOCK = "lock"
    """A lock whose holder seems to be gone."""
    STRAY_FILE = "stray file"
    """Files that no instant owns."""
    LOST_FILE = "lost file"
    """Missing files that the table needs."""
    METADATA = "metadata table"
    """The metadata table cannot be read, is not maintained, or lists wrong files."""
    INDEX = "index"
    """An index differs from the rows, is incomplete, or has outgrown its shards."""


class Remedy(Word):
    """Repairs, in the order in which they are made."""

    RESTORE_CONFIG = "restore the configuration"
    RELEASE = "release the lock"
    RESTORE_DEFINITIONS = "restore the definitions of indexes"
    FINISH_RESTORE = "finish the restore"
    ROLL_BACK = "roll back"
    FINISH_INDEXING = "finish the indexing"
    DELETE = "delete"
    CLEAR = "clear away"
    EXECUTE = "execute the plan"
    MAINTAIN = "maintain the metadata table"
    REBUILD = "rebuild"
    BY_HAND = "by hand"
    """No repair: it cannot be proved that one would lose nothing that is needed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a table.

    `place` is an instant, a path or an index. `blocks` says what it prevents or affects, '' if it only takes space.
    `repair` says what the repair does or, if its remedy is "by hand", what the user can do. `outcome` is None until a
    repair was tried; then it is "repaired" or says why the repair failed.
    """

    kind: FindingKind
    place: str
    problem: str
    blocks: str
    remedy: Remedy
    repair: str
    examples: tuple[str, ...] = ()
    outcome: str | None = field(default=None, compare=False)

    @property
    def is_safe(self) -> bool:
        """Whether the doctor can repair it."""
        return self.remedy is not Remedy.BY_HAND

    @property
    def is_repaired(self) -> bool:
        """Whether it was repaired, and not found again."""
        return self.outcome == REPAIRED


REPAIRED = "repaired"


def some(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """A few of many names, in order."""
    return tuple(sorted(names)[:_EXAMPLES])
