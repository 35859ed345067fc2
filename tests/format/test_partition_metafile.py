from __future__ import annotations

import pytest

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.properties import (
    PARTITION_METAFILE,
    PartitionMetafile,
    decode_partition_metafile,
    encode_partition_metafile,
)
from lakebed.model.instant import instant_time
from timeline_files import files_named

REAL = files_named(PARTITION_METAFILE)
PATH = f"eu/{PARTITION_METAFILE}"


def test_real_metafiles_are_written_back_byte_by_byte() -> None:
    assert len(REAL) > 300
    for file in REAL:
        metafile = decode_partition_metafile(file.data, path=str(file))
        partition = file.path.parts[1:-1]
        assert metafile.depth == (1 if ".hoodie" in partition else len(partition)), file
        date = file.data.decode().split("\n")[1][1:]
        assert encode_partition_metafile(metafile, date=date) == file.data, file


def test_round_trip() -> None:
    metafile = PartitionMetafile(instant_time("20261115235814703"), 3)
    assert decode_partition_metafile(encode_partition_metafile(metafile, date="today"), path=PATH) == metafile


@pytest.mark.parametrize(
    "text",
    [
        "",
        "commitTime=20261115235814703",
        "partitionDepth=1",
        "commitTime=yesterday\npartitionDepth=1",
        "commitTime=20261115235814703\npartitionDepth=-1",
        "commitTime=20261115235814703\npartitionDepth=" + "9" * 5000,
    ],
)
def test_broken_metafiles_are_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_partition_metafile(text.encode(), path=PATH)


def test_hostile_bytes() -> None:
    bad = mutations(REAL[0].data, seed=2, count=300)
    assert check_decoder(lambda data: decode_partition_metafile(data, path=PATH), bad, path=PATH) > 100
