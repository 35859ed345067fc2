from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.write.execute import find_rival_files
from write_tasks import FIRST, SECOND, a_context

SCHEMA = pa.schema([("id", pa.string())])


@pytest.mark.parametrize(("metadata", "found"), [("", 1), ("files", 0)])
def test_files_of_earlier_attempts_are_rivals_where_no_metadata_table_says_what_counts(metadata: str, found: int):
    """They have no marker any more: whoever took over has removed them."""
    context = a_context(SCHEMA, properties={"hoodie.table.metadata.partitions": metadata})
    ours, older = (f"eu/g_0-0-1_{instant}.parquet" for instant in (FIRST, SECOND))
    for path in (ours, older, f"us/g_0-0-1_{FIRST}.parquet", "eu/README"):
        context.storage.create(path, b"")
    assert find_rival_files(context, (), {"eu"}) == (ours,) * found
