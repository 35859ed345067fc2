"""lakebed reads from a table of Apache Hudi what Apache Hudi reads from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.peer import PeerTable

pytestmark = pytest.mark.interop

ROW_NAME = ("_hoodie_partition_path", "_hoodie_record_key")
Row = tuple[tuple[str, Any], ...]


# What Apache Hudi 1.2.0 fails at by itself; the table it leaves behind is read and compared all the same.
PEER_DEFECTS = ("record partition: column_stats but trying to insert into partition: expr_index",)


def test_every_step_was_carried_out(peer_table: PeerTable) -> None:
    steps = [step for step in peer_table.steps if "refused" in step]
    unknown = [step for step in steps if not any(defect in step["refused"] for defect in PEER_DEFECTS)]
    refused = [f"{step['action']}: {step['refused']}" for step in unknown]
    assert not refused, "\n".join([*refused, peer_table.about()])


def test_snapshot(peer_table: PeerTable) -> None:
    check(peer_table, "snapshot", lambda _: lakebed.open_table(peer_table.path).to_arrow())


def test_read_optimized(peer_table: PeerTable) -> None:
    check(peer_table, "read_optimized", lambda _: lakebed.open_table(peer_table.path).to_arrow(mode="read_optimized"))


def test_filters(peer_table: PeerTable) -> None:
    check(peer_table, "filter", lambda read: lakebed.open_table(peer_table.path).to_arrow(where=read["where"]))


def test_time_travel(peer_table: PeerTable) -> None:
    check(peer_table, "as_of", lambda read: lakebed.open_table(peer_table.path).to_arrow(as_of=read["as_of"]))


def test_changes(peer_table: PeerTable) -> None:
    table = lakebed.open_table(peer_table.path)

    def changes(read: dict[str, Any]) -> pa.Table:
        return table.changes(since=read["since"], until=read["until"])

    def is_comparable(read: dict[str, Any]) -> bool:
        """Up to a past instant, Apache Hudi leaves out what was overwritten or cleaned later; we show it, or refuse."""
        until = read["until"]
        later = {str(i.action) for i in table.timeline.completed() if until is not None and i.requested_at > until}
        return not later & {"replacecommit", "clean"}

    # Apache Hudi gives encoded partition values here ("100%25"), though its snapshots have the plain ones ("100%").
    unfit = (
        [column["name"] for column in peer_table.design["partitioned_by"]] if peer_table.design["url_encoded"] else []
    )
    check(peer_table, "changes", changes, without=unfit, only=is_comparable)
    for asked, theirs in peer_table.answered("changes"):
        if not is_comparable(asked):
            check_none_missing(peer_table, changes, asked, theirs, unfit)


def check_none_missing(
    table: PeerTable,
    read: Callable[[dict[str, Any]], pa.Table],
    asked: dict[str, Any],
    theirs: pa.Table,
    without: list[str],
) -> None:
    """Where we answer and Apache Hudi leaves rows out: all of its rows are among ours."""
    try:
        ours = read(asked)
    except lakebed.InvalidInputError as error:
        if "have been cleaned" not in str(error):
            raise
        return
    kept = [name for name in ours.schema.names if name not in without]
    missing = Counter(rows_of(theirs.select(kept))) - Counter(rows_of(ours.select(kept)))
    assert not missing, f"{asked}: {list(missing)[:3]}\n{table.about()}"


def test_lookup(peer_table: PeerTable) -> None:
    table = lakebed.open_table(peer_table.path)
    [(_, snapshot)] = peer_table.answered("snapshot")
    keys = set(snapshot["_hoodie_record_key"].to_pylist()[::3])
    if not {"record", "record_partitioned"} & set(peer_table.design["indexes"]):
        with pytest.raises(lakebed.InvalidInputError, match="no record index"):
            table.lookup(keys)
        return
    wanted = snapshot.filter(pa.array([key in keys for key in snapshot["_hoodie_record_key"].to_pylist()], pa.bool_()))
    text = difference(table.lookup([*sorted(keys), "no such key"]), wanted)
    assert not text, f"{text}\n{peer_table.about()}"


@pytest.mark.spark
def test_spark(peer_table: PeerTable, spark) -> None:
    table = lakebed.open_table(peer_table.path, spark=spark)
    check(peer_table, "snapshot", lambda _: table.to_spark().toArrow())
    check(peer_table, "read_optimized", lambda _: table.to_spark(mode="read_optimized").toArrow())
    check(peer_table, "filter", lambda read: table.to_spark(where=read["where"]).toArrow())
    check(peer_table, "as_of", lambda read: table.to_spark(as_of=read["as_of"]).toArrow())


def check(
    table: PeerTable,
    kind: str,
    read: Callable[[dict[str, Any]], pa.Table],
    *,
    without: list[str] | None = None,
    only: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> None:
    """Hold every read of a kind against the answer of Apache Hudi, and report all differences at once."""
    wrong = []
    for asked, theirs in table.answered(kind):
        if not only(asked):
            continue
        text = difference(read(asked).drop_columns(without or []), theirs.drop_columns(without or []))
        if text:
            arguments = {key: value for key, value in asked.items() if key not in ("kind", "rows")}
            wrong.append(f"{kind} {arguments}: {text}")
    assert not wrong, "\n".join([*wrong, table.about()])


def difference(ours: pa.Table, theirs: pa.Table) -> str:
    """What is not the same in the two, in any order of rows; nothing if all is."""
    if ours.schema.names != theirs.schema.names:
        return f"columns are {ours.schema.names}, with Apache Hudi {theirs.schema.names}"
    types = [
        f"{a.name}: {a.type}, {b.type}"
        for a, b in zip(ours.schema, theirs.schema, strict=True)
        if not alike(a.type, b.type)
    ]
    if types:
        return f"types differ (ours, theirs): {'; '.join(types)}"
    mine, yours = Counter(rows_of(ours)), Counter(rows_of(theirs))
    extra, missing = list((mine - yours).elements()), list((yours - mine).elements())
    if not extra and not missing:
        return ""
    return f"{len(ours)} rows, with Apache Hudi {len(theirs)}\n" + "\n".join(explain_rows(extra, missing)[:6])


def alike(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether two types hold the same values; names of list items and nullability are not part of that."""
    if pa.types.is_nested(ours) and ours.id == theirs.id and ours.num_fields == theirs.num_fields:
        fields = [(ours.field(i), theirs.field(i)) for i in range(ours.num_fields)]
        return all(alike(a.type, b.type) and (a.name == b.name or not pa.types.is_struct(ours)) for a, b in fields)
    return ours == theirs


def rows_of(table: pa.Table) -> list[Row]:
    """Rows as values that can be counted: maps in the order of their keys."""
    maps = {field.name for field in table.schema if pa.types.is_map(field.type)}
    return [
        tuple((name, hashable(sorted(value) if name in maps and value else value)) for name, value in row.items())
        for row in table.to_pylist()
    ]


def hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, hashable(inner)) for name, inner in value.items())
    return tuple(hashable(inner) for inner in value) if isinstance(value, (list, tuple)) else value


def explain_rows(extra: list[Row], missing: list[Row]) -> list[str]:
    """A line per row that only one side has; where both have the row, only the columns that differ."""
    theirs = {row_name(row): dict(row) for row in missing}
    lines = []
    for row in extra:
        other = theirs.pop(row_name(row), None)
        if other is None:
            lines.append(f"  only ours {dict(row)}")
        else:
            columns = {name: (value, other[name]) for name, value in row if value != other[name]}
            lines.append(f"  {row_name(row)} (ours, theirs): {columns}")
    return lines + [f"  only theirs {row}" for row in theirs.values()]


def row_name(row: Row) -> tuple[Any, ...]:
    values = dict(row)
    return tuple(values[name] for name in ROW_NAME)
