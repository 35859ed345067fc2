"""What the doctor finds, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakebed.model.words import Word

_EXAMPLES = 5


class FindingKind(Word):
    """What is wrong."""

    CONFIG = "configuration"
    """hoodie.properties is missing or broken, or its backup was left behind."""
    PENDING = "pending"
    """An instant that nobody works on any more, or a plan that nobody executes."""
    LEFTOVER = "leftover"
    """A heartbeat, ticket, marker or cancellation whose instant is over, or never was."""
    LOCK = "lock"
    """A lock whose holder seems to be gone."""
    STRAY_FILE = "stray file"
    """Files that no instant owns."""
    LOST_FILE = "lost file"
    """Files that the table needs and that are not there."""
    METADATA = "metadata table"
    """The metadata table cannot be read, is not looked after, or lists other files than there are."""
    INDEX = "index"
    """An index says other than the rows, is not whole, or has outgrown its shards."""


class Remedy(Word):
    """What a repair does, in the order in which it is done."""

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
    """Nothing: it cannot be proved that a repair takes nothing away that someone needs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a table.

    `place` is an instant, a path or an index. `blocks` says what it keeps from happening, and is '' if it only takes
    up space. `repair` says what a repair does, or, if its remedy is "by hand", what the user can do. `outcome` is None
    until a repair was tried; then it is "repaired", or says why it is not.
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
        """Whether a repair can be left to the doctor."""
        return self.remedy is not Remedy.BY_HAND

    @property
    def is_repaired(self) -> bool:
        """Whether a repair was made and the next look no longer found it."""
        return self.outcome == REPAIRED


REPAIRED = "repaired"


def some(names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """A few of many names, in order."""
    return tuple(sorted(names)[:_EXAMPLES])
