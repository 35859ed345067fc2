"""Creating an index on an existing table.

Writers go on while an index is built (see `build`). The list of files is the exception: all other indexes rest on it,
so the table's lock is held from the first look to the end:

    1  clear away          the metadata table has no files of the list, its configuration does not name it
    2  delta commit        00..0k requested and in flight: whoever comes after a crash undoes it
    3  shards, base files
    4  delta commit        00..0k completed
    5  configuration       names the list: the moment it is there
    6  indexing instant    requested, in flight, completed: other processes look at the table again

A crash before 5 leaves the table as it was, after it with the list. Apache Hudi ignores what 2 to 4 left, and clears it
when it builds the list itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakebed.errors import InvalidInputError
from lakebed.index.build import Build, IndexRequest, Source, Target, store_shards
from lakebed.index.extra import next_extra
from lakebed.index.kinds import kind_of
from lakebed.metadata.bootstrap import create_shards, group_ids, metadata_properties
from lakebed.metadata.shard_writes import SHARD_CODEC, ShardCodec
from lakebed.metadata.table import FILES, ROOT
from lakebed.model.instant import InstantTime
from lakebed.observe import SILENT, Meter, Observer
from lakebed.options import IndexOptions
from lakebed.services.indexing.build import build_live, finish_build
from lakebed.services.indexing.plans import note_indexing, settle
from lakebed.services.indexing.request import check_request, resting_on
from lakebed.services.indexing.schedule import IndexWork, plan_build, take_up_build
from lakebed.services.indexing.steps import (
    check_no_rollback,
    clear_partition,
    complete_commit,
    delta_commit,
    fresh_state,
    reserve_build,
    set_ready,
    stored_definitions,
)
from lakebed.storage.confirm import create_file, delete_file
from lakebed.table import TableState
from lakebed.timeline.config import PROPERTIES, encode_config, load_config
from lakebed.transaction.section import Section
from lakebed.transaction.times import format_time, timeline_zone
from lakebed.transaction.transactions import Transactions


def create_index(
    transactions: Transactions,
    table: TableState,
    request: IndexRequest,
    options: IndexOptions,
    observer: Observer = SILENT,
    codec: ShardCodec = SHARD_CODEC,
) -> None:
    """Builds an index from the table's files and makes it part of the table."""
    work = IndexWork(transactions, table, options, observer, codec)
    ready = _build_what_it_rests_on(work, request)
    if request.partition == FILES:
        return
    build_live(work, request)
    for name in resting_on(request.partition):
        if name in ready:
            build_live(replace(work, observer=SILENT), IndexRequest(name, name))


def schedule_index(
    transactions: Transactions, table: TableState, request: IndexRequest, options: IndexOptions
) -> InstantTime:
    """Plans an index for another process to build; the instant of the plan."""
    if request.partition == FILES:
        raise InvalidInputError(
            "the list of files is built at once: writers wait for it", hint="leave out wait=False (--no-wait)"
        )
    if request.rebuild:
        raise InvalidInputError(
            f"{request.partition} would not be used until another process has built it again",
            hint="leave out wait=False (--no-wait)",
        )
    work = IndexWork(transactions, table, options)
    _build_what_it_rests_on(work, request)
    return plan_build(work, request).instant.requested_at


def run_index(
    transactions: Transactions,
    table: TableState,
    partition: str,
    options: IndexOptions,
    observer: Observer = SILENT,
    codec: ShardCodec = SHARD_CODEC,
) -> None:
    """Builds an index that was planned, by this process or another."""
    work = IndexWork(transactions, table, options, observer, codec)
    finish_build(work, take_up_build(work, partition))
    lost = load_config(table.storage).lost_partitions
    for name in resting_on(partition):
        if name in lost:
            build_live(replace(work, observer=SILENT), IndexRequest(name, name))


def _build_what_it_rests_on(work: IndexWork, request: IndexRequest) -> tuple[str, ...]:
    """Builds the list of files if the table lacks it; the partitions that were ready before."""
    work.transactions.rollbacks.run()
    ready = load_config(work.table.storage).metadata_partitions
    if request.partition == FILES or FILES not in ready:
        build_files(work, request)
    return ready


def build_files(work: IndexWork, request: IndexRequest) -> None:
    """Builds the list of files, also as what an index that was asked for rests on. Writers wait."""
    with work.transactions.section() as section:
        settle(work.transactions, section)
        check_no_rollback(section)
        state = fresh_state(work.table, section)
        check_request(state, request)
        observer = work.observer if request.partition == FILES else SILENT
        _build_files(section, state, work, observer)
        note_indexing(section, FILES)


def _build_files(section: Section, state: TableState, work: IndexWork, observer: Observer) -> None:
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
    build = Build(state, IndexRequest(FILES, FILES), None, IndexOptions(), work.scan)
    _store_files(section, file_ids, kind_of(FILES).source(build, file_ids), observer, work.codec)
    set_ready(section, [*ready, FILES])


def _store_files(
    section: Section, file_ids: Sequence[str], source: Source, observer: Observer, codec: ShardCodec
) -> None:
    """Steps 2 to 4."""
    now, instant = section.ports.clock.now_ms(), reserve_build(section)
    with delta_commit(section, instant) as (ticket, storage):
        create_shards(storage, FILES, file_ids, instant=instant, date=format_time(now, timeline_zone(section.config)))
        meter = Meter(FILES, source.pieces * source.passes + len(file_ids), observer)
        stats = store_shards(Target(storage, FILES, instant, now, codec=codec), source, file_ids, meter)
        extra = next_extra(section, stored_definitions(section), built=FILES)
        complete_commit(section, ticket, instant, stats, extra)
