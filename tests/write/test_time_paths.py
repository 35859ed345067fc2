"""Expected paths were written by Apache Hudi 1.2.0 with its timestamp-based key generator."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.write.rows.partition_paths import partition_paths, plan_paths
from write.configs import HIVE_STYLE, URL_ENCODED, table_config

SECONDS = pa.array([1704164645, -1, None], pa.int32())
MILLIS = pa.array([1704164645123, -1, None])
MICROS = pa.array([1704164645123456, -1, None])
TEXTS = {
    "plain": pa.array(["2024-01-02 03:04:05", "1969-12-31 23:59:59", None]),
    "iso": pa.array(["2024-01-02T03:04:05.123Z", "1969-12-31T23:59:59.999Z", None]),
    "offset": pa.array(["2024-01-02T03:04:05+05:30", "1969-12-31T23:59:59-08:00", None]),
    "digits": pa.array(["20240102", "19691231", None]),
}
UNIX = {"timestamp.type": "UNIX_TIMESTAMP", "timezone": "UTC"}
MS = {"timestamp.type": "EPOCHMILLISECONDS", "timezone": "UTC"}
TEXT = {"timestamp.type": "DATE_STRING"}
PLAIN = {**TEXT, "input.dateformat": "yyyy-MM-dd HH:mm:ss"}
OFFSET = {**TEXT, "input.dateformat": "yyyy-MM-dd'T'HH:mm:ssZ"}


def paths_of(values: Any, settings: dict[str, str], **style: str) -> list[str]:
    spelled = {f"hoodie.keygen.timebased.{name}": value for name, value in settings.items()}
    config = table_config("k", "t", "TIMESTAMP", **spelled, **style)
    batch = pa.RecordBatch.from_pydict({"t": values})
    paths = partition_paths(batch, plan_paths(config, batch.schema), first_row=10)
    paths.validate(full=True)
    return paths.to_pylist()


@pytest.mark.parametrize(
    ("values", "settings", "output", "expected"),
    [
        (SECONDS, UNIX, "yyyy/MM/dd", ["2024/01/02", "1969/12/31", "1970/01/01"]),
        (
            MILLIS,
            {"timestamp.type": "EPOCHMILLISECONDS", "timezone": "GMT+8:00"},
            "yyyy-MM-dd hh",
            ["2024-01-02 11", "1970-01-01 07", "1970-01-01 08"],
        ),
        (
            MICROS,
            {"timestamp.type": "EPOCHMICROSECONDS", "output.timezone": "America/New_York"},
            "yyyyMMdd",
            ["20240101", "19691231", "19691231"],
        ),
        (
            pa.array([19724, -1, None]),
            {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "DAYS", "timezone": "UTC"},
            "yyyy-MM-dd",
            ["2024-01-02", "1969-12-31", "1970-01-02"],
        ),
        (
            pa.array([1704164645.9, -0.5, None]),
            UNIX,
            "yyyy-MM-dd-HH-mm-ss",
            ["2024-01-02-03-04-05", "1970-01-01-00-00-00", "1970-01-01-00-00-01"],
        ),
        (
            pa.array([date(2024, 1, 2), date(1969, 12, 31), None]),
            {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "days", "timezone": "UTC"},
            "yyyy-MM-dd",
            ["2024-01-02", "1969-12-31", "1970-01-02"],
        ),
        (
            pa.array([date(2024, 1, 2), date(1969, 12, 31), None]),
            MS,
            "yyyy-MM-dd",
            ["1970-01-01", "1969-12-31", "1970-01-01"],
        ),
        (
            MICROS.cast(pa.timestamp("us", "UTC")),
            {"timestamp.type": "EPOCHMICROSECONDS", "timezone": "UTC"},
            "yyyy-MM-dd HH",
            ["2024-01-02 03", "1970-01-01 00", "1970-01-01 00"],
        ),
        (TEXTS["plain"], PLAIN, "yyyy/MM/dd", ["2024/01/02", "1969/12/31", "1970/01/01"]),
        (
            TEXTS["plain"],
            {**PLAIN, "input.timezone": "UTC", "output.timezone": "Asia/Kolkata"},
            "yyyy/MM/dd/HH",
            ["2024/01/02/08", "1970/01/01/05", "1970/01/01/05"],
        ),
        (TEXTS["plain"].slice(0, 1), {**PLAIN, "input.timezone": "Asia/Kolkata"}, "yyyy-MM-dd HH", ["2024-01-02 03"]),
        (
            TEXTS["iso"],
            {**TEXT, "input.dateformat": "yyyy-MM-dd'T'HH:mm:ss.SSSZ"},
            "yyyyMMddHH",
            ["2024010203", "1969123123", "1970010100"],
        ),
        (TEXTS["offset"], OFFSET, "yyyyMMddHH", ["2024010203", "1969123123", "1970010100"]),
        (
            TEXTS["offset"],
            {**OFFSET, "output.timezone": "UTC"},
            "yyyyMMddHH",
            ["2024010121", "1970010107", "1970010100"],
        ),
        (
            TEXTS["digits"],
            {**TEXT, "input.dateformat": "yyyy-MM-dd,yyyyMMdd", "timezone": "UTC"},
            "yyyy-MM-dd",
            ["2024-01-02", "1969-12-31", "1970-01-01"],
        ),
    ],
)
def test_paths_are_those_of_apache_hudi(
    values: pa.Array, settings: dict[str, str], output: str, expected: list[str]
) -> None:
    assert paths_of(values, {**settings, "output.dateformat": output}) == expected


def test_styles_apply_to_times() -> None:
    settings = {**UNIX, "output.dateformat": "yyyy/MM/dd"}
    assert paths_of(SECONDS[:1], settings, **HIVE_STYLE) == ["t=2024/01/02"]
    assert paths_of(SECONDS[:1], settings, **HIVE_STYLE, **URL_ENCODED) == ["t=2024%2F01%2F02"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy", ["2024", "1969", "1970"]),
        ("yy", ["24", "69", "70"]),
        ("y", ["2024", "1969", "1970"]),
        ("yyyyy", ["02024", "01969", "01970"]),
        ("MM", ["01", "12", "01"]),
        ("M", ["1", "12", "1"]),
        ("d", ["2", "31", "1"]),
        ("DDD", ["002", "365", "001"]),
        ("D", ["2", "365", "1"]),
        ("H", ["3", "23", "0"]),
        ("hh", ["03", "11", "12"]),
        ("kk", ["03", "23", "24"]),
        ("KK", ["03", "11", "00"]),
        ("m", ["4", "59", "0"]),
        ("ss", ["05", "59", "00"]),
        ("SSS", ["123", "999", "001"]),
        ("SS", ["12", "99", "00"]),
        ("S", ["1", "9", "0"]),
        ("'year='yyyy'/m='MM", ["year=2024/m=01", "year=1969/m=12", "year=1970/m=01"]),
        ("yyyy''MM", ["2024'01", "1969'12", "1970'01"]),
    ],
)
def test_output_patterns(pattern: str, expected: list[str]) -> None:
    assert paths_of(MILLIS, {**MS, "output.dateformat": pattern}) == expected


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("2024-1-2 3:4:5", "yyyy-MM-dd HH:mm:ss", "2024-01-02 03.04.05.000"),
        ("24-01-02 03:04:05", "yyyy-MM-dd HH:mm:ss", "0024-01-02 03.04.05.000"),
        ("20240102", "yyyyMMdd", "2024-01-02 00.00.00.000"),
        ("2024012", "yyyyMMdd", "2024-01-02 00.00.00.000"),
        ("2024-01-02T03:04:05.12", "yyyy-MM-dd'T'HH:mm:ss.SSS", "2024-01-02 03.04.05.120"),
        ("2024-01-02T03:04:05.123456", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "2024-01-02 03.04.05.123"),
        ("2024-01-02+0530", "yyyy-MM-ddZ", "2024-01-01 18.30.00.000"),
        ("2024-01-02 03:04:05x", "yyyy-MM-dd HH:mm:ss", None),
        ("2024-02-30 00:00:00", "yyyy-MM-dd HH:mm:ss", None),
        (" 2024-01-02 03:04:05", "yyyy-MM-dd HH:mm:ss", None),
        ("2024-001-02 03:04:05", "yyyy-MM-dd HH:mm:ss", None),
        ("202412", "yyyyMMdd", None),
        ("120240102", "yyyyMMdd", None),
        ("2024-01-02T03:04:05.123456", "yyyy-MM-dd'T'HH:mm:ss.SSS", None),
        ("", "yyyy-MM-dd", None),
    ],
)
def test_input_patterns(text: str, pattern: str, expected: str | None) -> None:
    settings = {**TEXT, "input.dateformat": pattern, "output.dateformat": "yyyy-MM-dd HH.mm.ss.SSS", "timezone": "UTC"}
    if expected is not None:
        assert paths_of([text], settings) == [expected]
        return
    with pytest.raises(InvalidInputError, match=r"row 10: column 't' is .*not a time"):
        paths_of([text], settings)


# Where no zone is stated, Apache Hudi takes that of the machine: the same second was 2024-01-02 03 and 2024-01-01 22.
@pytest.mark.parametrize(
    ("values", "settings"),
    [
        (SECONDS, {"timestamp.type": "UNIX_TIMESTAMP"}),
        (SECONDS, {"timestamp.type": "UNIX_TIMESTAMP", "input.timezone": "UTC"}),
        (TEXTS["plain"], {**PLAIN, "output.timezone": "UTC"}),
    ],
)
def test_the_zone_of_the_machine_is_not_asked(values: pa.Array, settings: dict[str, str]) -> None:
    with pytest.raises(UnsupportedTableError, match="local zone of the writing machine"):
        paths_of(values, {**settings, "output.dateformat": "yyyy"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({**UNIX, "output.dateformat": "MMM"}, "'MMM'"),
        ({**UNIX, "output.dateformat": "EEE"}, "'EEE'"),
        ({**UNIX, "output.dateformat": "yyyy'"}, "time pattern"),
        ({**UNIX, "output.dateformat": "yyyy", "timezone": "EST"}, "'EST'"),
        ({**UNIX, "output.dateformat": "yyyy", "timezone": "Nowhere/City"}, "'Nowhere/City'"),
        ({"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": "WEEKS"}, "WEEKS"),
        ({"timestamp.type": "SOON"}, "SOON"),
        ({}, "unknown"),
        ({**TEXT, "output.dateformat": "yyyy"}, "without a pattern"),
        ({**TEXT, "output.dateformat": "yyyy", "input.dateformat": "MMM d yyyy"}, "'MMM'"),
        ({**TEXT, "output.dateformat": "yyyy", "input.dateformat": "MM-dd"}, "'MM-dd'"),
        ({**TEXT, "output.dateformat": "yyyy", "input.dateformat": "yyyy yyyy"}, "yyyy yyyy"),
        ({**TEXT, "output.dateformat": "yyyy", "input.dateformat": "yyyy,yyyyZ"}, "with and without a zone"),
    ],
)
def test_what_is_not_known_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UnsupportedTableError, match=message):
        paths_of(SECONDS, settings)


@pytest.mark.parametrize(
    ("values", "settings", "message"),
    [
        (MICROS.cast(pa.timestamp("us")), MS, "EPOCHMICROSECONDS"),
        (MICROS, MS, "years 1 to 9999"),
        (pa.array([2**62]), UNIX, "years 1 to 9999"),
        (pa.array(["2024"]), UNIX, "numbers or times"),
        (SECONDS, {**PLAIN, "timezone": "UTC"}, "give it text"),
        (
            pa.array(["2024-03-31 02:30:00"]),
            {**PLAIN, "input.timezone": "Europe/Berlin", "output.timezone": "UTC"},
            "skips",
        ),
    ],
)
def test_values_that_do_not_fit_are_refused(values: pa.Array, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        paths_of(values, {**settings, "output.dateformat": "yyyy-MM-dd"})


@given(st.lists(st.integers(-62135596800, 253402300799), min_size=1), st.sampled_from([0, 330, -480]))
def test_any_second_is_spelled_as_python_spells_it(seconds: list[int], offset: int) -> None:
    zone = timezone(timedelta(minutes=offset))
    hours, minutes = divmod(abs(offset), 60)
    settings = {
        "timestamp.type": "UNIX_TIMESTAMP",
        "timezone": f"GMT{'-' if offset < 0 else '+'}{hours}:{minutes:02d}",
        "output.dateformat": "yyyy-MM-dd/HH-mm-ss",
    }
    epoch = datetime(1970, 1, 1)
    seconds = [second for second in seconds if abs(second) < 62135000000]
    expected = [epoch + timedelta(seconds=second) + zone.utcoffset(None) for second in seconds]
    assert paths_of(pa.array(seconds, pa.int64()), settings) == [
        f"{moment.isoformat(sep='/').replace(':', '-')}" for moment in expected
    ]
