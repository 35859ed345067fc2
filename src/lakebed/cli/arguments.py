"""What commands share: arguments, opening tables, showing reports.

Imports inside functions: they load Arrow, and `lakebed --help` must not wait for that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.errors import InvalidInputError
from lakebed.options import check_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.api import Table
    from lakebed.reports.report import Report


def _parse_columns(text: str | None) -> str | None:
    if text is not None and not all(name.strip() for name in text.split(",")):
        raise typer.BadParameter(f"{text!r} is not a list of columns such as a,b")
    return text


def _parse_options(pairs: list[str] | None) -> list[str]:
    for pair in pairs or ():
        if not pair.partition("=")[0].strip() or "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not of the form key=value")
    if pairs:
        _check_values(pairs)
    return pairs or []


def _check_values(pairs: list[str]) -> None:
    try:
        check_values(parse_pairs(pairs))
    except InvalidInputError as error:
        raise typer.BadParameter(f"{error.what}: {error.hint}") from error


def _parse_master(text: str | None) -> str | None:
    if text is not None and not _MASTER.fullmatch(text):
        raise typer.BadParameter(
            f"{text!r} is not a master such as local[4], spark://host:7077, yarn or k8s://host:443"
        )
    return text


_MASTER = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")


TablePath = Annotated[
    str, typer.Argument(metavar="PATH", help="The table: a folder, or a URL such as s3://bucket/table.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="A hoodie.* option or an option of the store; repeatable.",
        callback=_parse_options,
    ),
]
Spark = Annotated[
    str | None,
    typer.Option(
        metavar="MASTER",
        help="Run tasks on Spark: local[4], spark://host:7077; default: in process.",
        callback=_parse_master,
    ),
]
ColumnList = Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.", callback=_parse_columns)]


def open_path(path: str, options: list[str] | None, spark: str | None = None) -> Table:
    """Open the table at a path with options `key=value`; `spark` is the master of a Spark session."""
    from lakebed.api import open_table

    session = None if spark is None else _open_session(spark)
    return open_table(path, spark=session, options=parse_pairs(options))


def parse_pairs(options: list[str] | None) -> dict[str, str]:
    """Options `key=value` as a dictionary."""
    pairs = (pair.partition("=") for pair in options or ())
    return {key.strip(): value for key, _, value in pairs}


def _open_session(master: str) -> SparkSession:
    from lakebed.engine.session import local_session

    return local_session(options={"spark.master": master})


def split_columns(columns: str | None) -> list[str] | None:
    """Column names from `a,b`."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def show(report: Report, as_json: bool) -> None:
    """Write a report to standard output."""
    from lakebed.cli.output import choose_output

    choose_output(as_json=as_json).show(report)
