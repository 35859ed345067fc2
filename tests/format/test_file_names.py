from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import RealTable
from lakebed.errors import CorruptTableError
from lakebed.format.file_names import (
    decode_data_file_name,
    encode_base_file_name,
    encode_log_file_name,
    log_merge_order,
)
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime

UUID = "9e1ff7e7-7578-4c65-9921-704ef5274d85-0"
T = InstantTime("20261115235530634")

BASE_FILES = [
    (f"{UUID}_0-1888-5259_{T}.parquet", (UUID, "0-1888-5259", T, ".parquet")),
    (f"{UUID}_1-0-1_{T[:14]}.orc", (UUID, "1-0-1", T[:14], ".orc")),
    ("00000001-8b77-44a6-b7bd-6a37ed9b5896-0_0-1-2_20261115235530634.parquet",
     ("00000001-8b77-44a6-b7bd-6a37ed9b5896-0", "0-1-2", T, ".parquet")),
    (f"files-0000-0_0-35-84_{T}001.hfile", ("files-0000-0", "0-35-84", f"{T}001", ".hfile")),
    (f"secondary-index-idx-name-0009-0_9-1-2_{T}.hfile", ("secondary-index-idx-name-0009-0", "9-1-2", T, ".hfile")),
    (f"record-index-region%3Deu%2Fname%3Dn1-0000-0_0-1-2_{T}.hfile",
     ("record-index-region%3Deu%2Fname%3Dn1-0000-0", "0-1-2", T, ".hfile")),
    (f"record-index-a_b%3D1-0000-0_0-1-2_{T}.hfile", ("record-index-a_b%3D1-0000-0", "0-1-2", T, ".hfile")),
]  # fmt: skip

LOG_FILES = [
    (f".{UUID}_{T}.log.1_0-945-2432", (UUID, T, 1, "0-945-2432", False)),
    (f".{UUID}_{T}.log.12_1-0-1.cdc", (UUID, T, 12, "1-0-1", True)),
    (f".{UUID}_{T}.log.1", (UUID, T, 1, "", False)),
    (".files-0000-0_00000000000000010.log.1_0-0-0", ("files-0000-0", "00000000000000010", 1, "0-0-0", False)),
    (f".record-index-a_b%3D1-0000-0_{T}.log.1_0-0-0", ("record-index-a_b%3D1-0000-0", T, 1, "0-0-0", False)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parts"), BASE_FILES)
def test_base_file_names(name: str, parts: tuple[str, str, InstantTime, str]) -> None:
    assert decode_data_file_name(name, size=7) == BaseFile(name, *parts, size=7)
    assert encode_base_file_name(*parts) == name


@pytest.mark.parametrize(("name", "parts"), LOG_FILES)
def test_log_file_names(name: str, parts: tuple[str, InstantTime, int, str, bool]) -> None:
    assert decode_data_file_name(name) == LogFile(name, *parts)
    assert encode_log_file_name(*parts) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".hoodie_partition_metadata",
        ".hoodie_partition_metadata.crc",
        f".{UUID}_0-1-2_{T}.parquet.crc",
        f".{UUID}_0-1-2_{T}.parquet",
        f"..{UUID}_{T}.log.1_0-1-2.crc",
        f"{UUID}_0-1-2_{T}.parquet.marker.CREATE",
        f"{UUID}_0-1-2_{T}.parquet.tmp",
        f"{UUID}_0-1-2_{T}.csv",
        f"{UUID}_0-1-2_2026.parquet",
        f"{UUID}_0-1-2_２０２６１１１５２３５５３０６３４.parquet",
        f"{UUID}_{T}.parquet",
        f"_0-1-2_{T}.parquet",
        f"eu/{UUID}_0-1-2_{T}.parquet",
        "part-00000.parquet",
        "_SUCCESS",
        ".commits_.archive.1_1-0-1",
        f"{UUID}_{T}.log.1_0-1-2",
        f".{UUID}_{T}.log.1_0-1",
        f".{UUID}_{T}.log.1_0-1-2.gz",
        f".{UUID}_{T}.log.one_0-1-2",
        f".{UUID}_{T}.log.1.cdc",
        f".{UUID}_{T}.log.1_0-1-2\n",
    ],
)
def test_other_files_are_passed_over(name: str) -> None:
    assert decode_data_file_name(name) is None


@pytest.mark.parametrize("version", ["2147483648", "9" * 5000])
def test_impossible_log_version_is_refused_and_names_the_folder(version: str) -> None:
    with pytest.raises(CorruptTableError, match=r"region=eu/\.f-0_"):
        decode_data_file_name(f".f-0_{T}.log.{version}_0-0-0", folder="region=eu")


def test_every_file_of_a_real_table_is_told_apart(real_table: RealTable) -> None:
    for path in _files(real_table.path):
        decoded = decode_data_file_name(path.name)
        if isinstance(decoded, BaseFile):
            parts = (decoded.file_id, decoded.write_token, decoded.instant, decoded.extension)
            assert encode_base_file_name(*parts) == path.name
        elif isinstance(decoded, LogFile):
            parts = (decoded.file_id, decoded.instant, decoded.version, decoded.write_token, decoded.is_cdc)
            assert encode_log_file_name(*parts) == path.name
        else:
            is_timeline = {"history", "archived"} & set(path.parts)
            assert is_timeline or (".log." not in path.name and path.suffix not in (".parquet", ".hfile")), path


def test_log_files_merge_by_instant_version_numeric_token_and_suffix() -> None:
    ordered = [
        f".{UUID}_{T[:-1]}0.log.9_9-9-9",
        f".{UUID}_{T}.log.1",
        f".{UUID}_{T}.log.1_0-2-10",
        f".{UUID}_{T}.log.1_0-10-2",
        f".{UUID}_{T}.log.1_0-10-2.cdc",
        f".{UUID}_{T}.log.2_0-1-1",
        f".{UUID}_{T}.log.10_0-1-1",
    ]
    logs = [decode_data_file_name(name) for name in reversed(ordered)]
    assert [log.name for log in sorted(logs, key=log_merge_order)] == ordered


TOKENS = st.from_regex(r"[0-9]{1,4}-[0-9]{1,4}-[0-9]{1,4}", fullmatch=True)
INSTANTS = st.from_regex(r"[0-9]{14,20}", fullmatch=True).filter(str.isascii)
FILE_IDS = st.from_regex(r"[a-z0-9%][a-z0-9%=_-]{0,30}", fullmatch=True)


@given(FILE_IDS, TOKENS, INSTANTS, st.integers(0, 2**31 - 1), st.booleans())
def test_round_trip(file_id: str, token: str, instant: str, version: int, is_cdc: bool) -> None:
    base = decode_data_file_name(encode_base_file_name(file_id, token, instant))
    assert isinstance(base, BaseFile)
    assert (base.file_id, base.write_token, base.instant) == (file_id, token, instant)
    log = decode_data_file_name(encode_log_file_name(file_id, instant, version, token, is_cdc))
    assert isinstance(log, LogFile)
    assert (log.file_id, log.instant, log.version, log.write_token) == (file_id, instant, version, token)
    assert log.is_cdc == is_cdc


@given(st.text())
def test_any_text_is_a_name_or_none(name: str) -> None:
    decode_data_file_name(name)


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]
