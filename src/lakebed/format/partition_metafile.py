"""`.hoodie_partition_metadata`: the properties file by which a folder is known as a partition."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.format.guard import decoding
from lakebed.format.properties import decode_properties, encode_properties
from lakebed.model.instant import InstantTime, instant_time

PARTITION_METAFILE = ".hoodie_partition_metadata"


@dataclass(frozen=True, slots=True)
class PartitionMetafile:
    """The instant that created a partition, and how many folders deep it lies below the table."""

    created_at: InstantTime
    depth: int


def decode_partition_metafile(data: bytes, *, path: str) -> PartitionMetafile:
    """The content of a partition metafile in its text form."""
    properties = decode_properties(data, path=path)
    with decoding(path, "partition metafile"):
        depth = properties["partitionDepth"].strip()
        if not (depth.isascii() and depth.isdigit()):
            raise ValueError(f"partitionDepth is {depth!r}")
        return PartitionMetafile(instant_time(properties["commitTime"].strip()), int(depth))


def encode_partition_metafile(metafile: PartitionMetafile, *, date: str) -> bytes:
    """The text form of a partition metafile; `date` goes into its second comment line."""
    properties = {"commitTime": metafile.created_at, "partitionDepth": str(metafile.depth)}
    return encode_properties(properties, comment="partition metadata", date=date)
