"""Plans of clusterings: what is packed together, and the bytes of Apache Hudi's own plans."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import encode_base_file_name, encode_log_file_name
from lakebed.format.timeline.metadata import decode_document
from lakebed.format.timeline.plans import decode_clustering_plan, encode_clustering_plan
from lakebed.model.commit import ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.services.clustering.plan import (
    STRATEGY,
    ClusteringOptions,
    ClusteringSizing,
    parse_clustering_options,
    plan_clustering,
)

_MIB = 1 << 20
TARGET = 120 * _MIB


def a_slice(number: int, size: int, partition: str = "p", logs: int = 0) -> FileSlice:
    file_id, instant = f"g{number:03d}", InstantTime(f"2026111600000{number:04d}")
    base = BaseFile(encode_base_file_name(file_id, "0-0-0", instant), file_id, "0-0-0", instant, ".parquet", size)
    log = encode_log_file_name(file_id, instant, 1, "0-0-0")
    files = (LogFile(log, file_id, instant, 1, "0-0-0", size=logs),) if logs else ()
    return FileSlice(FileGroupId(partition, file_id), instant, base, files)


def ids(plan: ClusteringPlan | None) -> list[list[str]]:
    assert plan is not None
    return [[each.file_id for each in group.slices] for group in plan.groups]


def test_small_files_are_stitched_and_large_ones_left_alone() -> None:
    slices = [a_slice(0, 110 * _MIB), a_slice(1, 30 * _MIB), a_slice(2, 20 * _MIB), a_slice(3, 5 * _MIB, "q")]
    plan = plan_clustering(slices, ClusteringOptions(), target_file_bytes=TARGET)
    assert ids(plan) == [["g001", "g002"]], "one file of a partition has nothing to be stitched to"
    assert plan is not None
    assert (plan.groups[0].output_count, plan.strategy, plan.params) == (1, STRATEGY, {})
    assert plan.preserve_meta_columns


def test_stitching_that_would_leave_as_many_files_is_not_planned() -> None:
    slices = [a_slice(number, 90 * _MIB) for number in range(2)]
    assert plan_clustering(slices, ClusteringOptions(), target_file_bytes=TARGET) is None


def test_with_an_order_every_file_takes_part() -> None:
    slices = [a_slice(0, 500 * _MIB), a_slice(1, 30 * _MIB), a_slice(2, 30 * _MIB, "q", logs=7)]
    options = ClusteringOptions(order_by=("a", "b"), layout="hilbert")
    plan = plan_clustering(slices, options, target_file_bytes=TARGET)
    assert ids(plan) == [["g000"], ["g001"], ["g002"]], "groups hold no more than 512 MiB"
    assert plan is not None
    assert [group.output_count for group in plan.groups] == [5, 1, 1]
    assert plan.groups[2].metrics["TOTAL_LOG_FILES_SIZE"] == 7
    assert plan.params == {
        "hoodie.clustering.plan.strategy.sort.columns": "a,b",
        "hoodie.layout.optimize.strategy": "HILBERT",
    }


def test_the_oldest_files_come_first_where_not_all_can() -> None:
    slices = [a_slice(9 - number, _MIB, f"p{number}") for number in range(8)]
    options = ClusteringOptions(order_by=("a",), sizing=ClusteringSizing(groups_max=2))
    assert ids(plan_clustering(slices, options, target_file_bytes=TARGET)) == [["g002"], ["g003"]]


def test_only_partitions_that_are_asked_for() -> None:
    slices = [a_slice(number, _MIB, "pq"[number % 2]) for number in range(6)]
    plan = plan_clustering(slices, ClusteringOptions(partitions=("q",)), target_file_bytes=TARGET)
    assert {each.partition for group in (plan.groups if plan else ()) for each in group.slices} == {"q"}


SIZES = st.lists(st.tuples(st.integers(0, 200), st.sampled_from("pq")), max_size=30)


@given(sizes=SIZES, group_max=st.integers(1, 300), target=st.integers(1, 200), ordered=st.booleans())
def test_any_plan_has_each_slice_once_in_groups_of_one_partition(
    sizes: list[tuple[int, str]], group_max: int, target: int, ordered: bool
) -> None:
    slices = [a_slice(number, size, partition) for number, (size, partition) in enumerate(sizes)]
    sizing = ClusteringSizing(target_file_bytes=target, group_bytes_max=group_max, groups_max=1000)
    options = ClusteringOptions(order_by=("a",) if ordered else (), sizing=sizing)
    plan = plan_clustering(slices, options, target_file_bytes=1)
    groups = plan.groups if plan else ()
    names = [each.file_id for group in groups for each in group.slices]
    size_of = {f"g{number:03d}": size for number, (size, _) in enumerate(sizes)}
    assert len(names) == len(set(names))
    assert not ordered or len(names) == len(slices)
    for group in groups:
        assert len({each.partition for each in group.slices}) == 1
        total = sum(size_of[each.file_id] for each in group.slices)
        assert total <= group_max or len(group.slices) == 1
        assert group.output_count == max(1, -(-total // target))
        assert ordered or group.output_count < len(group.slices)


@pytest.mark.parametrize("release", ["hudi111", "hudi120"])
def test_a_plan_of_apache_hudi_comes_back_as_it_was(unpack, release: str) -> None:
    table = unpack(f"{release}_cow_nonpart_clustered").path
    (path,) = Path(table).glob(".hoodie/timeline/*.clustering.requested")
    data = path.read_bytes()
    plan = decode_clustering_plan(data, path=path.name)
    assert plan.params == {"hoodie.clustering.plan.strategy.sort.columns": "id"}
    assert [len(group.slices) for group in plan.groups] == [2]
    document = decode_document(data, "HoodieRequestedReplaceMetadata", path=path.name)
    stored = document["clusteringPlan"]["inputGroups"][0]["slices"][0]["dataFilePath"]
    again = encode_clustering_plan(plan, table_url=stored.rpartition("/")[0])
    assert decode_document(again, "HoodieRequestedReplaceMetadata", path="again") == document


TEXTS = st.text("abc-_0", min_size=1, max_size=8)
SLICES = st.builds(
    ClusteringSlice, st.sampled_from(["", "p", "a/b"]), TEXTS, st.none() | TEXTS, st.lists(TEXTS).map(tuple)
)
GROUPS = st.builds(
    ClusteringGroup, st.lists(SLICES).map(tuple), st.integers(0, 9), st.dictionaries(TEXTS, st.floats(0, 9))
)
PLANS = st.builds(
    ClusteringPlan,
    st.lists(GROUPS, max_size=3).map(tuple),
    st.text(max_size=5),
    st.dictionaries(TEXTS, TEXTS),
    st.booleans(),
    st.dictionaries(TEXTS, TEXTS),
)


@given(plan=PLANS)
def test_plans_survive_encoding(plan: ClusteringPlan) -> None:
    data = encode_clustering_plan(plan, table_url="s3://bucket/t")
    assert decode_clustering_plan(data, path="p") == plan


def test_options_have_the_spellings_of_apache_hudi() -> None:
    prefix = "hoodie.clustering.plan.strategy."
    options = parse_clustering_options(
        {
            f"{prefix}sort.columns": "city, fare",
            f"{prefix}target.file.max.bytes": "7",
            f"{prefix}small.file.limit": "5",
            f"{prefix}max.bytes.per.group": "11",
            f"{prefix}max.num.groups": "2",
            f"{prefix}partition.selected": "a,b",
            "hoodie.layout.optimize.strategy": "ZORDER",
            "hoodie.table.name": "t",
        }
    )
    sizing = ClusteringSizing(target_file_bytes=7, small_file_bytes=5, group_bytes_max=11, groups_max=2)
    assert options == ClusteringOptions(
        order_by=("city", "fare"), layout="z-order", partitions=("a", "b"), sizing=sizing
    )
    assert parse_clustering_options({}) == ClusteringOptions()


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.layout.optimize.strategy": "zigzag"},
        {"hoodie.clustering.plan.strategy.max.num.groups": "many"},
        {"hoodie.clustering.plan.strategy.max.num.groups": "0"},
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError):
        parse_clustering_options(given)
