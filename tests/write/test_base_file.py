from __future__ import annotations

import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.format.avro.schema import arrow_schema
from lakebed.format.bloom import decode_bloom
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.format.timeline.metadata import decode_commit, encode_commit
from lakebed.model.commit import CommitMetadata
from lakebed.model.words import META_COLUMNS
from lakebed.read.file_slice import read_base_file
from lakebed.transaction.markers import load_markers
from lakebed.write.files import base as base_file
from lakebed.write.files.base import create_base_file
from lakebed.write.values import IS_DELETE, FileSizing
from write_tasks import FILE_ID, FIRST, a_context, a_task, prepared, read_file

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("region", pa.string()), ("amount", pa.float64())])


def sample_rows(count: int) -> pa.Table:
    numbers = range(count)
    columns = [[f"k{n:06d}" for n in numbers], list(numbers), ["eu"] * count, [n / 3 for n in numbers]]
    return pa.table(columns, schema=SCHEMA)


def test_a_new_base_file():
    context = a_context(SCHEMA, stats=(*META_COLUMNS, "amount"))
    task = a_task(context, prepared(sample_rows(3)))
    (written,) = create_base_file(task)
    stat = written.stat
    name = f"{FILE_ID}_{task.token}_{FIRST}.parquet"
    assert (stat.file_id, stat.partition, stat.path) == (FILE_ID, "eu", f"eu/{name}")
    assert (stat.num_writes, stat.num_inserts, stat.num_updates, stat.num_deletes) == (3, 3, 0, 0)
    assert stat.total_write_bytes == stat.file_size == len(context.storage.get(stat.path))
    assert (stat.prev_commit, stat.prev_base_file) == (None, None)
    assert written.inserted_keys.to_pylist() == ["k000000", "k000001", "k000002"]
    assert [stats.column for stats in written.column_stats] == [*META_COLUMNS, "amount"]
    table = read_file(context, stat.path)
    assert table.column_names == [*META_COLUMNS, *SCHEMA.names]
    assert table.select(SCHEMA.names).to_pylist() == sample_rows(3).to_pylist()
    assert set(table["_hoodie_commit_time"].to_pylist()) == {FIRST}
    assert set(table["_hoodie_file_name"].to_pylist()) == {name}
    assert set(table["_hoodie_partition_path"].to_pylist()) == {"eu"}
    assert table["_hoodie_commit_seqno"].to_pylist() == [f"{FIRST}_3_{number}" for number in range(3)]


def test_the_file_is_marked_before_it_is_made():
    context = a_context(SCHEMA)
    (written,) = create_base_file(a_task(context, prepared(sample_rows(1))))
    assert load_markers(context.storage, context.instant) == {written.stat.path}


def test_tables_without_partitions_have_files_at_the_root():
    context = a_context(SCHEMA)
    (written,) = create_base_file(a_task(context, prepared(sample_rows(1), partition=""), partition=""))
    assert "/" not in written.stat.path
    assert read_file(context, written.stat.path)["_hoodie_partition_path"].to_pylist() == [""]


def test_deletes_make_no_rows():
    context = a_context(SCHEMA)
    rows = prepared(sample_rows(3)).append_column(IS_DELETE, pa.array([False, True, False]))
    (written,) = create_base_file(a_task(context, rows))
    assert written.inserted_keys.to_pylist() == ["k000000", "k000002"]
    assert IS_DELETE not in read_file(context, written.stat.path).column_names
    only_deletes = rows.select(["_hoodie_record_key", "_hoodie_partition_path", IS_DELETE]).slice(1, 1)
    assert create_base_file(a_task(context, only_deletes)) == ()


def test_a_name_that_is_taken_is_a_conflict():
    context = a_context(SCHEMA)
    task = a_task(context, prepared(sample_rows(1)))
    create_base_file(task)
    with pytest.raises(WriteConflictError):
        create_base_file(replace(task, rows=a_task(context, prepared(sample_rows(2))).rows))


def test_running_a_task_twice_with_one_token_is_settled_by_reading_back():
    context = a_context(SCHEMA)
    task = a_task(context, prepared(sample_rows(1)))
    assert create_base_file(task) == create_base_file(task)


def test_missing_columns_are_null_unless_they_may_not_be():
    rows = prepared(sample_rows(2)).drop_columns(["amount"])
    context = a_context(SCHEMA)
    (written,) = create_base_file(a_task(context, rows))
    assert read_file(context, written.stat.path)["amount"].to_pylist() == [None, None]
    strict = SCHEMA.set(3, SCHEMA.field(3).with_nullable(False))
    with pytest.raises(InvalidInputError, match="amount"):
        create_base_file(a_task(a_context(strict), rows))


@pytest.mark.parametrize("partition", ["bloom_filters", "files"])
def test_the_bloom_filter_is_given_back_where_the_metadata_table_keeps_it(partition):
    context = a_context(SCHEMA, properties={"hoodie.table.metadata.partitions": partition})
    (written,) = create_base_file(a_task(context, prepared(sample_rows(2))))
    footer = decode_parquet_footer(context.storage.get(written.stat.path), path="")
    assert footer.bloom is not None
    assert all(footer.bloom.might_contain(key) for key in ("k000000", "k000001"))
    assert written.bloom_text == (footer.bloom_text if partition == "bloom_filters" else None)


def test_many_rows_go_to_several_file_groups():
    files = FileSizing(target_bytes=20_000)
    context = a_context(SCHEMA, files=files, stats=["_hoodie_file_name"])
    rows = sample_rows(10_000)
    written = create_base_file(a_task(context, prepared(rows)))
    assert len(written) > 2
    assert [file.stat.file_id for file in written] == [f"{FILE_ID[:-1]}{number}" for number in range(len(written))]
    tables = [read_file(context, file.stat.path) for file in written]
    assert pa.concat_tables(tables).select(SCHEMA.names).to_pylist() == rows.to_pylist()
    assert len(set(pa.concat_tables(tables)["_hoodie_commit_seqno"].to_pylist())) == rows.num_rows
    for file, table in zip(written, tables, strict=True):
        name = file.stat.path.rpartition("/")[2]
        assert set(table["_hoodie_file_name"].to_pylist()) == {name} == {file.column_stats[0].max_value}
        assert file.inserted_keys.to_pylist() == table["id"].to_pylist()
        assert file.stat.num_writes == file.stat.num_inserts == table.num_rows
        data = pq.read_metadata(pa.BufferReader(context.storage.get(file.stat.path))).row_group(0)
        assert sum(data.column(index).total_compressed_size for index in range(data.num_columns)) < 2 * 20_000
    assert load_markers(context.storage, context.instant) == {file.stat.path for file in written}


def test_large_tables_have_several_row_groups(monkeypatch):
    monkeypatch.setattr(base_file, "_ROW_GROUP_BYTES", 10_000)
    context = a_context(SCHEMA, stats=["id", "ts"])
    rows = sample_rows(1000)
    (written,) = create_base_file(a_task(context, prepared(rows)))
    data = context.storage.get(written.stat.path)
    assert pq.read_metadata(pa.BufferReader(data)).num_row_groups > 3
    identifier, moment = written.column_stats
    assert (identifier.min_value, identifier.max_value, identifier.value_count) == ("k000000", "k000999", 1000)
    assert (moment.min_value, moment.max_value, moment.total_uncompressed_size > 8000) == (0, 999, True)


def test_partition_columns_that_the_table_keeps_in_paths_alone_are_left_out():
    context = a_context(SCHEMA, properties={"hoodie.datasource.write.drop.partition.columns": "true"})
    (written,) = create_base_file(a_task(context, prepared(sample_rows(1))))
    assert "region" not in read_file(context, written.stat.path).column_names


# Against Apache Hudi


@pytest.fixture(scope="module")
def all_types(unpack):
    """A base file that Hudi wrote with a column of every type, and ours of the same rows and schema."""
    table = unpack("hudi111_cow_nonpart_alltypes")
    (path,) = table.path.glob("*.parquet")
    theirs = path.read_bytes()
    footer = decode_parquet_footer(theirs, path=path.name)
    declared = arrow_schema(footer.avro_schema, path=path.name)
    schema = pa.schema([field for field in declared if field.name not in META_COLUMNS])
    context = replace(a_context(schema), avro_json=footer.avro_schema)
    rows = pq.read_table(pa.BufferReader(theirs)).select(schema.names)
    (written,) = create_base_file(a_task(context, prepared(rows, partition=""), partition=""))
    return theirs, context.storage.get(written.stat.path)


def parquet_schema(data: bytes) -> str:
    """The schema as text. What lists and maps are spelled like in old files is put in the format's present way."""
    text = str(pq.ParquetFile(pa.BufferReader(data)).schema).split("\n", 1)[1].replace(" field_id=-1", "")
    text = re.sub(r"\Arequired group \S+", "required group schema", text)
    text = re.sub(r"repeated (\w+) array;", r"repeated group list { required \1 element; }", text)
    return re.sub(r"\s+", " ", text.replace("repeated group key_value (Map)", "repeated group key_value"))


def test_the_parquet_schema_is_that_of_hudi(all_types):
    theirs, ours = all_types
    assert parquet_schema(ours) == parquet_schema(theirs)


def test_the_footer_says_what_that_of_hudi_says(all_types):
    theirs, ours = (dict(pq.read_metadata(pa.BufferReader(data)).metadata) for data in all_types)
    their_bloom, our_bloom = theirs.pop(b"org.apache.hudi.bloomfilter"), ours.pop(b"org.apache.hudi.bloomfilter")
    assert ours == theirs
    assert len(our_bloom) * 40 < len(their_bloom), "a filter for a few rows is small"
    keys = pq.read_table(pa.BufferReader(all_types[1]))["_hoodie_record_key"].combine_chunks()
    assert decode_bloom(our_bloom, "DYNAMIC_V0", path="").might_contain_many(keys).all()


def test_rows_read_back_as_those_of_hudi_do(all_types):
    theirs, ours = (pq.read_table(pa.BufferReader(data)) for data in all_types)
    names = [name for name in theirs.column_names if name not in META_COLUMNS]
    assert ours.select(names).to_pylist() == theirs.select(names).to_pylist()


def test_a_commit_says_of_a_file_what_that_of_hudi_says(unpack):
    folder = unpack("hudi120_cow_part_upsert").path / ".hoodie" / "timeline"
    (name,) = [path for path in folder.glob("*.commit") if "INSERT" in path.read_bytes().decode("latin-1")]
    theirs = next(iter(decode_commit(name.read_bytes(), path=name.name).stats))
    context = a_context(SCHEMA)
    (written,) = create_base_file(a_task(context, prepared(sample_rows(theirs.num_writes))))
    commit = encode_commit(CommitMetadata({"eu": (written.stat,)}), replace=False)
    (ours,) = decode_commit(commit, path="").stats
    assert ours.extra.keys() == theirs.extra.keys()
    times = {key: dict.fromkeys(theirs.extra["runtimeStats"], 0) for key in ("runtimeStats",)}
    assert ours.extra == {**theirs.extra, **times}
    sizes = {"total_write_bytes": ours.file_size, "file_size": ours.file_size}
    assert ours == replace(theirs, file_id=ours.file_id, path=ours.path, extra=ours.extra, **sizes)


ITEMS = {
    "text": (pa.string(), st.text(max_size=3)),
    "number": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "flag": (pa.bool_(), st.booleans()),
    "bytes": (pa.binary(), st.binary(max_size=3)),
    "real": (pa.float64(), st.floats(allow_nan=False)),
    "items": (pa.list_(pa.int64()), st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3)),
    "pair": (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        st.fixed_dictionaries({"x": st.integers(-9, 9), "y": st.one_of(st.none(), st.text(max_size=2))}),
    ),
}
KINDS = pa.schema([("id", pa.string()), *((name, kind) for name, (kind, _) in ITEMS.items())])
RECORDS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, (_, values) in ITEMS.items()}),
    min_size=1,
    max_size=6,
)


@given(RECORDS)
@settings(max_examples=40)
def test_any_rows_read_back(records):
    rows = [{"id": f"k{number}", **record} for number, record in enumerate(records)]
    context = a_context(KINDS)
    (written,) = create_base_file(a_task(context, prepared(pa.Table.from_pylist(rows, KINDS))))
    found = read_base_file(context.storage, written.stat.path, ".parquet", KINDS)
    assert found.to_pylist() == rows
    assert json.loads(found.schema.metadata[b"parquet.avro.schema"])["name"] == "t_record"
    assert b"ARROW:schema" not in found.schema.metadata
