from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptTableError
from lakebed.format.file_names import decode_instant_name, encode_instant_name
from lakebed.model.instant import Instant, instant_time
from lakebed.model.words import Action, State
from timeline_files import timeline_files

T, C = instant_time("20261115235530634"), instant_time("20261115235534458")
REQUESTED, INFLIGHT, COMPLETED = State.REQUESTED, State.INFLIGHT, State.COMPLETED


@pytest.mark.parametrize(
    ("layout", "name", "instant"),
    [
        (2, f"{T}.commit.requested", Instant(T, Action.COMMIT, REQUESTED)),
        (2, f"{T}.inflight", Instant(T, Action.COMMIT, INFLIGHT)),
        (2, f"{T}_{C}.commit", Instant(T, Action.COMMIT, COMPLETED, C)),
        (2, f"{T}.deltacommit.inflight", Instant(T, Action.DELTA_COMMIT, INFLIGHT)),
        (2, f"{T}.clustering.requested", Instant(T, Action.CLUSTERING, REQUESTED)),
        (2, f"{T}.logcompaction.inflight", Instant(T, Action.LOG_COMPACTION, INFLIGHT)),
        (2, f"{T}_{C}.savepoint", Instant(T, Action.SAVEPOINT, COMPLETED, C)),
        (1, f"{T}.commit.requested", Instant(T, Action.COMMIT, REQUESTED)),
        (1, f"{T}.inflight", Instant(T, Action.COMMIT, INFLIGHT)),
        (1, f"{T}.commit", Instant(T, Action.COMMIT, COMPLETED, T)),
        (1, f"{T}006.rollback", Instant(instant_time(f"{T}006"), Action.ROLLBACK, COMPLETED, instant_time(f"{T}006"))),
        (1, f"{T}.replacecommit.requested", Instant(T, Action.REPLACE_COMMIT, REQUESTED)),
        (1, f"{T}.compaction.requested", Instant(T, Action.COMPACTION, REQUESTED)),
        (1, f"{T}.savepoint.inflight", Instant(T, Action.SAVEPOINT, INFLIGHT)),
        (1, f"{T}.restore.inflight", Instant(T, Action.RESTORE, INFLIGHT)),
        (1, f"{T}.indexing", Instant(T, Action.INDEXING, COMPLETED, T)),
        (1, f"{T[:14]}.clean", Instant(instant_time(T[:14]), Action.CLEAN, COMPLETED, instant_time(T[:14]))),
    ],
)
def test_names(layout: int, name: str, instant: Instant) -> None:
    assert decode_instant_name(name, layout=layout) == instant
    assert encode_instant_name(instant, layout=layout) == name


@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "",
        "history",
        "archived",
        "metadata",
        "hoodie.properties",
        "hoodie.properties.backup",
        ".aux",
        ".commit",
        f".{T}_{C}.commit.crc",
        f".{T}.commit.crc",
        f"{T}_{C}.commit.crc",
        f"{T}_{C}.schemacommit",
        f"{T}.schemacommit",
        f"{T}.schemacommit.inflight",
        f"{T}.commit.requested.tmp",
        f"{T}.commit.completed",
        f"{T}_{C}.compaction",
        f"{T}.requested",
        f"{T}",
    ],
)
def test_other_files_are_no_instants(name: str, layout: int) -> None:
    assert decode_instant_name(name, layout=layout) is None


def test_layout_1_has_no_clustering() -> None:
    assert decode_instant_name(f"{T}.clustering.requested", layout=1) is None
    clustering = Instant(T, Action.CLUSTERING, REQUESTED)
    assert encode_instant_name(clustering, layout=1) == f"{T}.replacecommit.requested"


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        (2, f"{T}.commit"),
        (2, f"{T}_.commit"),
        (2, f"_{C}.commit"),
        (2, f"{T}_{C}_{C}.commit"),
        (2, f"{T}_{C}.commit.requested"),
        (2, "x.inflight"),
        (2, f"{T} .clean.inflight"),
        (2, "٢٠٢٦١١١٥٢٣٥٥٣٠.clean.inflight"),
        (1, f"{T}_{C}.commit"),
        (1, "2026.commit"),
        (1, f"{T}\n.commit"),
    ],
)
def test_broken_times_are_refused(layout: int, name: str) -> None:
    with pytest.raises(CorruptTableError) as caught:
        decode_instant_name(name, layout=layout, folder=".hoodie/timeline")
    assert caught.value.path == f".hoodie/timeline/{name}"


@pytest.mark.parametrize(
    ("action", "filed_as"),
    [
        (Action.COMPACTION, "commit"),
        (Action.LOG_COMPACTION, "deltacommit"),
        (Action.CLUSTERING, "replacecommit"),
    ],
)
def test_services_complete_as_writes(action: Action, filed_as: str) -> None:
    completed = Instant(T, action, COMPLETED, C)
    assert encode_instant_name(completed, layout=2) == f"{T}_{C}.{filed_as}"
    assert encode_instant_name(completed, layout=1) == f"{T}.{filed_as}"


times = st.text("0123456789", min_size=14, max_size=20).map(instant_time)
pending = st.builds(Instant, times, st.sampled_from(Action), st.sampled_from([REQUESTED, INFLIGHT]))
completed = st.builds(
    Instant, times, st.sampled_from([a for a in Action if a.when_completed is a]), st.just(COMPLETED), times
)


@given(pending | completed)
def test_round_trip(instant: Instant) -> None:
    assert decode_instant_name(encode_instant_name(instant, layout=2), layout=2) == instant


@given(st.text(), st.sampled_from([1, 2]))
def test_any_name_is_an_instant_or_not_or_refused(name: str, layout: int) -> None:
    for tail in ("", ".commit", ".inflight", ".clean.requested"):
        try:
            instant = decode_instant_name(name + tail, layout=layout)
        except CorruptTableError:
            continue
        assert instant is None or encode_instant_name(instant, layout=layout) == name + tail


def test_real_timelines() -> None:
    counts = {1: 0, 2: 0}
    for file in timeline_files():
        instant = decode_instant_name(file.name, layout=file.layout, folder=str(file.path.parent))
        if instant is None:
            assert file.name == "hoodie.properties", file
        else:
            assert encode_instant_name(instant, layout=file.layout) == file.name
            counts[file.layout] += 1
    assert counts[1] > 250
    assert counts[2] > 2000
