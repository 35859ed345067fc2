"""lakebed reads from a table of Apache Hudi what Apache Hudi reads from it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from interop.conftest import PeerTable

import lakebed

pytestmark = pytest.mark.interop


def canonical(value: Any) -> Any:
    """A hashable value that is equal for equal contents: maps have no order, bytes print alike, NaN equals itself."""
    if isinstance(value, dict):
        return tuple((key, canonical(inner)) for key, inner in value.items())
    if isinstance(value, list):
        items = [canonical(inner) for inner in value]
        return tuple(items)
    return repr(value) if isinstance(value, float) else value


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    maps = {field.name for field in table.schema if pa.types.is_map(field.type)}
    return Counter(
        tuple(
            (name, canonical(sorted(value) if name in maps and value is not None else value)) for name, value in row.items()
        )
        for row in table.to_pylist()
    )


def difference(ours: pa.Table, theirs: pa.Table) -> str:
    """What is only in one of the two, or nothing."""
    if sorted(ours.column_names) != sorted(theirs.column_names):
        return f"columns {ours.column_names}, Apache Hudi has {theirs.column_names}"
    mine, yours = rows_of(ours.select(theirs.column_names)), rows_of(theirs)
    extra, missing = list((mine - yours).elements()), list((yours - mine).elements())
    if not extra and not missing:
        return ""
    return f"{len(ours)} rows, Apache Hudi {len(theirs)}; extra {extra[:2]}; missing {missing[:2]}"


def check(table: PeerTable, kind: str, read: Any) -> None:
    """Hold every read of a kind against the answer of Apache Hudi, and report all differences at once."""
    wrong = []
    for asked, theirs in table.answered(kind):
        what = {key: value for key, value in asked.items() if key not in ("kind", "rows")}
        if text := difference(read(asked), theirs):
            wrong.append(f"{kind} {what}: {text}")
    assert not wrong, "\n".join([*wrong, table.about()])


def test_every_step_was_carried_out(peer_table: PeerTable) -> None:
    refused = [f"{step['action']}: {step['refused']}" for step in peer_table.steps if "refused" in step]
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
    def changes(read: dict[str, Any]) -> pa.Table:
        return lakebed.open_table(peer_table.path).changes(since=read["since"], until=read["until"])

    check(peer_table, "changes", changes)


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
    check(peer_table, "filter", lambda read: table.to_spark(where=read["where"]).toArrow())
    check(peer_table, "as_of", lambda read: table.to_spark(as_of=read["as_of"]).toArrow())
