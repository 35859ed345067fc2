"""The data source that Spark knows as `lakebed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as ds

from lakebed.options import warn_of_unknown
from lakebed.read.spark_columns import spark_schema
from lakebed.source.named import NamedWriter, find_named, find_named_target, is_naming, name_columns, naming_options
from lakebed.source.reader import LakebedReader, plan_read
from lakebed.source.writer import LakebedWriter, plan_save

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class LakebedSource(ds.DataSource):
    """A Hudi table as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "lakebed"

    def schema(self) -> StructType:
        """The table's columns as of the snapshot that the options ask for."""
        warn_of_unknown(self.options)  # Here alone: Spark plans a read in several processes.
        if is_naming(self.options):
            given = naming_options(self.options)
            return name_columns(spark_schema(plan_read(given).schema), given)
        return spark_schema(plan_read(self.options).schema)

    def reader(self, schema: StructType) -> LakebedReader:
        """A reader of the columns in `schema`."""
        options = find_named(self.options, schema) or dict(self.options)
        return LakebedReader(options, tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> LakebedWriter:
        """A writer of rows with the columns in `schema`; what is wrong with options shows before any row is made."""
        named = find_named_target(self.options, schema)
        if named is not None:
            return NamedWriter(plan_save(named, schema, overwrite=overwrite))
        return LakebedWriter(plan_save(self.options, schema, overwrite=overwrite))
