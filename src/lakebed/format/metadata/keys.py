"""Keys of metadata-table records, and the file ids of the groups that hold them.

    files             __all_partitions__, or a data partition ('.' when the table is not partitioned)
    column_stats      b64(h64(column)) + b64(h64(partition)) + b64(md5(file name))
    partition_stats   b64(h64(column)) + b64(h64(partition))
    bloom_filters     b64(h64(partition)) + b64(md5(file name))
    record_index      the record key
    secondary index   escaped value + '$' + escaped record key

The keys of secondary indexes have their own module, `secondary_keys`; their functions can be imported from here, too.
"""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from uuid import UUID

import xxhash

from lakebed.format.metadata.secondary_keys import (
    escape_secondary,
    has_certain_text,
    secondary_hash_part,
    secondary_key,
    secondary_prefix,
    secondary_value_text,
    split_secondary_key,
)

__all__ = [
    "ALL_PARTITIONS",
    "PARTITION_STAT_PREFIX",
    "bloom_key",
    "column_stats_key",
    "column_stats_prefix",
    "data_partition_of_group",
    "escape_partition",
    "escape_secondary",
    "expression_partition_stats_key",
    "file_id_of_bits",
    "group_file_id",
    "group_index",
    "has_certain_text",
    "instant_millis",
    "instant_of_millis",
    "is_group_of",
    "partition_key",
    "partition_of_key",
    "partition_stats_key",
    "secondary_hash_part",
    "secondary_key",
    "secondary_prefix",
    "secondary_value_text",
    "split_secondary_key",
    "unescape_partition",
    "uuid_bits",
]

ALL_PARTITIONS = "__all_partitions__"
PARTITION_STAT_PREFIX = "__partition_stat__"
"""Marks keys of an expression index that are for whole partitions; stands before the partition."""

_NOT_PARTITIONED = "."
_SEED = 0xFFFFFFFF_DABADABA
_FILE_ID_PREFIXES = {"column_stats": "col-stats"}
_RECORD_INDEX_GROUP = re.compile(r"record-index-(?:(?P<partition>[^-]*)-)?(?P<index>[0-9]{4,})(?:-0)?", re.DOTALL)
_GROUP = re.compile(r".*-(?P<index>[0-9]{4,})(?:-0)?", re.DOTALL)
# The set that Hive escapes in partition names, and the two characters that part file ids and file names.
_TO_ESCAPE = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^_-]""")
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_NO_INDEX = -1
_INT32_MAX = 2**31 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def partition_key(partition: str) -> str:
    """The key under which the files of a data partition are listed."""
    return partition or _NOT_PARTITIONED


def partition_of_key(key: str) -> str:
    """Inverse of `partition_key`."""
    return "" if key == _NOT_PARTITIONED else key


def column_stats_key(column: str, partition: str, file_name: str) -> str:
    """The key of a column's statistics in one file."""
    return column_stats_prefix(column, partition) + _md5_text(file_name)


def column_stats_prefix(column: str, partition: str | None = None) -> str:
    """The prefix of the keys of a column: in all partitions, or in one."""
    return _hash_text(column) + ("" if partition is None else _hash_text(partition_key(partition)))


def partition_stats_key(column: str, partition: str) -> str:
    """The key of a column's statistics over a whole partition."""
    return column_stats_prefix(column, partition)


def expression_partition_stats_key(column: str, partition: str) -> str:
    """The key under which an expression index has the statistics of a whole partition."""
    return _hash_text(column) + _hash_text(PARTITION_STAT_PREFIX) + _hash_text(partition_key(partition))


def bloom_key(partition: str, file_name: str) -> str:
    """The key of a base file's bloom filter."""
    return _hash_text(partition_key(partition)) + _md5_text(file_name)


@lru_cache(maxsize=4096)
def _hash_text(text: str) -> str:
    """Cached: columns and partitions recur with every file."""
    return base64.b64encode(xxhash.xxh64_digest(text.encode(), _SEED)).decode()


@lru_cache(maxsize=4096)
def _md5_text(text: str) -> str:
    """Cached: a file has statistics of many columns."""
    return base64.b64encode(hashlib.md5(text.encode(), usedforsecurity=False).digest()).decode()


def group_file_id(mdt_partition: str, index: int, data_partition: str | None = None) -> str:
    """The file id of a metadata-table file group.

    `data_partition` is given only for a partitioned record index, where each data partition has its own groups.
    """
    assert data_partition is None or mdt_partition == "record_index", mdt_partition
    partition = "" if data_partition is None else f"{escape_partition(data_partition)}-"
    return f"{_file_id_prefix(mdt_partition)}{partition}{index:04d}-0"


@lru_cache(maxsize=4096)
def is_group_of(file_id: str, mdt_partition: str) -> bool:
    """Whether a file id names a group of a partition. Apache Hudi 1.2 cleans expression indexes in `column_stats`."""
    return file_id.startswith(_file_id_prefix(mdt_partition)) and group_index(file_id) is not None


def _file_id_prefix(mdt_partition: str) -> str:
    return _FILE_ID_PREFIXES.get(mdt_partition, mdt_partition.replace("_", "-")) + "-"


def group_index(file_id: str) -> int | None:
    """The number of a file group in its (data) partition; None for other file ids. Old ids lack the last `-0`."""
    match = _GROUP.fullmatch(file_id)
    return int(match["index"]) if match else None


def data_partition_of_group(file_id: str) -> str | None:
    """The data partition of a group of a partitioned record index; None for any other file id."""
    match = _RECORD_INDEX_GROUP.fullmatch(file_id)
    return None if match is None or match["partition"] is None else unescape_partition(match["partition"])


def escape_partition(partition: str) -> str:
    """A data partition as part of a file id: `-`, `_`, `/` and all characters that Hive escapes are escaped."""
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", partition)


def unescape_partition(escaped: str) -> str:
    """Inverse of `escape_partition`; a `%` that begins no escape is kept."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), escaped)


def instant_millis(instant: str, zone: tzinfo) -> int:
    """Milliseconds since 1970 of an instant time in the timeline's zone, as the record index stores it.

    An instant without milliseconds counts as the end of its second. One that is not a date raises ValueError.
    """
    if not (instant.isascii() and instant.isdigit() and len(instant) in (14, 17)):
        raise ValueError(f"not an instant that has a date: {instant!r}")
    second = datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
    return (second - _EPOCH) // timedelta(milliseconds=1) + int(instant[14:] or 999)


def instant_of_millis(millis: int, zone: tzinfo) -> str:
    """The instant time, of 17 digits, of milliseconds since 1970; outside the years 1 to 9999 raises OverflowError."""
    local = (_EPOCH + timedelta(milliseconds=millis)).astimezone(zone)
    return f"{local:%Y%m%d%H%M%S}".zfill(14) + f"{local.microsecond // 1000:03d}"


def uuid_bits(file_id: str) -> tuple[int, int, int] | None:
    """A file id of a UUID and an index as two signed 64-bit halves and the index (-1 if there is none).

    None if the id does not have exactly that form and could not be restored from the bits.
    """
    uuid, index = file_id[:36], file_id[37:]
    if not _UUID.fullmatch(uuid) or file_id[36:37] not in ("", "-"):
        return None
    if len(file_id) > 36 and not (_INDEX.fullmatch(index) and int(index) <= _INT32_MAX):
        return None
    halves = UUID(uuid).bytes
    return _signed(halves[:8]), _signed(halves[8:]), int(index) if index else _NO_INDEX


def file_id_of_bits(high: int, low: int, index: int) -> str:
    """Inverse of `uuid_bits`."""
    uuid = UUID(bytes=high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True))
    return str(uuid) if index == _NO_INDEX else f"{uuid}-{index}"


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)
