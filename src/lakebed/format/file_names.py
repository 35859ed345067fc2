"""Names of data files.

    base file   <file id>_<write token>_<instant>.parquet
    log file    .<file id>_<instant>.log.<version>_<write token>          (no token in old version 6 tables)
    CDC file    .<file id>_<instant>.log.<version>_<write token>.cdc

Names are taken apart from the right: the write token, instant and version have no `_`, while nothing keeps
one out of a file id of the metadata table that spells a partition.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lakebed.errors import CorruptTableError
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime, instant_time

_INSTANT = r"(?P<instant>[0-9]{14,20})"
_BASE_FILE = re.compile(
    rf"(?P<file_id>[^./][^/]*)_(?P<token>[A-Za-z0-9-]+)_{_INSTANT}(?P<extension>\.(?:parquet|orc|hfile|lance))"
)
_LOG_FILE = re.compile(
    rf"\.(?P<file_id>[^/]+)_{_INSTANT}\.log\.(?P<version>[0-9]+)"
    r"(?:_(?P<token>[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,18})(?P<cdc>\.cdc)?)?"
)


def decode_data_file_name(name: str, *, size: int | None = None, folder: str = "") -> BaseFile | LogFile | None:
    """The data file of this name, or None for any other file: partitions may hold markers, checksums, foreign files.

    A log file with an impossible version raises CorruptTableError, which names `folder`: it is the one kind of
    broken name that Hudi does not pass over either.
    """
    return _decode(name, size, folder)


@lru_cache(maxsize=1 << 16)
def _decode(name: str, size: int | None, folder: str) -> BaseFile | LogFile | None:
    if match := _BASE_FILE.fullmatch(name):
        instant = InstantTime(match["instant"])
        return BaseFile(name, match["file_id"], match["token"], instant, match["extension"], size)
    if match := _LOG_FILE.fullmatch(name):
        return LogFile(
            name=name,
            file_id=match["file_id"],
            instant=InstantTime(match["instant"]),
            version=_log_version(match["version"], f"{folder}/{name}" if folder else name),
            write_token=match["token"] or "",
            is_cdc=match["cdc"] is not None,
            size=size,
        )
    return None


def encode_base_file_name(file_id: str, write_token: str, instant: str, extension: str = ".parquet") -> str:
    """The name of the base file that `instant` writes for a file group."""
    return f"{file_id}_{write_token}_{instant_time(instant)}{extension}"


def encode_log_file_name(file_id: str, instant: str, version: int, write_token: str, is_cdc: bool = False) -> str:
    """The name of a log file; an empty write token leaves the token out, as old version 6 writers did."""
    assert write_token or not is_cdc, "a CDC file has a write token"
    token = f"_{write_token}" if write_token else ""
    return f".{file_id}_{instant_time(instant)}.log.{version}{token}{'.cdc' if is_cdc else ''}"


def log_merge_order(log: LogFile) -> tuple[str, int, tuple[int, ...], bool]:
    """Sort key of the log files of a slice: later ones are merged on top of earlier ones."""
    token = tuple(int(part) for part in log.write_token.split("-") if part)
    return log.instant, log.version, token, log.is_cdc


def _log_version(digits: str, path: str) -> int:
    # Java's int; the length goes first because Python refuses to convert thousands of digits.
    if len(digits) > 10 or int(digits) > 0x7FFFFFFF:
        raise CorruptTableError("the log file's version is out of range", path=path)
    return int(digits)
