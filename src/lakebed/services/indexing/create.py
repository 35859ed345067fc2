"""Creating an index on an existing table, in the foreground: the table's lock is held from the first look to the end.

    1  clear away          the metadata table has no files of the index, its configuration does not name it
    2  delta commit        00..0k requested and in flight: whoever comes after a crash undoes it
    3  shards, base files
    4  definition          index.json
    5  delta commit        00..0k completed
    6  configuration       names the index: the moment it is there
    7  indexing instant    requested, in flight, completed: other processes look at the table again

A crash before 6 leaves the table as it was, after it with the index. What 2 to 5 left is cleared by the next writer or
by the next call; Apache Hudi ignores it, and clears it when it builds the index itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.index.build import Build, IndexRequest, Source, Target, store_shards
from lakebed.index.extra import next_extra
from lakebed.index.kinds import all_kinds, kind_of
from lakebed.metadata.bootstrap import (
    create_shards,
    group_ids,
    metadata_properties,
)
from lakebed.metadata.files import FILES
from lakebed.metadata.shard_writes import SHARD_CODEC, ShardCodec
from lakebed.metadata.table import ROOT
from lakebed.model.index import IndexDefinition
from lakebed.observe import SILENT, Meter, Observer
from lakebed.options import IndexOptions
from lakebed.services.indexing.scans import scan_table
from lakebed.services.indexing.steps import (
    clear_partition,
    complete_commit,
    delta_commit,
    next_reserved,
    note_indexing,
    set_ready,
    settle,
    store_definition,
    stored_definitions,
)
from lakebed.storage.confirm import create_file, delete_file
from lakebed.table import TableState
from lakebed.timeline.config import PROPERTIES, encode_config
from lakebed.transaction.section import Section
from lakebed.transaction.times import format_time, timeline_zone
from lakebed.transaction.transactions import Transactions

_WRITTEN_VERSION = 9


def create_index(
    transactions: Transactions,
    table: TableState,
    request: IndexRequest,
    options: IndexOptions,
    observer: Observer = SILENT,
    codec: ShardCodec = SHARD_CODEC,
) -> None:
    """Builds an index from the table's files and makes it part of the table."""
    transactions.rollbacks.run()
    with transactions.section() as section:
        settle(transactions, section, None if request.partition == FILES else request.partition)
        state = fresh_state(table, section)
        check_request(state, request)
        if request.partition == FILES:
            _build_files(section, state, observer, codec)
        else:
            if FILES not in section.config.metadata_partitions:
                _build_files(section, state, SILENT, codec)
                state = fresh_state(table, section)
            resting = [name for name in _resting_on(request.partition) if name in section.config.metadata_partitions]
            _build(section, state, request, options, observer, codec)
            for name in resting:
                _build(section, fresh_state(table, section), IndexRequest(name, name), options, SILENT, codec)
        note_indexing(section, request.partition)


def _resting_on(partition: str) -> tuple[str, ...]:
    """Indexes that are made of the entries of another one, and are rebuilt with it.

    Its columns may be others than before: of a new one, statistics of partitions would have what later writes add, and
    lack the rows that are there; of one that it does not have any more, nobody would keep them up to date.
    """
    return tuple(kind.partition for kind in all_kinds() if kind.made_of == partition)


def fresh_state(table: TableState, section: Section) -> TableState:
    """The table as the section sees it, with its metadata table whatever the options of reads say."""
    return table.afresh(section.config, section.timeline)


def check_request(state: TableState, request: IndexRequest) -> None:
    """Raises for an index that the table cannot have, or has."""
    config = state.config
    if config.version != _WRITTEN_VERSION:
        raise UnsupportedTableError(
            f"table {config.name} has version {config.version}; lakebed builds indexes for version {_WRITTEN_VERSION}",
            hint="upgrade it with Apache Hudi 1.2: call upgrade_table(table => 't', to_version => 'NINE')",
        )
    if request.partition in config.metadata_partitions and not request.rebuild:
        raise InvalidInputError(
            f"table {config.name} already has the index {request.partition}",
            hint="pass rebuild=True to rebuild it from the rows",
        )
    kind_of(request.partition).check_request(state, request)


def _build(
    section: Section,
    state: TableState,
    request: IndexRequest,
    options: IndexOptions,
    observer: Observer,
    codec: ShardCodec,
) -> None:
    partition = request.partition
    definition = plan_definition(state, request, options)
    file_ids, source = kind_of(partition).plan_build(Build(state, request, definition, options, scan_table))
    out = (partition, *_resting_on(partition))
    ready = [name for name in section.config.metadata_partitions if name not in out]
    _take_out(section, out)
    clear_partition(section, partition)
    store_index(section, partition, file_ids, source, definition, observer, codec)
    set_ready(section, [*ready, partition])
    if definition is not None:
        store_definition(section, partition, definition)


def _take_out(section: Section, partitions: Collection[str]) -> None:
    """Before its first file goes the configuration must not name an index, not even as one that is being built."""
    config = section.config
    if not {*config.metadata_partitions, *config.metadata_partitions_inflight}.isdisjoint(partitions):
        unbuilt = [name for name in partitions if name not in config.metadata_partitions]
        set_ready(section, [name for name in config.metadata_partitions if name not in partitions], dropped=unbuilt)


def store_index(
    section: Section,
    partition: str,
    file_ids: Sequence[str],
    source: Source,
    definition: IndexDefinition | None,
    observer: Observer,
    codec: ShardCodec = SHARD_CODEC,
) -> None:
    """Steps 2 to 5: files and delta commit of a partition of which there are no files."""
    storage, now = section.ports.storage, section.ports.clock.now_ms()
    instant = next_reserved(section)
    with delta_commit(section, instant) as ticket:
        date = format_time(now, timeline_zone(section.config))
        create_shards(storage, partition, file_ids, instant=instant, date=date)
        meter = Meter(partition, source.pieces * source.passes + len(file_ids), observer)
        ordering = definition.ordering if definition is not None else None
        target = Target(storage, partition, instant, now, has_ordering=ordering is not None, codec=codec)
        stats = store_shards(target, source, file_ids, meter)
        if definition is not None:
            is_new = partition not in section.config.lost_partitions
            store_definition(section, partition, definition.as_unfinished() if is_new else definition)
        extra = next_extra(section, stored_definitions(section), built=partition)
        complete_commit(section, ticket, instant, stats, extra)


def _build_files(section: Section, state: TableState, observer: Observer, codec: ShardCodec) -> None:
    """The list of files, on which all other partitions rest: they come back with it.

    If there is no metadata table that can be opened, whatever lies in its folder goes.
    """
    storage, ready = section.ports.storage, section.config.metadata_partitions
    is_there = FILES in ready and storage.find(f"{ROOT}{PROPERTIES}") is not None
    file_ids = group_ids(FILES, 1)
    set_ready(section, (), dropped=() if is_there else section.config.metadata_partitions_inflight)
    if is_there:
        clear_partition(section, FILES)
    else:
        ready = ()
        for listed in storage.list(ROOT.rstrip("/"), recursive=True):
            delete_file(storage, listed.path)
        section.forget_timeline(ROOT)
        properties = encode_config(metadata_properties(section.config.name), section.ports.clock.now_ms())
        create_file(storage, f"{ROOT}{PROPERTIES}", properties)
    build = Build(state, IndexRequest(FILES, FILES), None, IndexOptions(), scan_table)
    store_index(section, FILES, file_ids, kind_of(FILES).source(build, file_ids), None, observer, codec)
    set_ready(section, [*ready, FILES])


def plan_definition(state: TableState, request: IndexRequest, options: IndexOptions) -> IndexDefinition | None:
    """What index.json is to say of an index; None if nothing."""
    known = state.definitions.get(request.partition) if request.keeps else None
    known = known.as_finished() if known is not None else None
    return kind_of(request.partition).plan_definition(state, request, options, known)
