"""The context that all tasks of a write share, made from the table's current state and the write options."""

from __future__ import annotations

import pyarrow as pa

from lakebed.index.kinds import wanted_of
from lakebed.index.written import expect
from lakebed.model.instant import InstantTime
from lakebed.options import WriteOptions
from lakebed.read.scan import counted_instants
from lakebed.table import TableState
from lakebed.write.checks import check_writable
from lakebed.write.rows.schema import declared_schema, evolve_schema
from lakebed.write.values import FileSizing, WriteContext


def write_context(
    state: TableState, instant: InstantTime, options: WriteOptions, columns: pa.Schema | None = None
) -> WriteContext:
    """The context of a write of rows with these `columns`, none if it brings no rows of its own."""
    check_writable(state)
    schema = evolve_schema(state.data_schema(state.latest), columns if columns is not None else pa.schema([]))
    return make_context(state, instant, schema, options)


def make_context(state: TableState, instant: InstantTime, schema: pa.Schema, options: WriteOptions) -> WriteContext:
    """The context of a write whose files have the data columns of `schema`."""
    expected = expect(state.config, state.definitions)
    return WriteContext(
        storage=state.storage,
        config=state.config,
        schema=schema,
        avro_json=declared_schema(schema, state.config, meta_columns=True),
        instant=instant,
        stats_columns=expected.columns,
        counts=counted_instants(state.latest),
        files=FileSizing(
            options.target_file_bytes,
            options.small_file_bytes,
            options.compression,
            options.log_format,  # type: ignore[arg-type]
            options.record_positions,
        ),
        entry_ordering=expected.ordering,
        partition_shards=options.partition_shards,
        wanted=wanted_of(sorted(expected.partitions), state.definitions),
    )
