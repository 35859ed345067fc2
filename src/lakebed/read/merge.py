"""Merges the records of a file slice, base file and log blocks, into one row per key, column-wise.

Every base row whose key occurs in the logs, every log record and every delete is an *event* of its key. The events of a
key are sorted by the order of writing, the merge rules decide which are accepted, and the last accepted one is the row
of the key or deletes it. In partial updates, each column comes from the last accepted event that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedTableError
from lakebed.format.arrow import empty_table, flag_array, flags_of, ints_of, number_array, position_array
from lakebed.kernels.buffers import Bools, Int64s
from lakebed.kernels.events import accept_events
from lakebed.model.config import TableConfig
from lakebed.model.words import MergeMode

_ABSENT = number_array(np.array([-1], np.int32), pa.int32())[0]


class Rules(IntEnum):
    """Which events of a key are accepted, in the order of writing."""

    COMMIT_TIME = 0  # all
    EVENT_TIME = 1  # those whose ordering value is not less than the last accepted one's; deletes without a value
    OVERWRITE_V6 = 2  # version 6, latest payload: by ordering value among log records, which then replace the base row
    EVENT_TIME_V6 = 3  # version 6, default payload: the same, but an older log record loses to the base row


class EventKind(IntEnum):
    """What an event does to its key."""

    RECORD = 0
    DELETE = 1  # applies by its ordering value
    DELETE_ALWAYS = 2  # carries no ordering value


@dataclass(frozen=True, slots=True)
class Part:
    """Events of one log block or a base file, in the order of writing.

    `ordering` has one array per ordering field. `rows` is None for delete blocks. `columns` names the columns that a
    partial update carries; None means all.
    """

    keys: pa.Array
    kinds: npt.NDArray[np.int8]
    ordering: tuple[pa.Array, ...]
    rows: pa.Table | None
    columns: frozenset[str] | None = None

    def with_keys(self, wanted: pa.Array) -> Part:
        """The events whose key is among `wanted`."""
        return self.take(np.flatnonzero(flags_of(pc.is_in(self.keys, value_set=wanted))))

    def take(self, positions: Int64s) -> Part:
        """The events at `positions`."""
        taken = position_array(positions)
        ordering = tuple(values.take(taken) for values in self.ordering)
        rows = None if self.rows is None else self.rows.take(taken)
        return Part(self.keys.take(taken), self.kinds[positions], ordering, rows, self.columns)


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The merged rows of a slice, the number of keys in its logs, and counts of changes relative to its base file."""

    rows: pa.Table
    log_keys: int = 0
    updates: int = 0
    inserts: int = 0
    deletes: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """Log blocks merged without their base file. Applied in the order of these fields, they have the same effect.

    `always` are keys whose older records are deleted, whatever their ordering values. `rows` are records, soft deletes
    among them. `deletes` apply by ordering value. A key is in at most one of `rows` and `deletes`.
    """

    always: pa.Array
    rows: pa.Table
    deletes: pa.Array
    ordering: tuple[pa.Array, ...]

    @property
    def is_writable(self) -> bool:
        """Whether log blocks can express it: a delete that lacks an ordering value would always apply."""
        return not any(values.null_count for values in self.ordering)


def merge_slice(base: Part | None, logs: Sequence[Part], rules: Rules, schema: pa.Schema) -> pa.Table:
    """Merges a slice. The `rows` of all parts conform to `schema`."""
    return merge_counted(base, logs, rules, schema).rows


def merge_counted(base: Part | None, logs: Sequence[Part], rules: Rules, schema: pa.Schema) -> MergedRows:
    """Merges a slice, and counts. The `rows` of all parts conform to `schema`."""
    if not logs:
        return MergedRows(empty_table(schema) if base is None or base.rows is None else base.rows)
    keys = pa.concat_arrays([part.keys for part in logs]).dictionary_encode()
    codes = ints_of(keys.indices)
    if base is None or base.rows is None:
        events = _accept(logs, codes, 0, rules)
        return events.counted(_take_winners(list(logs), events, schema), base_count=0)
    base_codes = ints_of(pc.fill_null(pc.index_in(base.keys, value_set=keys.dictionary), _ABSENT))
    positions = _first_positions(base_codes)
    # Only partial updates need columns of base rows here; otherwise a base row is kept whole or dropped.
    is_partial = any(part.columns is not None for part in logs)
    parts = [(base if is_partial else replace(base, rows=None)).take(positions), *logs]
    events = _accept(parts, np.concatenate([base_codes[positions], codes]), len(positions), rules)
    stays = np.ones(len(base_codes), bool)
    stays[positions] = False
    if not is_partial:
        stays[positions[events.live(until=len(positions))]] = True
    rows = pa.concat_tables([base.rows.filter(flag_array(stays)), _take_winners(parts, events, schema)])
    return events.counted(rows, base_count=len(positions))


def fold_logs(logs: Sequence[Part], rules: Rules, schema: pa.Schema) -> Folded:
    """Merges log blocks that have all columns, without their base file."""
    keys = pa.concat_arrays([part.keys for part in logs])
    events = _accept(logs, ints_of(keys.dictionary_encode().indices), 0, rules)
    rows, row_of, has_row = _rows_of_events(logs, schema)
    last = events.last_per_key(events.accepted)
    stays = events.written[last]
    recorded = has_row[stays]
    # Keep unconditional deletes: events after one are not compared with older events.
    always = events.last_per_key(events.accepted & (events.kinds == EventKind.DELETE_ALWAYS))
    wiped = events.written[always[always >= 0]]
    deleted = stays[~recorded & (events.kinds[last] == EventKind.DELETE)]
    if rules is Rules.COMMIT_TIME:
        wiped, deleted = stays[~recorded], stays[:0]
    ordering = [pa.concat_arrays(list(arrays)) for arrays in zip(*(part.ordering for part in logs), strict=True)]
    return Folded(
        always=keys.take(pa.array(wiped)),
        rows=rows.take(pa.array(row_of[stays[recorded]])),
        deletes=keys.take(pa.array(deleted)),
        ordering=tuple(values.take(pa.array(deleted)) for values in ordering),
    )


@dataclass(frozen=True, slots=True)
class _Events:
    """Events sorted by key, then by the order of writing.

    `written` has the position of each event in the order of writing, `starts` the first event of each key.
    """

    written: Int64s
    starts: Int64s
    kinds: npt.NDArray[np.int8]
    accepted: Bools

    def last_per_key(self, chosen: Bools) -> Int64s:
        """For each key, the index of its last chosen event; -1 if it has none."""
        positions = np.where(chosen, np.arange(len(chosen)), -1)
        last: Int64s = np.maximum.reduceat(positions, self.starts) if len(positions) else positions
        return last

    def live(self, *, until: int | None = None) -> Int64s:
        """Positions (as in `written`) of records that are the last accepted event of their key; those below `until`."""
        last = self.last_per_key(self.accepted)
        places = self.written[last[self.kinds[last] == EventKind.RECORD]]
        return places if until is None else places[places < until]

    def counted(self, rows: pa.Table, *, base_count: int) -> MergedRows:
        """`rows` with counts of the merged keys. The first `base_count` events that were written are base rows."""
        last = self.last_per_key(self.accepted)
        is_live = self.kinds[last] == EventKind.RECORD
        had_row = self.written[self.starts] < base_count
        changed = is_live & (self.written[last] >= base_count)
        return MergedRows(
            rows,
            log_keys=len(self.starts),
            updates=int((changed & had_row).sum()),
            inserts=int((changed & ~had_row).sum()),
            deletes=int((had_row & ~is_live).sum()),
        )


def _accept(parts: Sequence[Part], codes: Int64s, base_count: int, rules: Rules) -> _Events:
    written = np.argsort(codes, kind="stable")
    keys = codes[written]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
    kinds = np.concatenate([part.kinds for part in parts])[written]
    if rules is Rules.COMMIT_TIME:
        return _Events(written, starts, kinds, np.ones(len(keys), bool))
    ordering = [pa.chunked_array(arrays) for arrays in zip(*(part.ordering for part in parts), strict=True)]
    ranks = rank_rows(ordering, len(keys))[written]
    return _Events(written, starts, kinds, accept_events(starts, kinds, ranks, written < base_count, int(rules)))


def _take_winners(parts: Sequence[Part], events: _Events, schema: pa.Schema) -> pa.Table:
    """The rows of live records, from parts that have rows."""
    rows, row_of, has_row = _rows_of_events(parts, schema)
    if all(part.columns is None for part in parts):
        live = events.live()
        return rows.take(position_array(row_of[live[has_row[live]]]))
    return _take_columns(parts, events, rows, row_of)


def _rows_of_events(parts: Sequence[Part], schema: pa.Schema) -> tuple[pa.Table, Int64s, Bools]:
    """All rows of the parts; for each event, in the order of writing, the number of its row and whether it has one."""
    rows = pa.concat_tables([part.rows for part in parts if part.rows is not None] or [empty_table(schema)])
    has_row = np.concatenate([np.full(len(part.kinds), part.rows is not None) for part in parts])
    return rows.unify_dictionaries(), np.cumsum(has_row) - 1, has_row


def _take_columns(parts: Sequence[Part], events: _Events, rows: pa.Table, row_of: Int64s) -> pa.Table:
    """Each column from the last accepted record, since the last accepted delete, that carries it."""
    alive = events.kinds[events.last_per_key(events.accepted)] == EventKind.RECORD
    of_part = np.repeat(np.arange(len(parts)), [len(part.kinds) for part in parts])[events.written]
    is_record = events.accepted & (events.kinds == EventKind.RECORD)
    deleted_at = events.last_per_key(events.accepted & (events.kinds != EventKind.RECORD))
    columns = []
    for field in rows.schema:
        carries = np.array([part.columns is None or field.name in part.columns for part in parts])
        last = events.last_per_key(is_record & carries[of_part])[alive]
        found = last > deleted_at[alive]
        taken = pa.array(row_of[events.written[np.maximum(last, 0)]], mask=~found)
        columns.append(rows[field.name].take(taken))
    return pa.table(columns, schema=rows.schema)


def _first_positions(codes: Int64s) -> Int64s:
    """Rows whose key occurs in the logs; of several with the same key, the first.

    Plain inserts may repeat a key within a base file; a log record then changes the first, as in Apache Hudi.
    """
    matched = np.flatnonzero(codes >= 0)
    first: Int64s = np.sort(matched[np.unique(codes[matched], return_index=True)[1]])
    return first


def rank_rows(fields: Sequence[pa.ChunkedArray], count: int) -> Int64s:
    """Integers with the order of `count` rows; several fields compare lexicographically, nulls are lowest."""
    if len(fields) == 1 and _compares_as_int(fields[0]):
        return ints_of(fields[0].cast(pa.int64()))
    ranks = np.zeros(count, np.int64)
    for values in fields:
        dense = ints_of(pc.rank(values, tiebreaker="dense"))
        dense[flags_of(values.is_null())] = 0
        ranks = ints_of(pc.rank(position_array(ranks * (dense.max(initial=0) + 1) + dense), tiebreaker="dense"))
    return ranks


def _compares_as_int(values: pa.ChunkedArray) -> bool:
    kind = values.type
    is_int = pa.types.is_signed_integer(kind) or pa.types.is_timestamp(kind)
    return values.null_count == 0 and is_int


_CURRENT = {
    MergeMode.COMMIT_TIME_ORDERING: Rules.COMMIT_TIME,
    MergeMode.EVENT_TIME_ORDERING: Rules.EVENT_TIME,
}
_VERSION_6 = {
    MergeMode.COMMIT_TIME_ORDERING: Rules.OVERWRITE_V6,
    MergeMode.EVENT_TIME_ORDERING: Rules.EVENT_TIME_V6,
}


def merge_rules(config: TableConfig) -> Rules:
    """The table's merge rules; raises UnsupportedTableError for custom ones. Only slices with logs need them."""
    rules = (_VERSION_6 if config.version == 6 else _CURRENT).get(config.merge_mode)
    custom = config.custom_merging
    if rules is None or custom:
        raise UnsupportedTableError(
            f"table {config.name} merges records by {custom or 'a custom merger'}, which lakebed cannot run",
            hint='compact the table with the engine that wrote it, or read with mode="read_optimized"',
        )
    return rules
