"""Examines a table and repairs it.

An examination writes nothing and takes no lock, so others may write meanwhile. If they did, a second examination must
confirm each finding: a momentary state is not a problem.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.index.keys import KEY_INDEX, sizing_of
from lakebed.index.kinds import kind_of
from lakebed.index.lost import lost_indexes
from lakebed.metadata.table import FILES
from lakebed.model.words import Action, State
from lakebed.options import parse_index_options, parse_write_options, storage_options, warn_of_unknown
from lakebed.services.doctor.configuration import find_config_problems
from lakebed.services.doctor.files import describe_strays, find_listing_differences, find_lost
from lakebed.services.doctor.finding import REPAIRED, Finding, FindingKind, Remedy
from lakebed.services.doctor.indexes import (
    describe_check,
    find_broken,
    find_definition_problems,
    find_lost_indexes,
    find_outgrown,
)
from lakebed.services.doctor.leftovers import find_dead_locks, find_leftovers
from lakebed.services.doctor.listing import (
    gather_facts,
    gather_metadata_facts,
    list_files,
    list_metadata_table_files,
)
from lakebed.services.doctor.look import Examination, Moment, look_at_config, take_look
from lakebed.services.doctor.metadata_table import find_metadata_problems
from lakebed.services.doctor.pending import find_dead_instants
from lakebed.services.doctor.repair import Surgery, repair
from lakebed.services.doctor.under_way import UnderWay, find_under_way
from lakebed.services.indexing.indexes import BROKEN, describe_indexes
from lakebed.services.indexing.validate import validate_index
from lakebed.storage import Storage, open_storage
from lakebed.table import TableHandle
from lakebed.table.transactions import choose_timing, open_ports
from lakebed.timeline.config import load_config
from lakebed.timeline.timeline import list_instants
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.options import parse_lock_options
from lakebed.transaction.ports import Ports
from lakebed.transaction.section import METADATA

_ROUNDS = 3
"""Maximum number of repair rounds: a repair may reveal more problems."""
_REPAIRED_VERSION = 9
"""The table version that repairs support."""


@dataclass(frozen=True, slots=True)
class Doctor:
    """Examines and repairs one table."""

    ports: Ports
    timing: Timing
    options: Mapping[str, str]

    def examine(self, *, quick: bool = False) -> tuple[Finding, ...]:
        """Problems of the table. Indexes are compared with all rows, unless `quick`."""
        before = self._seen()
        findings = tuple(self._look(quick=quick))
        if not findings or self._seen() == before:
            return findings
        again = {*self._look(quick=quick)}
        return tuple(finding for finding in findings if finding in again)

    def cure(
        self, *, quick: bool = False, announce: Callable[[Sequence[Finding]], None] = lambda _: None
    ) -> tuple[Finding, ...]:
        """Makes all safe repairs; returns all findings with their outcomes. `announce` is called before each round."""
        told: dict[tuple[FindingKind, str], Finding] = {}
        for rounds_left in reversed(range(_ROUNDS + 1)):
            found = {(finding.kind, finding.place): finding for finding in self.examine(quick=quick)}
            tried = {key: finding for key, finding in told.items() if finding.outcome is not None}
            told = {**found, **{key: _looked_at_again(f, is_there=key in found) for key, f in tried.items()}}
            todo = [finding for finding in told.values() if finding.outcome is None and finding.is_safe]
            if not todo or not rounds_left:
                break
            announce(todo)
            problems = repair(Surgery(self.ports, self.timing, self.options), todo)
            told |= {(f.kind, f.place): replace(f, outcome=problems.get(f, REPAIRED)) for f in todo}
        return tuple(told.values())

    def under_way(self) -> tuple[UnderWay, ...]:
        """Writes and services in flight, with their last signs of life. These are not problems."""
        try:
            config = load_config(self.ports.storage)
        except (CorruptTableError, InvalidInputError):
            return ()  # A table that cannot be opened is a finding of `examine`.
        return find_under_way(self.ports, self.timing, config)

    def _seen(self) -> object:
        """A value that changes if others write."""
        storage = self.ports.storage
        try:
            config = load_config(storage)
        except (CorruptTableError, InvalidInputError):
            return None
        return frozenset(list_instants(storage, config)), config.properties

    def _look(self, *, quick: bool) -> Iterator[Finding]:
        storage = self.ports.storage
        moment = Moment(datetime.fromtimestamp(self.ports.clock.now_ms() / 1000, timezone.utc), self.timing)
        files = look_at_config(storage, moment)
        if not files.has_file and not files.has_backup and not storage.list_folders(".hoodie"):
            load_config(storage)  # Raises: there is no table.
        config_findings = tuple(find_config_problems(files))
        yield from config_findings
        if any(not finding.is_safe for finding in config_findings):
            return
        config = load_config(storage)
        look = take_look(storage, config, moment)
        found = (
            *find_dead_instants(look),
            *find_leftovers(look),
            *find_dead_locks(look.locks, moment, expire_minutes=self._expire_minutes),
            *find_definition_problems(config.index_definitions_path, look.definitions),
            *find_metadata_problems(look),
            *_find_in_entries(look, self.options, quick=quick),
        )
        yield from found if config.version == _REPAIRED_VERSION else map(_only_told, found)

    @property
    def _expire_minutes(self) -> int:
        return parse_lock_options(parse_write_options(self.options).lock).file_expire_minutes


def open_doctor(storage: Storage, options: Mapping[str, str]) -> Doctor:
    """A doctor for the table in a storage, even if the table cannot be opened."""
    given = parse_write_options(options)
    ports = open_ports(storage, given.lock)
    timing = choose_timing(
        ports,
        heartbeat_ms=given.heartbeat_ms,
        heartbeat_misses=given.heartbeat_misses,
        service_delay_minutes=given.service_delay_minutes,
    )
    return Doctor(ports, timing, options)


def open_doctor_at(path: str | os.PathLike[str], options: Mapping[str, str]) -> Doctor:
    """A doctor for the table at a path or URL."""
    warn_of_unknown(options)
    return open_doctor(open_storage(path, storage_options(options)), options)


def _find_in_entries(look: Examination, options: Mapping[str, str], *, quick: bool) -> Iterator[Finding]:
    """Findings about data files, the metadata table and indexes, compared with each other."""
    if any(i.action is Action.RESTORE for i in look.state.timeline.pending()):
        return  # Files and lists are changing; finish the restore first.
    infos = () if look.metadata is None else tuple(describe_indexes(look.state))
    broken = {info.name for info in infos if info.state == BROKEN}
    yield from find_broken(infos, lost_indexes(look.state))
    yield from find_lost_indexes(look.state)
    if FILES in broken or look.metadata_problem is not None:
        return
    try:
        found = tuple(_find_in_files(look))
    except CorruptTableError as error:
        found = (_unreadable(error),)
    yield from found
    if look.metadata is None or any(finding.kind is not FindingKind.STRAY_FILE for finding in found):
        return  # Without a correct list of files, indexes cannot be compared.
    if KEY_INDEX in look.metadata.ready and KEY_INDEX not in broken:
        sizing = sizing_of(look.metadata.definitions, parse_index_options(options))
        yield from find_outgrown(look.metadata.slices(KEY_INDEX), sizing)
    if not quick and not _is_cleaned(look):
        wanted = [name for name in look.config.metadata_partitions if kind_of(name).is_built and name != FILES]
        for name in sorted({*wanted} - broken - {*look.definitions.without_window}):
            yield from _compared(look, name)


def _is_cleaned(look: Examination) -> bool:
    """Whether a clean is in flight: the metadata table may still list files that it has deleted."""
    return any(i.action is Action.CLEAN and i.state is State.INFLIGHT for i in look.state.timeline.pending())


def _find_in_files(look: Examination) -> Iterator[Finding]:
    state, moment = look.state, look.moment
    held = {*_pending(look), *look.plans.targets.values(), *look.leftovers.heartbeats}
    facts = gather_facts(state, look.metadata, list_files(state), held, look.plans.cleaned)
    yield from find_lost(facts)
    if state.config.timeline_layout == 1:
        return  # In layout 1 a log file has the instant of its base file, not of its own write.
    yield from describe_strays(facts, moment)
    yield from find_listing_differences(facts)
    if look.metadata is not None:
        inner = gather_metadata_facts(state, look.metadata_timeline, list_metadata_table_files(state), held)
        yield from describe_strays(inner, moment)


def _pending(look: Examination) -> set[str]:
    return {i.requested_at for i in (*look.state.timeline.pending(), *look.metadata_timeline.pending())}


def _compared(look: Examination, name: str) -> Iterator[Finding]:
    try:
        yield from describe_check(validate_index(TableHandle(look.state.storage, look.config), name, examples=3))
    except CorruptTableError as error:
        yield _unreadable(error)


def _unreadable(error: CorruptTableError) -> Finding:
    kind = FindingKind.METADATA if error.path.startswith(METADATA) else FindingKind.LOST_FILE
    return Finding(kind, error.path, error.what, "everything that reads the file", Remedy.BY_HAND, error.hint)


def _only_told(finding: Finding) -> Finding:
    hint = f"leave it to the engine that writes this table: lakebed repairs tables of version {_REPAIRED_VERSION}"
    return replace(finding, remedy=Remedy.BY_HAND, repair=hint)


def _looked_at_again(finding: Finding, *, is_there: bool) -> Finding:
    return replace(finding, outcome="the problem is still there") if finding.is_repaired and is_there else finding
