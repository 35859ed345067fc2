"""Filters as values: the meaning of a `where` text, independent of its syntax.

A predicate is a tree of frozen values over the columns of one table. Leaves compare a column (or a function of one
column) with literals that already have the column's type; `And`, `Or` and `Not` join them. The logic is SQL's, with
three truth values: a row passes when the predicate is true, and neither false nor unknown lets it pass.

Columns are named by strings. A dot leads into a struct (`address.city`); a name that holds a dot or a backtick itself
stands in backticks. `column_name` and `column_path` convert. Floats order as in Spark: NaN equals NaN and is greater
than any other number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

import pyarrow as pa

from lakebed.errors import InvalidInputError

Op: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]
Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime


@dataclass(frozen=True, slots=True)
class Compare:
    """Compares a column with a literal of its type. `<=>` is null-safe equality."""

    column: str
    op: Op
    value: Value


@dataclass(frozen=True, slots=True)
class CompareColumns:
    """Compares two columns of the same row."""

    left: str
    op: Op
    right: str


@dataclass(frozen=True, slots=True)
class FunctionCompare:
    """Compares a function of one column with a literal, as in `upper(name) = 'ANN'`. `op` is never `<=>`."""

    function: str
    column: str
    arguments: tuple[str | int, ...]
    op: Op
    value: Value


@dataclass(frozen=True, slots=True)
class IsIn:
    """The column equals one of the values. With no values: false, or unknown where the column is null."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null; never unknown."""

    column: str


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The text starts with `prefix`, taken as it stands."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Like:
    r"""The text matches a LIKE pattern: `%` any characters, `_` exactly one, `\` before either means itself."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class And:
    """All parts hold; with no parts, true."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds; with no parts, false."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false: not where it is unknown."""

    part: Predicate


@dataclass(frozen=True, slots=True)
class Constant:
    """The same for every row; None is SQL's unknown."""

    value: bool | None


TRUE = Constant(True)
FALSE = Constant(False)
UNKNOWN = Constant(None)

Predicate: TypeAlias = (
    Compare | CompareColumns | FunctionCompare | IsIn | IsNull | StartsWith | Like | And | Or | Not | Constant
)

_NEGATED: dict[Op, Op] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """The predicate of a Spark SQL condition over rows of `schema`.

    Names resolve as in Spark: case-insensitively, unless two columns differ only by case. Literals get the type of
    their column; timestamps without an offset are UTC. Raises InvalidInputError for text that does not parse, an
    unknown column, a literal that does not fit its column, or an unsupported construct.
    """
    # The SQL parser takes a tenth of a second to import: only calls that carry SQL text pay for it.
    from lakebed.filter.where import parse

    return parse(text, schema)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Predicates that a row must all pass, none of them an `And`."""
    if isinstance(predicate, And):
        return tuple(leaf for part in predicate.parts for leaf in conjuncts(part))
    return (predicate,)


def columns_of(predicate: Predicate) -> frozenset[str]:
    """Names of the top-level columns that must be read to evaluate the predicate."""
    match predicate:
        case And(parts) | Or(parts):
            return frozenset[str]().union(*map(columns_of, parts))
        case Not(part):
            return columns_of(part)
        case CompareColumns(left, _, right):
            return frozenset((column_path(left)[0], column_path(right)[0]))
        case Constant():
            return frozenset()
        case _:
            return frozenset((column_path(predicate.column)[0],))


def wanted_values(predicate: Predicate, column: str) -> tuple[Value, ...] | None:
    """All values of `column` for which the predicate can be true, or None if they are not a finite list.

    If it is a tuple, no row passes in which the column is null. Values with several representations, such as float zero
    and NaN, give None.
    """
    wanted = _wanted(negation_normal(predicate), column)
    return None if wanted is None else tuple(wanted)


def negation_normal(predicate: Predicate) -> Predicate:
    """A predicate that passes the same rows, with `Not` on `IsIn`, `IsNull`, `StartsWith` and `Like` alone.

    It has no `<=>`, and its constants are TRUE and FALSE. Where the input is null, the result may be false: use it to
    filter rows, do not negate it again.
    """
    return _normal(predicate, negated=False)


def expression_key(predicate: FunctionCompare) -> str:
    """The canonical text of the expression on the left, such as `from_unixtime(ts, 'yyyy-MM-dd')`."""
    return expression_text(predicate.function, predicate.column, predicate.arguments)


def expression_text(function: str, column: str, arguments: Sequence[str | int] = ()) -> str:
    """The text of a function of a column, by which an expression index over it is found."""
    if function == "cast":
        return f"cast({column} as {arguments[0]})"
    return f"{function}({', '.join([column, *map(_argument_text, arguments)])})"


def column_name(path: Iterable[str]) -> str:
    """The name of a column or struct field from its path; inverse of `column_path`."""
    return ".".join(part if _NAME_PART.fullmatch(part) and "`" not in part else quoted(part) for part in path)


def column_path(name: str) -> tuple[str, ...]:
    """The path of a name: the column, then the struct fields."""
    return tuple(plain or tick.replace("``", "`") for tick, plain in _NAME_PART.findall(name))


def quoted(part: str) -> str:
    """An identifier in backticks."""
    return "`" + part.replace("`", "``") + "`"


def column_type(schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column or struct field in `schema`; InvalidInputError if it does not exist."""
    fields: pa.Schema | pa.DataType = schema
    for part in column_path(name):
        index = fields.get_field_index(part) if isinstance(fields, (pa.Schema, pa.StructType)) else -1
        if index < 0:
            raise InvalidInputError(f"no column {name}", hint=f"columns are: {', '.join(schema.names)}")
        fields = fields.field(index).type
    assert isinstance(fields, pa.DataType), name
    return fields


def like_tokens(pattern: str, escape: str = "\\") -> tuple[tuple[str, bool], ...]:
    """The characters of a LIKE pattern, each with whether it is a wildcard.

    ValueError if the escape character precedes one that needs no escape, or is the last, as in Spark.
    """
    tokens: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, "")
            if escaped not in {"%", "_", escape}:
                raise ValueError(f"{escape!r} may only precede %, _ or itself")
            tokens.append((escaped, False))
        else:
            tokens.append((character, character in "%_"))
    return tuple(tokens)


def like_prefix(pattern: str) -> str:
    """The common prefix of all matches of a LIKE pattern."""
    prefix: list[str] = []
    for character, wild in like_tokens(pattern):
        if wild:
            break
        prefix.append(character)
    return "".join(prefix)


def _wanted(predicate: Predicate, column: str) -> dict[Value, None] | None:
    # Dictionaries serve as ordered sets.
    match predicate:
        case Compare(name, "=", value) if name == column:
            return _one_spelling((value,))
        case IsIn(name, values) if name == column:
            return _one_spelling(values)
        case Constant(value=False):
            return {}
        case And(parts):
            bounds = [bound for part in parts if (bound := _wanted(part, column)) is not None]
            return {value: None for value in bounds[0] if all(value in bound for bound in bounds)} if bounds else None
        case Or(parts):
            choices = [_wanted(part, column) for part in parts]
            bounded = [choice for choice in choices if choice is not None]
            return {v: None for choice in bounded for v in choice} if len(bounded) == len(choices) else None
    return None


def _one_spelling(values: tuple[Value, ...]) -> dict[Value, None] | None:
    if any(isinstance(value, float) and (value == 0 or value != value) for value in values):
        return None
    return dict.fromkeys(values)


def _normal(predicate: Predicate, *, negated: bool) -> Predicate:
    match predicate:
        case Not(part):
            return _normal(part, negated=not negated)
        case And(parts) | Or(parts):
            kind = And if isinstance(predicate, And) is not negated else Or
            return kind(tuple(_normal(part, negated=negated) for part in parts))
        case Constant(value):
            return FALSE if value is None or value is negated else TRUE
        case Compare(column, "<=>", value):
            differs = Or((IsNull(column), Compare(column, "!=", value)))
            return differs if negated else Compare(column, "=", value)
        case CompareColumns(left, "<=>", right):
            return _null_safe(left, right, negated=negated)
        case Compare() | CompareColumns() | FunctionCompare():
            return replace(predicate, op=_NEGATED[predicate.op]) if negated else predicate
        case _:
            return Not(predicate) if negated else predicate


def _null_safe(left: str, right: str, *, negated: bool) -> Predicate:
    if not negated:
        return Or((CompareColumns(left, "=", right), And((IsNull(left), IsNull(right)))))
    one_null = (And((IsNull(left), Not(IsNull(right)))), And((Not(IsNull(left)), IsNull(right))))
    return Or((CompareColumns(left, "!=", right), *one_null))


def _argument_text(argument: str | int) -> str:
    return str(argument) if isinstance(argument, int) else text_literal(argument)


def text_literal(text: str) -> str:
    """A string as Spark SQL spells it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
