"""Predicates as Arrow expressions, to filter rows in process, and as text for Spark.

Both keep SQL's three-valued logic and Spark's order of floats (NaN equals itself and is above all numbers), where
Arrow alone has IEEE comparisons and an `is_in` that is false, not unknown, for nulls.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.functions import compute, result_type
from lakebed.filter.predicate import (
    And,
    Compare,
    CompareColumns,
    Constant,
    FunctionCompare,
    IsIn,
    IsNull,
    Like,
    Not,
    Op,
    Or,
    Predicate,
    StartsWith,
    Value,
    column_path,
    column_type,
    expression_text,
    like_tokens,
    negation_normal,
    quoted,
    text_literal,
)

_OPERATORS: dict[Op, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CHAIN_MAX = 64
_TEXT_CONSTANTS = {True: "TRUE", False: "FALSE", None: "CAST(NULL AS BOOLEAN)"}


def to_arrow(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    """An expression that filters rows of `schema` to those for which the predicate is true.

    For other rows it is false or null, in no defined way. So do not negate the expression: negate the predicate.
    """
    return _expression(negation_normal(predicate), schema)


def to_spark_sql(predicate: Predicate) -> str:
    """The predicate as a condition of Spark SQL, with the same nulls.

    Functions of timestamps give the same result if the session's time zone is UTC.
    """
    match predicate:
        case And(parts):
            return f"({' AND '.join(map(to_spark_sql, parts))})" if parts else "TRUE"
        case Or(parts):
            return f"({' OR '.join(map(to_spark_sql, parts))})" if parts else "FALSE"
        case Not(part):
            return f"(NOT {to_spark_sql(part)})"
        case Constant(value):
            return _TEXT_CONSTANTS[value]
        case CompareColumns(left, op, right):
            return f"({_spark_name(left)} {op} {_spark_name(right)})"
        case FunctionCompare(function, column, arguments, op, value):
            return f"({expression_text(function, _spark_name(column), arguments)} {op} {_spark_literal(value)})"
    return _spark_leaf(predicate, _spark_name(predicate.column))


def _spark_leaf(predicate: Compare | IsIn | IsNull | StartsWith | Like, name: str) -> str:
    match predicate:
        case Compare(_, op, value):
            return f"({name} {op} {_spark_literal(value)})"
        case IsIn(_, values):
            # Spark has no empty list; `x != x` is false, or null where x is null.
            return f"({name} IN ({', '.join(map(_spark_literal, values))}))" if values else f"({name} != {name})"
        case IsNull():
            return f"({name} IS NULL)"
        case StartsWith(_, prefix):
            return f"startswith({name}, {text_literal(prefix)})"
        case Like(_, pattern):
            return f"({name} LIKE {text_literal(pattern)})"


def _spark_name(column: str) -> str:
    return ".".join(map(quoted, column_path(column)))


def _spark_literal(value: Value) -> str:
    match value:
        case bool():
            return _TEXT_CONSTANTS[value]
        case float():
            return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"
        case Decimal():
            return f"{value:f}BD"
        case str():
            return text_literal(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"{'TIMESTAMP_NTZ' if value.tzinfo is None else 'TIMESTAMP'} '{value.isoformat(' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case int():
            return str(value)


def _expression(predicate: Predicate, schema: pa.Schema) -> pc.Expression:
    """Evaluates a predicate in negation normal form."""
    match predicate:
        case Constant(value):
            return pc.scalar(bool(value))
        case And(parts):
            return _joined([_expression(part, schema) for part in parts], operator.and_, empty=True)
        case Or(parts):
            return _joined([_expression(part, schema) for part in parts], operator.or_, empty=False)
        case Not(IsIn(column) as part):
            return ~_expression(part, schema) & _field(column).is_valid()
        case Not(part):
            return ~_expression(part, schema)
        case Compare(column, op, value):
            return _compare(_field(column), column_type(schema, column), op, value)
        case FunctionCompare(function, column, arguments, op, value):
            kind = column_type(schema, column)
            result = compute(function, _field(column), kind, arguments)
            return _compare(result, result_type(function, kind, arguments), op, value)
        case CompareColumns(left, op, right):
            return _compare_columns(left, op, right, schema)
        case IsIn(column, values):
            return _field(column).isin(pa.array(_with_both_zeros(values), column_type(schema, column)))
        case IsNull(column):
            return _field(column).is_null()
        case StartsWith(column, prefix):
            return pc.starts_with(_field(column), pattern=prefix)
        case Like(column, pattern):
            return pc.match_substring_regex(_field(column), pattern=_regex(pattern))


def _joined(
    parts: list[pc.Expression], join: Callable[[pc.Expression, pc.Expression], pc.Expression], *, empty: bool
) -> pc.Expression:
    # Arrow evaluates a chain of one connective recursively, and long ones overflow the stack. `coalesce` breaks the
    # chain; it turns null into false, which filters the same rows.
    while len(parts) > _CHAIN_MAX:
        chains = [parts[start : start + _CHAIN_MAX] for start in range(0, len(parts), _CHAIN_MAX)]
        parts = [pc.coalesce(reduce(join, chain), pc.scalar(False)) for chain in chains]
    return reduce(join, parts) if parts else pc.scalar(empty)


def _field(column: str) -> pc.Expression:
    return pc.field(*column_path(column))


def _compare(expression: pc.Expression, kind: pa.DataType, op: Op, value: Value) -> pc.Expression:
    if isinstance(value, float) and math.isnan(value):
        return _compare_with_nan(expression, op)
    compared: pc.Expression = _OPERATORS[op](expression, pc.scalar(pa.scalar(value, kind)))
    if pa.types.is_floating(kind) and op in {">", ">="}:
        return compared | pc.is_nan(expression)
    return compared


def _compare_with_nan(expression: pc.Expression, op: Op) -> pc.Expression:
    if op in {"=", ">="}:
        return pc.is_nan(expression)
    if op in {"!=", "<"}:
        return ~pc.is_nan(expression)
    return expression.is_valid() if op == "<=" else pc.scalar(False)


def _compare_columns(left: str, op: Op, right: str, schema: pa.Schema) -> pc.Expression:
    kind = _common_type(column_type(schema, left), column_type(schema, right))
    one, other = _field(left).cast(kind, safe=False), _field(right).cast(kind, safe=False)
    compared: pc.Expression = _OPERATORS[op](one, other)
    if not pa.types.is_floating(kind):
        return compared
    one_nan, other_nan = pc.is_nan(one), pc.is_nan(other)
    if op == "!=":
        return compared & ~(one_nan & other_nan)
    if op == "=":
        return compared | (one_nan & other_nan)
    above, below = (one_nan, other_nan) if op in {">", ">="} else (other_nan, one_nan)
    lower = other if op in {">", ">="} else one
    return compared | (above & lower.is_valid() if op in {">=", "<="} else above & ~below)


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right:
        return left
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        scales = [kind.scale for kind in (left, right) if isinstance(kind, (pa.Decimal128Type, pa.Decimal256Type))]
        return pa.decimal256(76, max(scales))
    return pa.int64()


def _with_both_zeros(values: tuple[Value, ...]) -> list[Value]:
    # Arrow compares values by their bits, which differ for the two zeros of floats.
    return [*values, -0.0, 0.0] if any(isinstance(value, float) and value == 0 for value in values) else list(values)


def _regex(pattern: str) -> str:
    wild = {"%": ".*", "_": "."}
    parts = (wild[character] if is_wild else re.escape(character) for character, is_wild in like_tokens(pattern))
    return rf"(?s)\A{''.join(parts)}\z"
