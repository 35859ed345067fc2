"""A process of lakebed in the simulation: the product over the ports of a simulated world."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from lakebed.metadata.upkeep.maintenance import Upkeep
from lakebed.options import WriteOptions
from lakebed.table import TableHandle
from lakebed.timeline.config import load_config
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.transactions import Transactions

from .checker import History
from .index import sim_codec
from .invariants import Invariants, require
from .plane import UPKEEP, Context, Tasks, service_plane
from .scheduler import Process
from .setup import Setup
from .table import View, list_entries, load_view
from .world import SimStorage, World


@dataclass(slots=True)
class Client:
    """A process with the product in it, and its part of the history. Its dice are its own."""

    world: World
    process: Process
    timing: Timing
    dice: Random
    history: History
    invariants: Invariants
    setup: Setup
    upkeep: Upkeep = UPKEEP
    log_blocks: int | None = None
    """From how many log files on those of the metadata table are merged; None: never."""
    transactions: Transactions = field(init=False)
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        """Opens the table, as whoever works on it does first."""
        self.transactions = Transactions(self.world.ports(self.process), self.timing)
        tasks = Tasks(self.world, self.process, self.dice, self.dice.random() < 0.3)
        handle = TableHandle(self.storage, load_config(self.storage), list_files=list_entries)
        plane = service_plane(sim_codec(self.world.token))
        self.context = Context(handle, self.transactions, tasks, WriteOptions(), plane)

    @property
    def is_cow(self) -> bool:
        """Whether the table is copy-on-write."""
        return self.setup.shape.is_cow

    @property
    def storage(self) -> SimStorage:
        """The store, as this process reaches it."""
        return self.transactions.ports.storage  # type: ignore[return-value]

    def view(self) -> View:
        """A snapshot of the table."""
        return load_view(self.world, self.context.handle)

    def check_no_timers(self) -> None:
        """A process that has given everything up must not keep anything alive: others would wait for ever."""
        if self.process.timers:
            self.world.scheduler.sleep(int(self.timing.heartbeat_seconds * 3000))
        left = len(self.process.timers)
        require(not left or self.process.is_dead, "X9", f"{self.process.name} ended and {left} heartbeats go on")
