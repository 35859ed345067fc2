"""The timeline as a value: instants in the order in which readers see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State


@dataclass(frozen=True, slots=True)
class Timeline:
    """Instants of one table: completed ones in completion order, then pending ones by requested time.

    `pending` holds the furthest state of each unfinished instant. A savepoint shares the requested time of the
    commit it protects, so an instant is identified by time and action together.
    """

    instants: tuple[Instant, ...]
    log_compactions: frozenset[InstantTime] = field(default=frozenset(), repr=False, compare=False)
    """The completed delta commits that merged log files of others and wrote nothing of their own."""
    _pending: tuple[Instant, ...] = field(init=False, repr=False, compare=False)
    _commits: tuple[Instant, ...] = field(init=False, repr=False, compare=False)
    _completions: dict[InstantTime, InstantTime] = field(init=False, repr=False, compare=False)
    first_requested_at: InstantTime | None = field(init=False, repr=False, compare=False)
    """The smallest requested time here: writes before it are archived."""

    def __post_init__(self) -> None:
        changing = [i for i in self.instants if i.action.changes_data]
        commits = [i for i in changing if i.completed_at is not None]
        completions = {i.requested_at: i.completed_at for i in commits}
        first = min((i.requested_at for i in changing), default=None)
        object.__setattr__(self, "_pending", tuple([i for i in self.instants if i.completed_at is None]))
        object.__setattr__(self, "_commits", tuple(commits))
        object.__setattr__(self, "_completions", completions)
        object.__setattr__(self, "first_requested_at", first)

    @classmethod
    def of(cls, instants: Iterable[Instant]) -> Timeline:
        """The timeline of instant files, where one instant may appear in several states."""
        furthest: dict[tuple[InstantTime, Action], Instant] = {}
        planned = set()
        for instant in instants:
            if instant.action is Action.LOG_COMPACTION:
                planned.add(instant.requested_at)
            identity = instant.requested_at, instant.action.when_completed
            known = furthest.get(identity)
            if known is None or _PROGRESS[known.state] < _PROGRESS[instant.state]:
                furthest[identity] = instant
        merged = (time for time in planned if furthest[time, Action.DELTA_COMMIT].is_completed)
        return cls(tuple(sorted(furthest.values(), key=_reading_order)), frozenset(merged))

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __len__(self) -> int:
        return len(self.instants)

    def completed(self) -> tuple[Instant, ...]:
        """Completed instants, in completion order."""
        return tuple(instant for instant in self.instants if instant.is_completed)

    def pending(self) -> tuple[Instant, ...]:
        """Instants that were requested or begun and are neither completed nor rolled back."""
        return self._pending

    def commits(self) -> tuple[Instant, ...]:
        """Completed instants that add or hide data files, in completion order."""
        return self._commits

    def completion_of(self, requested_at: InstantTime) -> InstantTime | None:
        """When the write requested at that time completed; None if it did not, or is not on this timeline."""
        return self._completions.get(requested_at)

    def until(self, completed_at: InstantTime) -> Timeline:
        """The completed instants that a reader saw at that completion time."""
        return Timeline(
            tuple(i for i in self.completed() if i.completed_at is not None and i.completed_at <= completed_at)
        )

    @property
    def last_completed_at(self) -> InstantTime | None:
        """The newest completion time here, ignoring savepoints, which change nothing and may be deleted."""
        ordered = (i for i in self.instants if i.action is not Action.SAVEPOINT)
        return max((i.completed_at for i in ordered if i.completed_at is not None), default=None)


_PROGRESS = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


def _reading_order(instant: Instant) -> tuple[bool, str, str, Action]:
    """Completed ones by their completion, then pending ones."""
    return instant.completed_at is None, instant.completed_at or "", instant.requested_at, instant.action
