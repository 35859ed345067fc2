"""Who runs next: tasks are greenlets that give way at every call of a port; virtual time stands still in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from greenlet import getcurrent, greenlet

NEVER = 1 << 60


class Crash(BaseException):
    """The process died here. Protocol code may not catch it."""


class StuckError(Exception):
    """A schedule that does not come to an end."""


class Style(Enum):
    """How the next task is picked."""

    UNIFORM = "uniform"
    """Any task may go on at any call."""
    STICKY = "sticky"
    """A task mostly goes on by itself."""
    PRIORITIES = "priorities"
    """The task with the highest priority goes on; a few times per schedule it loses its priority."""
    BORDERS = "borders"
    """A task gives way when it takes the lock or gives it up, and seldom elsewhere."""


_STAYS = {Style.UNIFORM: 0.0, Style.STICKY: 0.8, Style.PRIORITIES: 0.0, Style.BORDERS: 0.95}


@dataclass(eq=False, slots=True)
class Process:
    """One machine's worth of lakebed: what crashes, pauses and has a clock as a whole."""

    name: str
    skew_ms: int = 0
    is_foreign: bool = False
    """Whether it is of an engine that knows nothing of tickets."""
    wake_ms: int = 0
    died_ms: int = NEVER
    hiccup_ms: int = -NEVER
    beats_from_ms: int = 0
    label: str = ""
    is_zombie: bool = False
    is_dead: bool = False
    timers: list[Task] = field(default_factory=list)

    def die(self, now_ms: int) -> None:
        """From now on each of its calls raises Crash."""
        self.died_ms, self.is_dead = min(self.died_ms, now_ms), True


@dataclass(eq=False, slots=True)
class Task:
    """A line of execution of a process: its program, or one of its heartbeats."""

    process: Process
    action: Callable[[], object]
    wake_ms: int
    rank: float
    every_ms: int = 0
    thread: greenlet | None = None


class Scheduler:
    """Runs tasks one call at a time, in an order that its dice decide.

    A task that gives way picks the next one itself and switches to it, or goes on if that is itself: going through a
    hub each time would cost as much as all the rest of a call.
    """

    def __init__(self, dice: Random, style: Style, start_ms: int, *, steps_max: int = 20_000) -> None:
        self.now_ms = start_ms
        self.steps = 0
        self.steps_max = steps_max
        self.tasks: list[Task] = []
        self.style = style
        self._random = dice.random
        self.stays = _STAYS[style]
        self._hub = getcurrent()
        self._current: Task | None = None
        drops = dice.randint(1, 3) if style is Style.PRIORITIES else 0
        self._drops = {dice.randint(1, 400) for _ in range(drops)}

    def start(self, process: Process, action: Callable[[], object], delay_ms: int = 0) -> Task:
        """Adds a program of a process."""
        task = Task(process, action, self.now_ms + delay_ms, self._random())
        self.tasks.append(task)
        return task

    def every(self, process: Process, interval_ms: int, action: Callable[[], bool]) -> Task:
        """Adds a timer of a process; it ends when its action returns False."""
        task = self.start(process, action, interval_ms)
        task.every_ms = interval_ms
        process.timers.append(task)
        return task

    def end(self, task: Task) -> None:
        """Takes a task out, wherever it is."""
        if task in self.tasks:
            self.tasks.remove(task)
        if task in task.process.timers:
            task.process.timers.remove(task)

    def kill(self, process: Process) -> None:
        """Ends a process: from now on each of its calls raises Crash."""
        process.die(self.now_ms)
        process.wake_ms = 0
        self._abort([task for task in self.tasks if task.process is process and task is not self._current])

    def reach(self, is_border: bool = False) -> None:
        """A scheduling point of the current task."""
        self.now_ms += 1 + (self.steps & 7)
        if (is_border or self._random() >= self.stays) and self._current is not None:
            self._give_way()

    def sleep(self, ms: int) -> None:
        """The current task goes on after that time."""
        task = self._current
        assert task is not None
        task.wake_ms = self.now_ms + max(ms, 1)
        self._give_way()

    def run(self) -> None:
        """Until every program has ended; timers alone do not count."""
        self._hub, self._current = getcurrent(), None
        while any(not task.every_ms for task in self.tasks):
            self._give_way()
            self._current = None
            if self.steps > self.steps_max:
                raise StuckError(f"{self.steps_max} steps and no end")

    def close(self) -> None:
        """Ends whatever still runs."""
        self._current = None
        for task in self.tasks:
            task.process.die(self.now_ms)
        self._abort(list(self.tasks))

    def _give_way(self) -> None:
        """Goes on with whoever is next; returns when it is the caller's turn again."""
        current = self._current
        while True:
            self.steps += 1
            if self.steps > self.steps_max:
                break
            now = self.now_ms
            ready = [task for task in self.tasks if task.wake_ms <= now and task.process.wake_ms <= now]
            if not ready:
                self.now_ms = min([max(task.wake_ms, task.process.wake_ms) for task in self.tasks])
                continue
            task = ready[0] if len(ready) == 1 else self._pick(ready)
            if task is current:
                return
            if task.every_ms and task.thread is None and task.process.beats_from_ms > now:
                task.wake_ms = task.process.beats_from_ms
                continue
            self._switch(task)
            return
        if current is not None:
            self._hub.switch()

    def _pick(self, ready: list[Task]) -> Task:
        if self.style is not Style.PRIORITIES:
            return ready[int(self._random() * len(ready))]
        best = max(ready, key=_rank)
        if self.steps in self._drops:
            best.rank = -self.steps
        return best

    def _switch(self, task: Task) -> None:
        if task.thread is None:
            task.thread = greenlet(self._run_task, self._hub)
            self._current = task
            task.thread.switch(task)
        else:
            self._current = task
            task.thread.switch()

    def _run_task(self, task: Task) -> None:
        try:
            goes_on = task.action()
        except Crash:
            goes_on = False
        task.thread = None
        if task.every_ms and goes_on and not task.process.is_dead:
            task.wake_ms = self.now_ms + task.every_ms
        else:
            self.end(task)

    def _abort(self, tasks: list[Task]) -> None:
        """Unwinds tasks now: their calls all raise, because their processes are dead."""
        for task in tasks:
            self.end(task)
        before = self._current
        for task in tasks:
            if task.thread is not None and not task.thread.dead:
                self._current = task
                task.thread.parent = getcurrent()
                task.thread.throw(Crash())
        self._current = before


def _rank(task: Task) -> float:
    return task.rank
