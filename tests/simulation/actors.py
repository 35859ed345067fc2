"""Who works on the table: writers of several kinds, cleaners, those who take writes back, and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from lakebed.errors import CommitUnknownError, CorruptTableError, InvalidInputError, LakebedError, WriteConflictError
from lakebed.format.file_names import encode_base_file_name, encode_log_file_name
from lakebed.format.properties import PARTITION_METAFILE, encode_properties
from lakebed.metadata.upkeep.maintenance import Upkeep, is_due, maintain_metadata
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.options import WriteOptions
from lakebed.storage.confirm import create_file, delete_file
from lakebed.table import TableHandle
from lakebed.timeline import Documents, load_timeline
from lakebed.timeline.config import BACKUP, PROPERTIES, load_config
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.conflicts import WriteKind, WriteSet, overlapping
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.markers import write_markers
from lakebed.transaction.section import METADATA, Section
from lakebed.transaction.transactions import Transactions

from .checker import History, Read, Told, Write
from .invariants import Invariants, require
from .jobs import PLANE, UPKEEP, Context, Listing, Tasks
from .scheduler import Process
from .table import STATS, DuplicateKeyError, Group, Rows, View, encode_rows, list_entries, load_view
from .world import World


@dataclass(slots=True)
class Client:
    """A process with the protocol layer in it, and its part of the history."""

    world: World
    process: Process
    timing: Timing
    dice: Random
    history: History
    invariants: Invariants
    is_cow: bool
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
        self.context = Context(handle, self.transactions, tasks, WriteOptions(), PLANE)

    @property
    def storage(self):
        """The store, as this process reaches it."""
        return self.transactions._ports.storage

    def view(self) -> View:
        """A snapshot of the table."""
        return load_view(self.world, self.context.handle)

    def check_no_timers(self) -> None:
        """A process that has given everything up must not keep anything alive: others would wait for ever."""
        if self.process.timers:
            self.world.scheduler.sleep(int(self.timing.heartbeat_seconds * 3000))
        left = len(self.process.timers)
        require(not left or self.process.is_dead, "X9", f"{self.process.name} ended and {left} heartbeats go on")


@dataclass(slots=True)
class Output:
    """What a write is going to do, before it does."""

    action: Action
    kind: WriteKind
    files: dict[FileGroupId, Rows] = field(default_factory=dict)
    bases: dict[FileGroupId, Group | None] = field(default_factory=dict)
    replaced: dict[str, tuple[str, ...]] = field(default_factory=dict)
    saw: dict[str, tuple[int, ...]] = field(default_factory=dict)
    new_keys: tuple[str, ...] = ()
    whole: frozenset[str] = frozenset()

    @property
    def appends(self) -> dict[str, bool]:
        """The keys that are touched, and whether they live on."""
        return {key: value[1] for rows in self.files.values() for key, value in rows.items() if key in self.saw}


def run_writer(client: Client, operations: Iterable[str]) -> None:
    """One write after the other; a write that lost a conflict is not run again."""
    for operation in operations:
        write(client, operation)
    client.check_no_timers()


def write(client: Client, operation: str) -> None:
    """One write, from begin to its end, whatever that is."""
    transactions, action = client.transactions, _action_of(client, operation)
    try:
        attempt = transactions.begin(action)
    except LakebedError:
        client.world.reached["begin gave up"] += 1
        return
    record = Write(len(client.history.writes) + 1, client.process.name, attempt.instant, told=Told.UNKNOWN)
    record.began = client.world.scheduler.steps
    require(attempt.instant not in client.history.writes, "I1", f"{attempt.instant} was begun twice")
    client.history.writes[attempt.instant] = record
    try:
        _carry_out(client, attempt, record, operation)
        record.told = Told.OK
    except CommitUnknownError:
        settle(client, attempt, record)
    except (LakebedError, DuplicateKeyError) as error:
        client.world.reached[f"told {type(error).__name__}"] += 1
        if isinstance(error, CorruptTableError):
            client.invariants.check_may_miss_files(attempt.instant, record.began, error)
        give_up(client, attempt, record)
    finally:
        client.invariants.stops_reading(client.process)


def settle(client: Client, attempt: Attempt, record: Write) -> None:
    """Undoes an unknown commit if it did not take place, and looks whether it did."""
    client.world.reached["told CommitUnknownError"] += 1
    give_up(client, attempt, record, told=Told.UNKNOWN)  # It may die there, and nobody has been told anything.
    try:
        completed_at = client.context.handle.state().latest.completion_of(attempt.instant)
        record.told = Told.OK if completed_at else Told.FAILED
    except LakebedError:
        record.told = Told.UNKNOWN


def give_up(client: Client, attempt: Attempt, record: Write, told: Told = Told.FAILED) -> None:
    """What a client does when its write failed."""
    record.told, record.answered = told, client.world.scheduler.steps
    try:
        client.transactions.abandon(attempt)
    except LakebedError:
        client.world.reached["abandon gave up"] += 1


def _carry_out(client: Client, attempt: Attempt, record: Write, operation: str) -> None:
    view = client.view()
    client.invariants.reads(client.process, attempt.instant, view.needed)
    output = PLANS[operation](client, view, record.number)
    record.saw, record.appends = output.saw, output.appends
    client.transactions.declare(attempt, _metadata_of(output, {}, planned=True))
    _create_partitions(client, view, output)
    paths = _write_files(client, attempt, output)
    metadata, listing = _metadata_of(output, paths), _listing(client, output, paths)
    if client.process.is_foreign and view.places is not None and client.dice.random() < 0.5:
        _write_ahead(client, attempt, listing)
    client.transactions.commit(
        attempt,
        _write_set_of(client, output),
        view.seen,
        metadata,
        listing,
        also=lambda section: _check_keys(section, attempt, view.seen, output),
    )


def _action_of(client: Client, operation: str) -> Action:
    if operation == "overwrite":
        return Action.REPLACE_COMMIT
    return Action.COMMIT if client.is_cow else Action.DELTA_COMMIT


def plan_upsert(client: Client, view: View, number: int, *, alive: bool = True) -> Output:
    """Appends to some rows of some file groups, and may add keys to one of them as small-file inserts do."""
    output = Output(_action_of(client, "upsert"), WriteKind.UPSERT)
    groups = sorted(view.groups)
    for group in client.dice.sample(groups, min(len(groups), client.dice.randint(1, 2))):
        rows = view.groups[group].rows
        keys = client.dice.sample(sorted(rows), min(len(rows), 2))
        _append(output, view.groups[group], {key: rows[key][0] for key in keys}, number, alive, client.is_cow)
    if alive and output.files and client.dice.random() < 0.3:
        _add_key(client, view, output, number)
    return output


def plan_delete(client: Client, view: View, number: int) -> Output:
    """Deletes some rows."""
    return plan_upsert(client, view, number, alive=False)


def plan_insert(client: Client, view: View, number: int) -> Output:
    """Adds new keys in a new file group."""
    output = Output(_action_of(client, "insert"), WriteKind.INSERT)
    known = view.rows()
    keys = [key for key in _fresh_keys(client) if key not in known]
    if keys:
        partition = client.dice.choice(_partitions(view))
        group = FileGroupId(partition, f"n{number}")
        output.files[group] = dict.fromkeys(keys, ((number,), True))
        output.bases[group] = None
        output.saw.update(dict.fromkeys(keys, ()))
        output.new_keys = tuple(keys)
    return output


def plan_overwrite(client: Client, view: View, number: int) -> Output:
    """Replaces a partition by one file group with the same rows, of which half are deleted."""
    partition = client.dice.choice(_partitions(view))
    old = [group for group in sorted(view.groups) if group.partition == partition]
    rows: Rows = {}
    for group in old:
        for key, (numbers, _) in view.groups[group].rows.items():
            rows[key] = ((*numbers, number), client.dice.random() < 0.5)
    output = Output(Action.REPLACE_COMMIT, WriteKind.OVERWRITE, whole=frozenset({partition}))
    if rows:
        output.files[FileGroupId(partition, f"o{number}")] = rows
        output.bases[FileGroupId(partition, f"o{number}")] = None
    output.saw.update({key: value[0][:-1] for key, value in rows.items()})
    output.replaced = {partition: tuple(group.file_id for group in old)}
    return output


PLANS: dict[str, Callable[[Client, View, int], Output]] = {
    "upsert": plan_upsert,
    "delete": plan_delete,
    "insert": plan_insert,
    "overwrite": plan_overwrite,
}


def _append(
    output: Output, base: Group, lists: dict[str, tuple[int, ...]], number: int, alive: bool, cow: bool
) -> None:
    changed: Rows = {key: ((*numbers, number), alive) for key, numbers in lists.items()}
    output.files[base.group] = {**base.rows, **changed} if cow else changed
    output.bases[base.group] = base
    output.saw.update(lists)


def _add_key(client: Client, view: View, output: Output, number: int) -> None:
    known = view.rows()
    keys = [key for key in _fresh_keys(client) if key not in known][:1]
    group = min(output.files)
    for key in keys:
        output.files[group] = {**output.files[group], key: ((number,), True)}
        output.saw[key] = ()
    output.new_keys = tuple(keys)


def _fresh_keys(client: Client) -> list[str]:
    return [f"n{client.dice.randint(0, 5)}" for _ in range(client.dice.randint(1, 2))][:2]


def _partitions(view: View) -> list[str]:
    return sorted({group.partition for group in view.groups}) or ["p0"]


def _create_partitions(client: Client, view: View, output: Output) -> None:
    """Makes folders known as partitions before the first file lies in them."""
    for partition in sorted({group.partition for group in output.files}):
        if not any(path.startswith(f"{partition}/") for path in view.listed):
            create_file(client.storage, f"{partition}/{PARTITION_METAFILE}", b"")


def _write_files(client: Client, attempt: Attempt, output: Output) -> dict[FileGroupId, str]:
    """Marker, then file, with a name of its own per try of a task; a task may run twice, and one try counts."""
    paths: dict[FileGroupId, str] = {}
    for number, (group, rows) in enumerate(output.files.items()):
        tries = [_path_of(client, attempt, output, group, number, 0)]
        if client.dice.random() < 0.1:
            tries.append(_path_of(client, attempt, output, group, number, 1))
        for path in tries:
            write_markers(client.storage, attempt.instant, [path], client.world.token())
            require(create_file(client.storage, path, encode_rows(rows)), "I2", f"{path} has other content")
        for path in tries[1:]:
            delete_file(client.storage, path)
        paths[group] = tries[0]
    client.process.label = "files written"
    return paths


def _path_of(client: Client, attempt: Attempt, output: Output, group: FileGroupId, task: int, run: int) -> str:
    token = f"{task}-{run}-{client.world.token()[1:]}"
    is_log = not client.is_cow and output.bases[group] is not None and output.kind is WriteKind.UPSERT
    name = (
        encode_log_file_name(group.file_id, attempt.instant, 1, token)
        if is_log
        else encode_base_file_name(group.file_id, token, attempt.instant)
    )
    return f"{group.partition}/{name}"


def _metadata_of(output: Output, paths: dict[FileGroupId, str], *, planned: bool = False) -> CommitMetadata:
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for group in output.files:
        base = output.bases[group]
        stat = WriteStat(group.file_id, paths.get(group, ""), group.partition, base.last if base else None)
        stats[group.partition] = (*stats.get(group.partition, ()), stat)
    operation = "INSERT_OVERWRITE" if output.kind is WriteKind.OVERWRITE else output.kind.value.upper()
    keys = {"keys": ",".join(output.new_keys)}
    return CommitMetadata(stats, output.replaced if not planned else {}, operation=operation, extra_metadata=keys)


def _write_set_of(client: Client, output: Output) -> WriteSet:
    old = frozenset(group for group, base in output.bases.items() if base is not None)
    replaced = frozenset(FileGroupId(p, file_id) for p, ids in output.replaced.items() for file_id in ids)
    appends = output.kind is WriteKind.UPSERT and not client.is_cow
    return WriteSet(
        output.kind,
        appended=old if appends else frozenset(),
        rewritten=replaced if appends else old | replaced,
        added=frozenset(output.files) - old,
        partitions=output.whole,
    )


def _check_keys(section: Section, attempt: Attempt, seen: frozenset[InstantTime], output: Output) -> None:
    """I24: keys that are new to this write must not have been added by one that overlapped it."""
    documents = Documents(section.ports.storage, section.config)
    for instant in overlapping(section.timeline, attempt.instant, seen) if output.new_keys else ():
        theirs = documents.commit(instant).extra_metadata.get("keys", "").split(",")
        if instant.requested_at not in seen and set(theirs) & set(output.new_keys):
            raise WriteConflictError("keys", hint="simulated")


def _listing(client: Client, output: Output, paths: dict[FileGroupId, str]) -> Listing:
    places = {key: (group.partition, group.file_id) for group, rows in output.files.items() for key in rows}
    return Listing(client.world.token, tuple(paths.values()), places)


def _write_ahead(client: Client, attempt: Attempt, listing: Listing) -> None:
    """What an engine does whose tasks write index files before the commit: a delta commit in flight, with its files."""
    for state in (State.REQUESTED, State.INFLIGHT):
        instant = Instant(attempt.instant, Action.DELTA_COMMIT, state)
        path = f"{METADATA}.hoodie/timeline/{instant.requested_at}.{instant.action}.{instant.state}"
        create_file(client.storage, path, b"")
    listing.write_log(client.storage, attempt.instant)
    client.world.reached["index files before the commit"] += 1


def run_cleaner(client: Client, rounds: int, delay_ms: int) -> None:
    """Rolls back what is dead, a few times."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            client.transactions.rollbacks.run()
        except LakebedError:
            client.world.reached["cleaner gave up"] += 1
    client.check_no_timers()


def run_operator(client: Client, delay_ms: int) -> None:
    """Takes the newest completed write back."""
    client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
    rollbacks = client.transactions.rollbacks
    try:
        commits = client.view().timeline.commits()
        if len(commits) < 2:
            return
        target = commits[-1].requested_at
        client.invariants.asked.add(target)
        try:
            rollback = rollbacks.schedule_completed(target)
        except InvalidInputError:
            client.invariants.asked.discard(target)
            return
        client.world.reached["rollback of a completed write"] += 1
        rollbacks.execute(rollback)
    except LakebedError:
        client.world.reached["operator gave up"] += 1
    client.check_no_timers()


def run_reader(client: Client, rounds: int, delay_ms: int) -> None:
    """Snapshots, some time apart."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        began = client.world.scheduler.steps
        try:
            view = client.view()
            rows, misplaced = view.rows(), view.misplaced()
        except LakebedError as error:
            if isinstance(error, CorruptTableError):
                client.invariants.check_may_miss_files("", began, error)
            continue
        require(not misplaced or client.invariants.vanished >= began, "I30", f"a reader found that {misplaced[:1]}")
        seen = view.seen | view.archived
        client.history.reads.append(Read(client.process.name, seen, rows, began, client.world.scheduler.steps))


def run_maintainer(client: Client, rounds: int, delay_ms: int) -> None:
    """Looks after the metadata table, as writers do after their commits."""
    for _ in range(rounds):
        client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
        try:
            maintain(client)
        except LakebedError:
            client.world.reached["maintainer gave up"] += 1


def maintain(client: Client) -> None:
    """Compacts and cleans the metadata table if that is due."""
    config = load_config(client.storage)
    if config.metadata_partitions:
        timeline = load_timeline(client.storage, config, METADATA)
        if is_due(timeline, client.log_blocks, client.upkeep.limits.delta_commits):
            finish_maintenance(client)


def finish_maintenance(client: Client) -> None:
    """Takes up what is pending in the metadata table, and does what is due."""
    maintain_metadata(client.transactions, client.upkeep, client.log_blocks)


def run_configurator(client: Client, delay_ms: int) -> None:
    """Another engine that adds an index to the table: it builds it and says so in the table's config, under the lock.

    The config is replaced as that engine does it: a backup is made, the original removed and written again. Whoever
    comes after a crash in between restores it first.
    """
    client.world.scheduler.sleep(client.dice.randint(1, delay_ms))
    storage = client.storage
    try:
        with client.transactions.section() as section:
            if storage.find(PROPERTIES) is None:
                create_file(storage, PROPERTIES, storage.get(BACKUP))
            delete_file(storage, BACKUP)
            partitions = [name for name in section.config.metadata_partitions if name != STATS]
            if STATS not in section.config.metadata_partitions and client.dice.random() < 0.8:
                partitions.append(STATS)
            changed = {**section.config.properties, "hoodie.table.metadata.partitions": ",".join(partitions)}
            create_file(storage, BACKUP, storage.get(PROPERTIES))
            delete_file(storage, PROPERTIES)
            create_file(storage, PROPERTIES, encode_properties(changed, comment="simulated", date="later"))
            delete_file(storage, BACKUP)
            client.world.reached["config changed"] += 1
    except LakebedError:
        client.world.reached["configurator gave up"] += 1
