"""Operands of comparisons in a filter's text: a column, a function of one column, or a literal."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import pyarrow as pa
from sqlglot import exp

from lakebed.errors import InvalidInputError
from lakebed.filter.functions import FUNCTIONS, BadCall, canonical_function, result_type
from lakebed.filter.literals import SqlLiteral, decode_date, decode_timestamp, in_utc
from lakebed.filter.predicate import column_name, expression_text

Node: TypeAlias = Any
"""A node of sqlglot's tree, whose class names and places move between releases."""

SUPPORTED = (
    "a filter takes columns, literals, = <> < <= > >= <=>, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT, "
    f"and these functions of one column, against a literal: {', '.join(FUNCTIONS)}"
)


@dataclass(frozen=True, slots=True)
class ColumnOperand:
    """A column or struct field, by its canonical name."""

    name: str
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class CallOperand:
    """A function of one column; `kind` is the type of its result."""

    function: str
    column: str
    arguments: tuple[str | int, ...]
    kind: pa.DataType

    @property
    def name(self) -> str:
        """The expression's text."""
        return expression_text(self.function, self.column, self.arguments)


@dataclass(frozen=True, slots=True)
class LiteralOperand:
    """A literal; None is NULL."""

    value: SqlLiteral | None


Operand: TypeAlias = ColumnOperand | CallOperand | LiteralOperand


def read_operand(node: Node, schema: pa.Schema) -> Operand:
    """The operand of a node; InvalidInputError for any other expression."""
    node = node.unnest()
    if isinstance(node, (exp.Column, exp.Dot)):
        return _read_column(node, schema)
    return _find_literal(node) or _read_call(node, schema)


def refusal(node: Node, why: str) -> InvalidInputError:
    """The error for a construct that filters do not support."""
    return InvalidInputError(f"{node.sql('spark')} {why}", hint=SUPPORTED)


def _read_column(node: Node, schema: pa.Schema) -> ColumnOperand:
    parts = [part.name for part in node.parts if isinstance(part, exp.Identifier)]
    if len(parts) < len(node.parts):
        raise refusal(node, "is not a column")
    path: list[str] = []
    fields: Iterable[pa.Field[Any]] = schema
    for part in parts:
        field = _get_field(part, list(fields), column_name(path))
        path.append(field.name)
        fields = field.type if isinstance(field.type, pa.StructType) else ()
    return ColumnOperand(column_name(path), field.type)


def _get_field(name: str, fields: Sequence[pa.Field[Any]], inside: str) -> pa.Field[Any]:
    exact = [field for field in fields if field.name == name]
    found = exact or [field for field in fields if field.name.lower() == name.lower()]
    if len(found) == 1:
        return found[0]
    where = f" in {inside}" if inside else ""
    names = [field.name for field in (found or fields)]
    if found:
        raise InvalidInputError(f"column {name}{where} is ambiguous", hint=f"it may be: {', '.join(names)}")
    raise InvalidInputError(f"no column {name}{where}", hint=_nearest(name, names))


def _nearest(name: str, names: Sequence[str]) -> str:
    by_lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return f"columns are: {', '.join(names)}" if names else "it is no struct: nothing can follow the dot"


def _read_call(node: Node, schema: pa.Schema) -> CallOperand:
    if isinstance(node, exp.Cast):
        name, inner = "cast", node.this.unnest()
        arguments: tuple[str | int, ...] = (_type_word(node),)
    elif isinstance(node, exp.Anonymous) and node.expressions:
        name, inner = node.name, node.expressions[0].unnest()
        arguments = tuple(_read_argument(each) for each in node.expressions[1:])
    else:
        raise refusal(node, "is not supported")
    try:
        function = canonical_function(name)
        if not isinstance(inner, (exp.Column, exp.Dot)):
            raise BadCall(f"{function} takes a column")
        column = _read_column(inner, schema)
        return CallOperand(function, column.name, arguments, result_type(function, column.kind, arguments))
    except BadCall as error:
        raise InvalidInputError(f"{node.sql('spark')}: {error}", hint=SUPPORTED) from error


def _read_argument(node: Node) -> str | int:
    literal = _find_literal(node)
    value = literal.value if literal else None
    if isinstance(value, Decimal) and value.is_finite() and abs(value) < 2**31 and value == int(value):
        return int(value)
    if isinstance(value, str):
        return value
    raise refusal(node, "is not an argument that functions in filters take")


def _find_literal(node: Node) -> LiteralOperand | None:
    node = node.unnest()
    match node:
        case exp.Null():
            return LiteralOperand(None)
        case exp.Boolean():
            return LiteralOperand(bool(node.this))
        case exp.Literal():
            return LiteralOperand(node.name if node.is_string else Decimal(node.name))
        case exp.RawString():
            return LiteralOperand(node.name)
        case exp.HexString():
            digits = node.name
            return LiteralOperand(bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)))
        case exp.Concat():  # Strings side by side.
            return LiteralOperand("".join(part.name for part in node.expressions))
        case exp.Neg():
            number = _find_literal(node.this)
            return LiteralOperand(-number.value) if number and isinstance(number.value, Decimal) else None
        case exp.Cast() | exp.Anonymous():
            return _find_typed_literal(node)
    return None


def _find_typed_literal(node: Node) -> LiteralOperand | None:
    """Reads DATE '2024-01-02', 5L, cast('1.5' as double), to_date('2024-01-02') and their like."""
    is_cast = isinstance(node, exp.Cast)
    if not is_cast and len(node.expressions) != 1:
        return None
    inner = _find_literal(node.this if is_cast else node.expressions[0])
    word = _type_word(node) if is_cast else _CONVERSIONS.get(node.name.lower())
    if inner is None or word is None:
        return None
    if inner.value is None:
        return inner
    try:
        return LiteralOperand(_converted(inner.value, word))
    except (ValueError, InvalidOperation) as error:
        raise refusal(node, f"is no {word}: write the literal itself") from error


def _converted(value: SqlLiteral, word: str) -> SqlLiteral:
    if isinstance(value, str) and word in _TEXT_CASTS:
        return _TEXT_CASTS[word](value)
    if isinstance(value, (str, Decimal)) and word == "double":
        # The digits that stand for it: 0.1D equals the decimal 0.1, as it does once Spark makes that a double.
        return Decimal(repr(float(value)))
    if isinstance(value, (str, Decimal)) and word.startswith("decimal"):
        return Decimal(value)
    if isinstance(value, Decimal) and word in _INTEGER_WORDS and value == value.to_integral_value():
        return value
    raise ValueError(word)


def _type_word(node: Node) -> str:
    kind = node.args["to"]
    if kind.expressions:
        return str(kind.sql("spark")).lower()
    word = str(kind.this.value).lower()
    return {"timestamptz": "timestamp", "timestampltz": "timestamp", "text": "string", "varchar": "string"}.get(
        word, word
    )


def _decode_instant(text: str) -> datetime:
    return in_utc(decode_timestamp(text))


def _decode_wall_time(text: str) -> datetime:
    return decode_timestamp(text).replace(tzinfo=None)


_CONVERSIONS = {"date": "date", "to_date": "date", "to_timestamp": "timestamp", "double": "double"}
_INTEGER_WORDS = frozenset(("tinyint", "smallint", "int", "bigint"))
_TEXT_CASTS: dict[str, Callable[[str], str | date | datetime]] = {
    "string": str,
    "date": decode_date,
    "timestamp": _decode_instant,
    "timestampntz": _decode_wall_time,
}
