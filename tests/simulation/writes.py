"""The work of a simulated write on rows: the data plane that the real writer drives.

Rows are marshalled dictionaries. What a write does to them is drawn by the dice of its process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.commit.entries import CommitEntries
from lakebed.commit.prepared import PreparedCommit
from lakebed.errors import WriteConflictError
from lakebed.format.file_names import encode_base_file_name, encode_log_file_name
from lakebed.format.properties import PARTITION_METAFILE
from lakebed.index.facts import FileFacts
from lakebed.index.kinds import kind_of
from lakebed.index.obliged import Obliged
from lakebed.index.written import expect
from lakebed.metadata import MetadataTable
from lakebed.metadata.upkeep.maintenance import maintain_metadata
from lakebed.model.commit import CommitMetadata, WriteStat, stats_by_partition
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, delete_file
from lakebed.table import TableState
from lakebed.timeline import Documents
from lakebed.transaction.conflicts import WriteKind, WriteSet, overlapping
from lakebed.transaction.markers import write_markers
from lakebed.transaction.section import METADATA, Section
from lakebed.transaction.transactions import Transactions
from lakebed.write.operations import DELETE, INSERT, INSERT_OVERWRITE, UPSERT, Operation
from lakebed.write.recommit import store_prepared

from .checker import Told, Write
from .client import Client
from .index import sim_codec
from .invariants import require
from .table import FILES, INDEX, SCHEMA_JSON, Group, Rows, View, encode_entries, encode_rows, load_view

OPERATIONS = {"upsert": UPSERT, "delete": DELETE, "insert": INSERT, "overwrite": INSERT_OVERWRITE}


@dataclass(frozen=True, slots=True)
class SimRequest:
    """A write of one kind; what it does to which rows is drawn when it is planned."""

    name: str

    @property
    def operation(self) -> Operation:
        """The kind of write."""
        return OPERATIONS[self.name]


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


@dataclass(frozen=True, slots=True)
class SimPlanned:
    """What a write is going to do, and the snapshot that it goes by."""

    instant: InstantTime
    view: View
    output: Output

    @property
    def declaration(self) -> CommitMetadata:
        """The write set, for the inflight file."""
        return _metadata_of(self.output, _stats(self.output, {}), planned=True)


@dataclass(frozen=True, slots=True)
class SimWritten:
    """The files of a write."""

    facts: tuple[FileFacts, ...]


class SimPlane:
    """Writes of one process, as far as they are work on rows.

    `record` is what the history has of the newest one; `has_stored`: others may commit it.
    """

    def __init__(self, client: Client, *, stores_prepared: bool = False) -> None:
        self._client = client
        self._stores_prepared = stores_prepared
        self.record: Write | None = None
        self.has_stored = False

    def check(self, state: TableState) -> None:
        """Any table can be written to."""

    def plan(self, state: TableState, instant: InstantTime, request: SimRequest) -> SimPlanned:
        """Draws what is written."""
        client = self._client
        require(instant not in client.history.writes, "I1", f"{instant} was begun twice")
        record = Write(len(client.history.writes) + 1, client.process.name, instant, told=Told.UNKNOWN)
        record.began = client.world.scheduler.steps
        client.history.writes[instant] = self.record = record
        view = load_view(client.world, client.context.handle, state)
        client.invariants.reads(client.process, instant, view.needed)
        output = PLANS[request.name](client, view, record.number)
        record.saw, record.appends = output.saw, output.appends
        return SimPlanned(instant, view, output)

    def execute(self, state: TableState, planned: SimPlanned) -> SimWritten:
        """Stores the files. An engine whose tasks write index files stores these, too."""
        client, output, view = self._client, planned.output, planned.view
        _create_partitions(client, view, output)
        paths = _write_files(client, planned.instant, output)
        if client.process.is_foreign and client.setup.shape.has_metadata and client.dice.random() < 0.5:
            _write_ahead(client, planned.instant, paths.values())
        return SimWritten(tuple(_facts(state, output, paths)))

    def prepare(
        self, state: TableState, planned: SimPlanned, written: SimWritten, times: Mapping[str, int]
    ) -> PreparedCommit:
        """The commit as a value; some store it, for others to commit it if they die."""
        client, output = self._client, planned.output
        replaced = [FileGroupId(p, file_id) for p, ids in output.replaced.items() for file_id in ids]
        prepared = PreparedCommit(
            planned.instant,
            output.action,
            _metadata_of(output, (file.stat for file in written.facts)),
            _write_set_of(client, output),
            planned.view.seen,
            expect(state.config, state.definitions),
            written.facts,
            replaced=frozenset(replaced),
        )
        if self._stores_prepared:
            store_prepared(client.storage, prepared, state.config.name)  # type: ignore[arg-type]
            client.world.reached["prepared"] += 1
            self.has_stored = True
        return prepared

    def entries(self, state: TableState, prepared: PreparedCommit, written: SimWritten | None) -> CommitEntries:
        """The real ones, but for their codec; another engine knows only what the config said when it began."""
        kind = CommitEntries if not self._client.process.is_foreign else ConfigEntries
        return kind(state, prepared, codec=sim_codec(self._client.world.token))

    def recheck(
        self, state: TableState, prepared: PreparedCommit, written: SimWritten | None, section: Section
    ) -> None:
        """I24."""
        check_keys(section, prepared)

    def keep(self, storage: Storage, written: SimWritten, completed_at: InstantTime) -> None:
        """There are no caches."""

    def maintain(self, transactions: Transactions, written: SimWritten) -> None:
        """The real maintenance, on simulated shards."""
        maintain_metadata(transactions, self._client.upkeep, self._client.log_blocks)


class ConfigEntries(CommitEntries):
    """The entries of an engine that does not look at index plans, and says nothing about what it covers."""

    def find_obliged(self, section: Section, metadata: MetadataTable) -> Obliged:
        """Leaves the index of keys out if the config did not name it when the write began."""
        named = (*self.seen.config.metadata_partitions, *self.seen.config.metadata_partitions_inflight)
        groups = super().find_obliged(section, metadata).groups
        return Obliged({name: ids for name, ids in groups.items() if name != INDEX or name in named})


def _facts(state: TableState, output: Output, paths: Mapping[FileGroupId, str]) -> Iterator[FileFacts]:
    """With the keys of the files if an index wants them."""
    named = (*state.config.metadata_partitions, *state.config.metadata_partitions_inflight)
    has_keys = any(kind_of(name).wants_keys for name in named)
    for rows, stat in zip(output.files.values(), _stats(output, paths), strict=True):
        yield FileFacts(stat, inserted_keys=pa.array(rows) if has_keys else None)


def check_keys(section: Section, prepared: PreparedCommit) -> None:
    """I24: keys that are new to this write must not have been added by one that overlapped it."""
    new = _new_keys(prepared.of_rows[0])
    documents = Documents(section.ports.storage, section.config)
    for instant in overlapping(section.timeline, prepared.instant, prepared.seen) if new else ():
        if instant.requested_at not in prepared.seen and _new_keys(documents.commit(instant)) & new:
            raise WriteConflictError("keys", hint="simulated")


def _new_keys(metadata: CommitMetadata) -> set[str]:
    return {key for key in metadata.extra_metadata.get("keys", "").split(",") if key}


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


def _write_files(client: Client, instant: InstantTime, output: Output) -> dict[FileGroupId, str]:
    """Marker, then file, with a name of its own per try of a task; a task may run twice, and one try counts."""
    paths: dict[FileGroupId, str] = {}
    for number, (group, rows) in enumerate(output.files.items()):
        tries = [_path_of(client, instant, output, group, number, 0)]
        if client.dice.random() < 0.1:
            tries.append(_path_of(client, instant, output, group, number, 1))
        for path in tries:
            write_markers(client.storage, instant, [path], client.world.token())
            require(create_file(client.storage, path, encode_rows(rows)), "I2", f"{path} has other content")
        for path in tries[1:]:
            delete_file(client.storage, path)
        paths[group] = tries[0]
    client.process.label = "files written"
    return paths


def _path_of(client: Client, instant: InstantTime, output: Output, group: FileGroupId, task: int, run: int) -> str:
    token = f"{task}-{run}-{client.world.token()[1:]}"
    is_log = not client.is_cow and output.bases[group] is not None and output.kind is WriteKind.UPSERT
    name = (
        encode_log_file_name(group.file_id, instant, 1, token)
        if is_log
        else encode_base_file_name(group.file_id, token, instant)
    )
    return f"{group.partition}/{name}"


def _stats(output: Output, paths: Mapping[FileGroupId, str]) -> Iterator[WriteStat]:
    for group, rows in output.files.items():
        base, path = output.bases[group], paths.get(group, "")
        size = len(encode_rows(rows)) if path else 0
        yield WriteStat(group.file_id, path, group.partition, base.last if base else None, file_size=size)


def _metadata_of(output: Output, files: Iterable[WriteStat], *, planned: bool = False) -> CommitMetadata:
    operation = "INSERT_OVERWRITE" if output.kind is WriteKind.OVERWRITE else output.kind.value.upper()
    return CommitMetadata(
        stats_by_partition(files),
        {} if planned else output.replaced,
        operation=operation,
        extra_metadata={"keys": ",".join(output.new_keys), "schema": SCHEMA_JSON},
    )


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


def _write_ahead(client: Client, instant: InstantTime, paths: Iterable[str]) -> None:
    """What an engine does whose tasks write index files before the commit: a delta commit in flight, with its files."""
    for state in (State.REQUESTED, State.INFLIGHT):
        begun = Instant(instant, Action.DELTA_COMMIT, state)
        path = f"{METADATA}.hoodie/timeline/{begun.requested_at}.{begun.action}.{begun.state}"
        create_file(client.storage, path, b"")
    name = encode_log_file_name("files-0000-0", instant, 1, f"0-0-{client.world.token()[1:]}")
    create_file(client.storage, f"{METADATA}{FILES}/{name}", encode_entries(paths))
    client.world.reached["index files before the commit"] += 1
