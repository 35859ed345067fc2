"""Tables that Spark's catalog knows by a name: `CREATE TABLE trips USING lakebed LOCATION '/data/trips'`.

Spark asks a Python data source for the columns of such a table once, when the name is created, and stores them. It also
stores path and options, but never passes them on: a read or an INSERT by name comes with the columns only. So path and
options are stored in the metadata of the first column.

Metadata also follows a column through a query. `CREATE TABLE copy USING lakebed AS SELECT * FROM trips` would therefore
write to `trips` itself, and to the writer it looks like an INSERT. Only the rows differ: rows that were read have a
commit time, which is the first column, and rows to insert have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructField, StructType

from lakebed.errors import InvalidInputError
from lakebed.model.words import COMMIT_TIME
from lakebed.source.writer import HandedOver, LakebedWriter

_OPTIONS, _COLUMNS = "lakebed.options", "lakebed.columns"
_OPTION = "option."
_OF_TABLES = ("primarykey", "precombinefield", "orderingfields", "type")
"""Table properties by which Hudi's SQL describes a new table, in lower case, as Spark passes them."""
_HOW = "CREATE TABLE name USING lakebed LOCATION 'path', without columns, over an existing table"


def is_naming(options: Mapping[str, str]) -> bool:
    """Whether Spark asks for columns because a name is being created."""
    return options.get("provider", "").lower() == "lakebed"


def naming_options(options: Mapping[str, str]) -> dict[str, str]:
    """The path and the options of a new name, without those of the catalog.

    Raises InvalidInputError for options that describe a new table, and for secrets.
    """
    given = {key[len(_OPTION) :]: value for key, value in options.items() if key.startswith(_OPTION)}
    described = [key for key in options if key in _OF_TABLES or (key.startswith("hoodie.") and key not in given)]
    if described or not options.get("path"):
        raise InvalidInputError(
            f"CREATE TABLE USING lakebed names an existing table and creates none"
            f"{f', so the property {described[0]} has no effect' if described else ': no path was given'}",
            hint=f"create the table with lakebed.create_table(...) or df.write, then {_HOW}",
        )
    for key in given:
        if key != "path" and not key.startswith(("hoodie.", "as.of.", "lakebed.")):
            raise InvalidInputError(
                f"the option {key} would be stored in the catalog, where everyone can read it",
                hint="set options of the store in the environment, or use CREATE TEMPORARY VIEW ... USING lakebed",
            )
    return {**given, "path": options["path"]}


def name_columns(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns for the catalog, with path and options in their metadata."""
    first, *others = schema.fields
    known = {_OPTIONS: json.dumps(dict(options)), _COLUMNS: schema.simpleString()}
    return StructType([StructField(first.name, first.dataType, first.nullable, known), *others])


def find_named_target(options: Mapping[str, str], schema: StructType) -> dict[str, str] | None:
    """Like `find_named`, for a write; raises InvalidInputError for a table without meta columns (see `NamedWriter`)."""
    named = find_named(options, schema)
    if named is not None and schema.fields[0].name != COMMIT_TIME:
        raise InvalidInputError(
            "a table without meta columns accepts no rows by name",
            hint='save them to its path: df.write.format("lakebed").mode("append").save(path)',
        )
    return named


def find_named(options: Mapping[str, str], schema: StructType) -> dict[str, str] | None:
    """The options of a table that is used by its name; None if `options` contain a path.

    Raises InvalidInputError if the catalog does not know the path, or if its columns were changed.
    """
    if options.get("path"):
        return None
    known = schema.fields[0].metadata if schema.fields else {}
    if _OPTIONS not in known:
        raise InvalidInputError(
            "Spark's catalog does not say where this table is: it keeps no path for names created with a "
            "list of columns, AS SELECT or saveAsTable",
            hint=f'save rows to a path, df.write.format("lakebed").save(path); for a name, DROP TABLE it and {_HOW}',
        )
    if schema.simpleString() != known[_COLUMNS]:
        raise InvalidInputError(
            "the columns differ from those the name was created with: ALTER TABLE changes Spark's catalog, "
            "and never the table",
            hint=f"DROP TABLE the name and create it again with {_HOW}; a write with new columns adds them",
        )
    return {**json.loads(known[_OPTIONS]), **options}


class NamedWriter(LakebedWriter):
    """An INSERT by name. Its rows tell it apart from a CREATE TABLE AS SELECT: they have no commit time."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> HandedOver:
        """Stages the rows of a partition; raises InvalidInputError for rows with meta columns of another table."""
        return super().write(_check_inserted(iterator))

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Writes the rows in one commit; raises InvalidInputError for an overwrite without rows: it may be a copy."""
        if self._job.is_overwrite and not any(isinstance(message, HandedOver) and message.path for message in messages):
            raise InvalidInputError(
                "there are no rows to overwrite the table with",
                hint="to empty a table, use lakebed.open_table(path).overwrite(rows, whole_table=True)",
            )
        super().commit(messages)


def _check_inserted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        times = batch.column(0)
        if times.null_count < len(times):
            raise InvalidInputError(
                f"the rows have a {COMMIT_TIME}, as rows read from a table do; such rows cannot be written by name",
                hint="name the columns: INSERT INTO name (a, b) SELECT a, b ...; to copy a table, save it to a path",
            )
        yield batch
