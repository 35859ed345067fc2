from __future__ import annotations

import json

from lakebed.format.metadata.datum import committed_schema, has_same_layout, stored_schema
from metadata_rows import stored_files


def test_layout_is_that_of_hudi_for_table_version_9() -> None:
    schemas = {file.table[:7]: file.schema for file in stored_files() if file.records}
    assert has_same_layout(schemas["hudi120"], stored_schema())
    assert has_same_layout(schemas["hudi111"], stored_schema())
    assert not has_same_layout(schemas["hudi102"], stored_schema())
    assert not has_same_layout(schemas["hudi015"], stored_schema())


def test_commits_name_the_schema_without_meta_columns() -> None:
    stored, committed = (json.loads(text)["fields"] for text in (stored_schema(), committed_schema()))
    assert [field["name"] for field in stored[5:]] == [field["name"] for field in committed]
    assert all(field["name"].startswith("_hoodie_") for field in stored[:5])
