"""Parses the text of a filter, a condition of Spark SQL, into predicates over a schema.

The grammar is sqlglot's. Its tree is walked once; each node becomes a predicate or raises an error that names it, so
that no part of a filter is ever ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from lakebed.errors import InvalidInputError
from lakebed.filter.literals import Fit, Misfit, SqlLiteral, fit, is_comparable, is_text
from lakebed.filter.operands import (
    SUPPORTED,
    CallOperand,
    ColumnOperand,
    LiteralOperand,
    Node,
    Operand,
    read_operand,
    refusal,
)
from lakebed.filter.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
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
    like_tokens,
)
from lakebed.model.text import check_texts


class _WhereParser(Spark.Parser):  # type: ignore[misc, valid-type]
    """Spark's grammar with function calls left as written; sqlglot would rewrite them for other dialects."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CAST": Spark.Parser.FUNCTION_PARSERS["CAST"]}


def parse(text: str, schema: pa.Schema) -> Predicate:
    """See `lakebed.filter.predicate.parse_where`."""
    try:
        return _predicate(_tree(text), schema)
    except RecursionError as error:
        raise InvalidInputError(
            "the filter is nested too deeply", hint="use IN for long lists, and fewer parentheses"
        ) from error


def _tree(text: str) -> Node:
    if not text.strip():
        raise InvalidInputError("the filter is empty", hint="leave `where` out to get all rows")
    check_texts((text,), "the filter")
    dialect = Spark()
    try:
        tokens = _joined_quotes(dialect.tokenize(text), text)
        trees = _WhereParser(error_message_context=len(text), dialect=dialect).parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _unparsed(text, error) from error
    except SqlglotError as error:
        raise InvalidInputError(
            f"the filter does not parse: {text}", hint="look for a quote, backtick or comment that is not closed"
        ) from error
    if len(trees) != 1 or trees[0] is None:
        raise InvalidInputError(f"the filter is not one condition: {text}", hint=SUPPORTED)
    return trees[0]


def _joined_quotes(tokens: Sequence[Token], text: str) -> list[Token]:
    """Joins strings around a doubled quote, which stands for one quote; the tokenizer gives two adjacent strings."""
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else None
        if last and last.token_type is token.token_type is TokenType.STRING and _touches(last, token, text):
            content = last.text + text[token.start] + token.text
            joined[-1] = Token(TokenType.STRING, content, token.line, token.col, last.start, token.end)
        else:
            joined.append(token)
    return joined


def _touches(last: Token, token: Token, text: str) -> bool:
    return last.end + 1 == token.start and text[last.end] == text[token.start]


def _unparsed(text: str, error: ParseError) -> InvalidInputError:
    # With all of the text as context, the error begins where its context ends.
    before = str(error.errors[0].get("start_context") or "") if error.errors else text
    line = text[before.rfind("\n") + 1 :].partition("\n")[0]
    caret = " " * len(before[before.rfind("\n") + 1 :]) + "^"
    return InvalidInputError(f"the filter does not parse here:\n    {line}\n    {caret}", hint=SUPPORTED)


def _predicate(node: Node, schema: pa.Schema) -> Predicate:
    node = node.unnest()
    for kind, reader in _READERS:
        if isinstance(node, kind):
            predicate = reader(node, schema)
            return Not(predicate) if node.args.get("negate") else predicate
    return _truth(read_operand(node, schema), node)


def _truth(operand: Operand, node: Node) -> Predicate:
    match operand:
        case ColumnOperand(name, kind) if pa.types.is_boolean(kind):
            return Compare(name, "=", True)
        case LiteralOperand(None):
            return UNKNOWN
        case LiteralOperand(value) if isinstance(value, bool):
            return Constant(value)
    raise refusal(node, "stands where a condition belongs")


def _connective(node: Node, schema: pa.Schema) -> Predicate:
    parts = tuple(_predicate(part, schema) for part in node.flatten())
    return And(parts) if isinstance(node, exp.And) else Or(parts)


def _negation(node: Node, schema: pa.Schema) -> Predicate:
    return Not(_predicate(node.this, schema))


def _comparison(node: Node, schema: pa.Schema) -> Predicate:
    if isinstance(node, exp.NullSafeNEQ):
        return Not(_compared(node, read_operand(node.this, schema), "<=>", read_operand(node.expression, schema)))
    op = _OPS[type(node)]
    return _compared(node, read_operand(node.this, schema), op, read_operand(node.expression, schema))


def _between(node: Node, schema: pa.Schema) -> Predicate:
    operand = read_operand(node.this, schema)
    low, high = (read_operand(node.args[bound], schema) for bound in ("low", "high"))
    return And((_compared(node, operand, ">=", low), _compared(node, operand, "<=", high)))


def _membership(node: Node, schema: pa.Schema) -> Predicate:
    if not node.expressions:
        raise refusal(node, "is not a list of literals")
    operand = read_operand(node.this, schema)
    literals = [read_operand(element, schema) for element in node.expressions]
    values = [literal.value for literal in literals if isinstance(literal, LiteralOperand)]
    if len(values) < len(literals):
        raise refusal(node, "has more than literals in its list")
    known = [value for value in values if value is not None]
    if isinstance(operand, ColumnOperand):
        fits = [_fit(operand, value) for value in known]
        found: Predicate = IsIn(operand.name, tuple(dict.fromkeys(each.value for each in fits if each.exact)))
    else:
        found = Or(tuple(_compared(node, operand, "=", LiteralOperand(value)) for value in known))
    # x IN (1, NULL) is true or unknown, never false.
    return found if len(known) == len(values) else Or((found, UNKNOWN))


def _is(node: Node, schema: pa.Schema) -> Predicate:
    operand, wanted = read_operand(node.this, schema), node.expression
    if isinstance(operand, ColumnOperand) and isinstance(wanted, exp.Null):
        return IsNull(operand.name)
    if isinstance(operand, ColumnOperand) and isinstance(wanted, exp.Boolean):
        return _compared(node, operand, "<=>", LiteralOperand(bool(wanted.this)))
    raise refusal(node, "is not a test of a column with IS NULL, IS TRUE or IS FALSE")


def _like(node: Node, schema: pa.Schema) -> Predicate:
    return _like_predicate(node, "\\", schema)


def _like_escape(node: Node, schema: pa.Schema) -> Predicate:
    escape = read_operand(node.expression, schema)
    if not isinstance(node.this, exp.Like) or not isinstance(escape, LiteralOperand):
        raise refusal(node, "is not a LIKE with an escape character")
    if not isinstance(escape.value, str) or len(escape.value) != 1:
        raise refusal(node, "needs one character after ESCAPE")
    predicate = _like_predicate(node.this, escape.value, schema)
    return Not(predicate) if node.this.args.get("negate") else predicate


def _like_predicate(node: Node, escape: str, schema: pa.Schema) -> Predicate:
    column, pattern = _text_column(node, node.this, schema), read_operand(node.expression, schema)
    if not isinstance(pattern, LiteralOperand) or not isinstance(pattern.value, str):
        raise refusal(node, "needs a pattern in quotes")
    try:
        tokens = like_tokens(pattern.value, escape)
    except ValueError as error:
        raise InvalidInputError(
            f"the pattern {pattern.value!r} is invalid: {error}", hint="double the escape character to mean itself"
        ) from error
    wild = [index for index, (_, is_wild) in enumerate(tokens) if is_wild]
    if not wild:
        return Compare(column, "=", "".join(character for character, _ in tokens))
    if wild == [len(tokens) - 1] and tokens[-1][0] == "%":
        return StartsWith(column, "".join(character for character, _ in tokens[:-1]))
    escaped = (f"\\{text}" if text in "%_\\" and not is_wild else text for text, is_wild in tokens)
    return Like(column, "".join(escaped))


def _called(node: Node, schema: pa.Schema) -> Predicate:
    if node.name.lower() != "startswith" or len(node.expressions) != 2:
        raise refusal(node, "stands where a condition belongs")
    column, prefix = _text_column(node, node.expressions[0], schema), read_operand(node.expressions[1], schema)
    if not isinstance(prefix, LiteralOperand) or not isinstance(prefix.value, str):
        raise refusal(node, "needs a text in quotes to start with")
    return StartsWith(column, prefix.value)


def _text_column(node: Node, part: Node, schema: pa.Schema) -> str:
    operand = read_operand(part, schema)
    if isinstance(operand, ColumnOperand) and is_text(operand.kind):
        return operand.name
    raise refusal(node, "needs a column of text")


def _compared(node: Node, left: Operand, op: Op, right: Operand) -> Predicate:
    match left, right:
        case LiteralOperand(one), LiteralOperand(other):
            return _folded(node, one, op, other)
        case LiteralOperand(), _:
            return _compared(node, right, _FLIPPED[op], left)
        case ColumnOperand(), ColumnOperand():
            return _column_comparison(left, op, right)
        case ColumnOperand(), LiteralOperand(None):
            return IsNull(left.name) if op == "<=>" else UNKNOWN
        case ColumnOperand(), LiteralOperand(value) if value is not None:
            return _on_grid(left.name, op, _fit(left, value))
        case CallOperand(), LiteralOperand(value) if op != "<=>":
            return UNKNOWN if value is None else _call_comparison(left, op, value)
    raise refusal(node, "compares a function with more than a literal")


def _on_grid(column: str, op: Op, place: Fit) -> Predicate:
    """Compares a column with a literal that may not be a value of its type."""
    if place.exact:
        return Compare(column, op, place.value)
    if op == "<=>":
        return FALSE
    never = IsIn(column, ())
    if op in {"=", "!="}:
        return never if op == "=" else Not(never)
    if place.side:
        return never if (place.side > 0) is (op in {">", ">="}) else Not(never)
    return Compare(column, ">" if op in {">", ">="} else "<=", place.value)


def _call_comparison(call: CallOperand, op: Op, value: SqlLiteral) -> Predicate:
    place = _fit(call, value)
    if not place.exact:
        raise InvalidInputError(
            f"{_shown(value)} is not a value that {call.name} can have",
            hint=f"compare it with a value of type {call.kind}",
        )
    return FunctionCompare(call.function, call.column, call.arguments, op, place.value)


def _column_comparison(left: ColumnOperand, op: Op, right: ColumnOperand) -> Predicate:
    comparable = is_comparable(left.kind) and is_comparable(right.kind)
    if not comparable or (left.kind != right.kind and not (_is_number(left.kind) and _is_number(right.kind))):
        raise InvalidInputError(
            f"{left.name} ({left.kind}) and {right.name} ({right.kind}) cannot be compared",
            hint="compare two numbers, or two columns of one type",
        )
    return CompareColumns(left.name, op, right.name)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _folded(node: Node, one: SqlLiteral | None, op: Op, other: SqlLiteral | None) -> Predicate:
    """Compares two literals, such as the 1 = 1 that tools add."""
    if one is None or other is None:
        return Constant(one is other) if op == "<=>" else UNKNOWN
    if type(one) is not type(other) or isinstance(one, datetime) or (isinstance(one, Decimal) and one.is_nan()):
        raise refusal(node, "compares two literals of different types")
    order = (one > other) - (one < other)  # type: ignore[operator]
    return TRUE if order in _ORDERS[op] else FALSE


def _fit(operand: ColumnOperand | CallOperand, value: SqlLiteral) -> Fit:
    try:
        return fit(value, operand.kind)
    except Misfit as error:
        raise InvalidInputError(
            f"{_shown(value)} does not fit {operand.name} of type {operand.kind}", hint=f"it takes {error}"
        ) from error


def _shown(value: SqlLiteral) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


_OPS: dict[type[Any], Op] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_FLIPPED: dict[Op, Op] = {"=": "=", "!=": "!=", "<=>": "<=>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ORDERS: dict[Op, set[int]] = {
    "=": {0},
    "<=>": {0},
    "!=": {-1, 1},
    "<": {-1},
    "<=": {-1, 0},
    ">": {1},
    ">=": {0, 1},
}
_READERS: tuple[tuple[type[Any], Callable[[Node, pa.Schema], Predicate]], ...] = (
    (exp.And, _connective),
    (exp.Or, _connective),
    (exp.Not, _negation),
    *((kind, _comparison) for kind in (*_OPS, exp.NullSafeNEQ)),
    (exp.Between, _between),
    (exp.In, _membership),
    (exp.Is, _is),
    (exp.Like, _like),
    (exp.Escape, _like_escape),
    (exp.Anonymous, _called),
)
