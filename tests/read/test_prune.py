"""Pruning leaves out files, never rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lakebed
from conftest import REAL_TABLES
from lakebed.filter.predicate import parse_where
from lakebed.index.prune import Kept, Query
from lakebed.model.files import FileSlice
from lakebed.read.prune import pruners
from lakebed.read.scan import Explanation
from lakebed.table import open_handle
from rows import canonical, spark_rows

FILTERS = (
    "id = 'k001'",
    "id in ('k000', 'k003', 'nope')",
    "id > 'k002' and ts <= 30",
    "name = 'u1' or name = 'n2'",
    "ts = 10",
    "name is null",
    "_hoodie_record_key = 'k001'",
)


def steps(explanation: Explanation) -> dict[str, tuple[bool, int]]:
    return {step.index: (step.used, step.slices_after) for step in explanation.steps}


@pytest.mark.parametrize("name", [n for n in REAL_TABLES if "alltypes" not in n and "handmade" not in n])
def test_filtered_reads_equal_filtered_rows(unpack, name: str) -> None:
    """With every index and without any, a filter gives the rows of a full scan that match it."""
    pruned = lakebed.open_table(unpack(name).path)
    plain = lakebed.open_table(unpack(name).path, options={"hoodie.metadata.enable": "false"})
    for where in FILTERS:
        if all(column in pruned.schema.names for column in ("id", "ts", "name")) and (
            "_hoodie" not in where or pruned.config.has_meta_columns
        ):
            assert canonical(spark_rows(pruned.to_arrow(where=where))) == canonical(
                spark_rows(plain.to_arrow(where=where))
            )


def test_record_index_finds_the_one_slice(unpack) -> None:
    table = lakebed.open_table(unpack("hudi120_mor_part_compacted").path)
    assert steps(table.explain(where="id = 'k001'"))["record_index"] == (True, 1)
    assert steps(table.explain(where="id > 'k001'"))["record_index"][0] is False


def test_composite_keys_are_looked_up_in_every_spelling(unpack) -> None:
    table = lakebed.open_table(unpack("hudi111_cow_multipart_partitioned_rli").path)
    used = steps(table.explain(where="id = 'k001'"))
    assert used["record_index"] == (True, 1)
    assert table.to_arrow(where="id = 'k001'").num_rows == 1


def test_secondary_index_leads_to_the_record_index(unpack) -> None:
    table = lakebed.open_table(unpack("hudi120_cow_part_rli_fg4").path)
    used, _ = steps(table.explain(where="name = 'u1'"))["secondary_index"]
    assert used
    assert {row["name"] for row in table.to_arrow(where="name = 'u1'").to_pylist()} == {"u1"}


def test_partition_columns_exclude_folders(unpack) -> None:
    for name in ("hudi120_cow_part_upsert", "hudi111_mor_part_hive_timezone"):
        table = lakebed.open_table(unpack(name).path)
        assert steps(table.explain(where="region = 'eu'"))["partition path"] == (True, 1)
        assert {row["region"] for row in table.to_arrow(where="region = 'eu'").to_pylist()} == {"eu"}


def test_time_travel_does_not_ask_indexes_of_today(unpack) -> None:
    table = lakebed.open_table(unpack("hudi120_cow_part_upsert").path)
    first = table.timeline.completed()[0].requested_at
    explanation = table.explain(where="id = 'k000'", as_of=first)
    assert steps(explanation)["record_index"][0] is False
    assert table.to_arrow(where="id = 'k000'", as_of=first).num_rows == 1
    assert table.to_arrow(where="id = 'k000'").num_rows == 0


def test_explain_says_where_the_files_come_from(unpack) -> None:
    listed = lakebed.open_table(unpack("hudi111_cow_part_no_mdt").path).explain()
    assert "listing" in listed.files_from
    assert "metadata table" in lakebed.open_table(unpack("hudi120_cow_part_upsert").path).explain().files_from
    assert "record_index: 2 -> 1 file slices" in str(
        lakebed.open_table(unpack("hudi120_mor_part_compacted").path).explain(where="id = 'k001'")
    )


def test_explain_counts_what_planning_asked_of_the_store(unpack) -> None:
    table = lakebed.open_table(unpack("hudi120_mor_part_compacted").path)
    first, again = table.explain(where="id = 'k001'"), table.explain(where="id = 'k001'")
    assert first.requests.lists > 0
    assert first.requests.gets > 0
    # The second call finds everything in the handle.
    assert again.requests.lists == again.requests.gets == 0


def test_bloom_filters_exclude_base_files(unpack) -> None:
    state = open_handle(unpack("hudi120_mor_nonpart_all_indexes").path).state()
    schema = state.schema(state.latest)
    bases = tuple(replace(file_slice, logs=()) for file_slice in state.latest_slices)

    def kept(where: str, slices: tuple[FileSlice, ...]) -> int:
        query = Query(state.config, schema, parse_where(where, schema), state.metadata, is_latest=True)
        outcome = dict(pruners())["bloom_filters"](query, slices)
        assert isinstance(outcome, Kept)
        return len(outcome.slices)

    assert kept("id = 'k001'", bases) == 1
    assert kept("id = 'no such key'", bases) == 0
    # A log file may hold keys that its base file does not: of both slices, the one with logs stays.
    assert [bool(file_slice.logs) for file_slice in state.latest_slices] == [True, False]
    assert kept("id = 'no such key'", state.latest_slices) == 1
