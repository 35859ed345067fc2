"""The data source that Spark knows as `lakebed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource as ds

from lakebed.options import warn_of_unknown
from lakebed.read.spark_columns import spark_schema
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
        return spark_schema(plan_read(self.options).schema)

    def reader(self, schema: StructType) -> LakebedReader:
        """A reader of the columns in `schema`."""
        return LakebedReader(dict(self.options), tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> LakebedWriter:
        """A writer of rows with the columns in `schema`; what is wrong with options shows before any row is made."""
        return LakebedWriter(plan_save(self.options, schema, overwrite=overwrite))
