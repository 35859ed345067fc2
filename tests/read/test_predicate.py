from __future__ import annotations

import contextlib
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.filter.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    CompareColumns,
    FunctionCompare,
    IsIn,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    column_name,
    column_path,
    columns_of,
    conjuncts,
    expression_key,
    negation_normal,
    parse_where,
    wanted_values,
)
from read.naive import SCHEMA as NAIVE_SCHEMA
from read.naive import Row, cell, predicates, rows, truth
from read.samples import SAMPLE_PREDICATES, SAMPLE_SCHEMA

SCHEMA = pa.schema(
    [
        *SAMPLE_SCHEMA,
        ("tiny", pa.int8()),
        ("count", pa.uint64()),
        ("second", pa.timestamp("s", "UTC")),
        ("nano", pa.timestamp("ns")),
        ("tags", pa.list_(pa.string())),
        ("a.b", pa.int8()),
        ("tick`ed", pa.int8()),
        ("Twin", pa.int8()),
        ("twin", pa.int8()),
    ]
)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]


PARSED: list[tuple[str, Predicate]] = [
    ("id = 1", Compare("id", "=", 1)),
    ("ID == -1", Compare("id", "=", -1)),
    ("1 < id", Compare("id", ">", 1)),
    ("id <> +1", Compare("id", "!=", 1)),
    ("id <=> 1", Compare("id", "<=>", 1)),
    ("id <=> NULL", IsNull("id")),
    ("id = NULL", UNKNOWN),
    ("id is distinct from 1", Not(Compare("id", "<=>", 1))),
    ("(((id = 1)));", Compare("id", "=", 1)),
    ("id = 1 -- the first", Compare("id", "=", 1)),
    # Literals between the values that a type has, and beyond them
    ("id > 1.5", Compare("id", ">", 1)),
    ("id >= 1.5", Compare("id", ">", 1)),
    ("id < -1.5", Compare("id", "<=", -2)),
    ("id <= -1.5", Compare("id", "<=", -2)),
    ("id = 1.5", IsIn("id", ())),
    ("id != 1.5", Not(IsIn("id", ()))),
    ("id <=> 1.5", FALSE),
    ("id = 1.0", Compare("id", "=", 1)),
    ("tiny < 128", Not(IsIn("tiny", ()))),
    ("tiny <= 127", Compare("tiny", "<=", 127)),
    ("tiny > -129", Not(IsIn("tiny", ()))),
    ("tiny >= 1e999999999", IsIn("tiny", ())),
    ("count >= 0", Compare("count", ">=", 0)),
    ("count = 18446744073709551615", Compare("count", "=", 2**64 - 1)),
    ("count > -1", Not(IsIn("count", ()))),
    ("price > 1.005", Compare("price", ">", Decimal("1.00"))),
    ("price > -1.005", Compare("price", ">", Decimal("-1.01"))),
    ("price <= 9999999.99", Compare("price", "<=", Decimal("9999999.99"))),
    ("price <= 9999999.999", Compare("price", "<=", Decimal("9999999.99"))),
    ("price < 10000000", Not(IsIn("price", ()))),
    ("price < -9999999.991", IsIn("price", ())),
    ("price > 1e-1000", Compare("price", ">", Decimal("0.00"))),
    ("ratio = 0.5", Compare("ratio", "=", 0.5)),
    ("ratio = 0.1", IsIn("ratio", ())),
    ("ratio > 1e300", Compare("ratio", ">", 3.4028234663852886e38)),
    ("score = 0.1", Compare("score", "=", 0.1)),
    ("score < '-Infinity'", Compare("score", "<", float("-inf"))),
    ("day > TIMESTAMP '2024-01-02 03:00:00'", Compare("day", ">", date(2024, 1, 2))),
    ("day = TIMESTAMP '2024-01-02 00:00:00'", Compare("day", "=", date(2024, 1, 2))),
    ("day = TIMESTAMP '2024-01-02 03:00:00'", IsIn("day", ())),
    ("second < '2024-01-02 03:04:05.6'", Compare("second", "<=", utc(2024, 1, 2, 3, 4, 5))),
    ("nano < '2300-01-01'", Not(IsIn("nano", ()))),
    # Literals of each type
    ("id = '5'", Compare("id", "=", 5)),
    ("amount = 5L", Compare("amount", "=", 5)),
    ("amount = -9223372036854775808", Compare("amount", "=", -(2**63))),
    ("price = 1.5BD", Compare("price", "=", Decimal("1.50"))),
    ("score = 1.5D", Compare("score", "=", 1.5)),
    ("score > 1e3", Compare("score", ">", 1000.0)),
    ("name = 'it''s'", Compare("name", "=", "it's")),
    ("name = 'it' 's'", Compare("name", "=", "its")),
    (r"""name = "it\"s" """, Compare("name", "=", 'it"s')),
    ("name = r'a\\n'", Compare("name", "=", "a\\n")),
    ("name = 'a\\n\\u0041'", Compare("name", "=", "a\nA")),
    ("active", Compare("active", "=", True)),
    ("not active", Not(Compare("active", "=", True))),
    ("active = 'no'", Compare("active", "=", False)),
    ("active is not true", Not(Compare("active", "<=>", True))),
    ("raw = X'1FF'", Compare("raw", "=", b"\x01\xff")),
    ("raw = 'é'", Compare("raw", "=", "é".encode())),
    ("day = '2024-1-2'", Compare("day", "=", date(2024, 1, 2))),
    ("day = to_date('2024-01-02')", Compare("day", "=", date(2024, 1, 2))),
    ("at = '2024-01-02'", Compare("at", "=", utc(2024, 1, 2))),
    ("at = DATE '2024-01-02'", Compare("at", "=", utc(2024, 1, 2))),
    ("at = '2024-01-02T03:04'", Compare("at", "=", utc(2024, 1, 2, 3, 4))),
    ("at = '2024-01-02 03:04:05.123456789Z'", Compare("at", "=", utc(2024, 1, 2, 3, 4, 5, 123456))),
    ("at = '2024-01-02 03:04:05 -0130'", Compare("at", "=", utc(2024, 1, 2, 4, 34, 5))),
    ("at = TIMESTAMP '2024-01-02 03:04:05+2'", Compare("at", "=", utc(2024, 1, 2, 1, 4, 5))),
    ("at = TIMESTAMP_NTZ '2024-01-02 03:00:00'", Compare("at", "=", utc(2024, 1, 2, 3))),
    ("local_at = TIMESTAMP '2024-01-02 03:00:00'", Compare("local_at", "=", datetime(2024, 1, 2, 3))),
    ("local_at = '2024-01-02 03:00:00'", Compare("local_at", "=", datetime(2024, 1, 2, 3))),
    # Lists, intervals, patterns
    ("id in (1, 2.5, 3, 1)", IsIn("id", (1, 3))),
    ("id not in (1)", Not(IsIn("id", (1,)))),
    ("id in (1, null)", Or((IsIn("id", (1,)), UNKNOWN))),
    ("id between 1 and 2", And((Compare("id", ">=", 1), Compare("id", "<=", 2)))),
    ("id not between 1 and 2", Not(And((Compare("id", ">=", 1), Compare("id", "<=", 2))))),
    ("name like 'ab%'", StartsWith("name", "ab")),
    ("name like 'ab'", Compare("name", "=", "ab")),
    ("name like 'a\\%'", Compare("name", "=", "a%")),
    ("name not like '%ab'", Not(Like("name", "%ab"))),
    ("name like 'a/_b/%%c' escape '/'", Like("name", "a\\_b\\%%c")),
    ("name not like 'a/%%' escape '/'", Not(StartsWith("name", "a%"))),
    ("startswith(name, 'a%')", StartsWith("name", "a%")),
    # Names
    ("address.city is null", IsNull("address.city")),
    ("ADDRESS.City = 'Rome'", Compare("address.city", "=", "Rome")),
    ("`address`.`city` = 'Rome'", Compare("address.city", "=", "Rome")),
    ("`a.b` = 1", Compare("`a.b`", "=", 1)),
    ("`tick``ed` = 1", Compare("`tick``ed`", "=", 1)),
    ("Twin = 1", Compare("Twin", "=", 1)),
    ("day is not null", Not(IsNull("day"))),
    ("tags is null", IsNull("tags")),
    ("id < amount", CompareColumns("id", "<", "amount")),
    ("price <=> score", CompareColumns("price", "<=>", "score")),
    # Functions
    ("UPPER(name) = 'A'", FunctionCompare("upper", "name", (), "=", "A")),
    ("'A' < ucase(name)", FunctionCompare("upper", "name", (), ">", "A")),
    ("substr(name, -1, 2) != 'x'", FunctionCompare("substring", "name", (-1, 2), "!=", "x")),
    ("cast(id as string) = '1'", FunctionCompare("cast", "id", ("string",), "=", "1")),
    ("name::int = 1", FunctionCompare("cast", "name", ("int",), "=", 1)),
    ("date(at) = '2024-01-02'", FunctionCompare("to_date", "at", (), "=", date(2024, 1, 2))),
    (
        "year(at) in (2023, 2024)",
        Or((FunctionCompare("year", "at", (), "=", 2023), FunctionCompare("year", "at", (), "=", 2024))),
    ),
    (
        "date_format(at, 'yyyy-MM-dd''T''HH') > '2'",
        FunctionCompare("date_format", "at", ("yyyy-MM-dd'T'HH",), ">", "2"),
    ),
    ("upper(name) = null", UNKNOWN),
    # Logic
    (
        "id = 1 and active or id = 2",
        Or((And((Compare("id", "=", 1), Compare("active", "=", True))), Compare("id", "=", 2))),
    ),
    ("id = 1 and id = 2 and id = 3", And((Compare("id", "=", 1), Compare("id", "=", 2), Compare("id", "=", 3)))),
    ("not id = 1 and active", And((Not(Compare("id", "=", 1)), Compare("active", "=", True)))),
    ("1 = 1", TRUE),
    ("'b' < 'a'", FALSE),
    ("null <=> null", TRUE),
    ("true", TRUE),
    ("null", UNKNOWN),
]


@pytest.mark.parametrize(("text", "predicate"), PARSED, ids=[text for text, _ in PARSED])
def test_parse(text: str, predicate: Predicate) -> None:
    assert parse_where(text, SCHEMA) == predicate


REFUSED = [
    # Text that does not parse
    ("", "the filter is empty", "leave `where` out"),
    (" \n", "the filter is empty", "leave `where` out"),
    ("-- all", "not one condition", "a filter takes"),
    ("id =", "id =\n       ^", "a filter takes"),
    ("id = = 1", "id = = 1\n         ^", "a filter takes"),
    ("active and\n id = 1 id", " id = 1 id\n            ^", "a filter takes"),
    ("(id = 1", "does not parse here", "a filter takes"),
    ("id = 1)", "id = 1)\n          ^", "a filter takes"),
    ("id = 1; drop table t", "does not parse here", "a filter takes"),
    ("drop table t", "does not parse here", "a filter takes"),
    ("id = 'x", "does not parse", "a quote, backtick or comment that is not closed"),
    ("id /* = 1", "does not parse", "a quote, backtick or comment that is not closed"),
    ("(" * 5000 + "id = 1" + ")" * 5000, "nested too deeply", "IN"),
    ("not " * 5000 + "active", "nested too deeply", "IN"),
    # Names
    ("nmae = 'x'", "no column nmae", "did you mean name?"),
    ("PRIZE > 1", "no column PRIZE", "did you mean price?"),
    ("zzz = 1", "no column zzz", "columns are: id, amount"),
    ("address.town = 'x'", "no column town in address", "columns are: city, zip"),
    ("address.cty = 'x'", "no column cty in address", "did you mean city?"),
    ("id.x = 1", "no column x in id", "no struct"),
    ("TWIN = 1", "TWIN is ambiguous", "Twin, twin"),
    # Literals that do not fit
    ("id = 'abc'", "'abc' does not fit id of type int32", "a number such as 5"),
    ("id = '1.5'", "'1.5' does not fit id", "a number such as 5"),
    ("id = true", "True does not fit id", "a number such as 5"),
    ("name = 5", "5 does not fit name of type string", "text in quotes"),
    ("name in ('a', 5)", "5 does not fit name", "text in quotes"),
    ("score = 'high'", "'high' does not fit score", "a number such as 1.5"),
    ("score = 1e999", "does not fit score", "a number such as 1.5"),
    ("price = 'NaN'", "does not fit price", "a number such as 1.50"),
    ("active = 1", "1 does not fit active", "true or false"),
    ("raw = 5", "5 does not fit raw", "X'1F'"),
    ("day = '2024-02-30'", "does not fit day", "'2024-01-31'"),
    ("day = '2024-01-02 03:00:00'", "does not fit day", "'2024-01-31'"),
    ("day = 5", "5 does not fit day", "'2024-01-31'"),
    ("at = '2024-01-02 25:00:00'", "does not fit at", "'2024-01-31 12:30:00'"),
    ("at = 1704067200", "1704067200 does not fit at", "'2024-01-31 12:30:00'"),
    ("at = '0001-01-01 00:00:00+05:00'", "does not fit at", "the years 1 to 9999"),
    ("local_at = '2024-01-02 03:00:00+01:00'", "does not fit local_at", "without an offset"),
    ("tags = 'x'", "does not fit tags", "IS NULL"),
    ("address = 1", "does not fit address", "IS NULL"),
    ("length(name) = 1.5", "1.5 is not a value that length(name) can have", "int32"),
    ("day = DATE '2024-02-30'", "CAST('2024-02-30' AS DATE) is no date", "a filter takes"),
    # Constructs that filters do not have
    ("id in (select 1)", "id IN (SELECT 1) is not a list of literals", "a filter takes"),
    ("exists (select 1)", "is not supported", "a filter takes"),
    ("count(id) > 1", "no function count", "upper, lower"),
    ("id + 1 > 4", "id + 1 is not supported", "a filter takes"),
    ("-id > 4", "-id is not supported", "a filter takes"),
    ("case when active then true end", "is not supported", "a filter takes"),
    ("id = ?", "? is not supported", "a filter takes"),
    ("day = current_date", "CURRENT_DATE is not supported", "a filter takes"),
    ("day = now()", "is not supported", "a filter takes"),
    ("name rlike 'x'", "is not supported", "a filter takes"),
    ("name ilike 'x'", "is not supported", "a filter takes"),
    ("name like any ('x')", "is not supported", "a filter takes"),
    ("tags[0] = 'x'", "is not supported", "a filter takes"),
    ("id in (amount)", "more than literals", "a filter takes"),
    ("*", "is not supported", "a filter takes"),
    ("id", "stands where a condition belongs", "a filter takes"),
    ("5", "stands where a condition belongs", "a filter takes"),
    ("upper(name)", "stands where a condition belongs", "a filter takes"),
    ("id like 'x'", "needs a column of text", "a filter takes"),
    ("name like id", "needs a pattern in quotes", "a filter takes"),
    ("name like 'a\\\\x'", "may only precede %, _ or itself", "double the escape"),
    ("name like 'a' escape 'ab'", "one character after ESCAPE", "a filter takes"),
    ("name < id", "cannot be compared", "two numbers"),
    ("at < local_at", "cannot be compared", "two numbers"),
    ("address = address", "cannot be compared", "two numbers"),
    ("upper(id) = 'X'", "upper takes text, not int32", "a filter takes"),
    ("upper(trim(name)) = 'X'", "upper takes a column", "a filter takes"),
    ("upper(name) = name", "with more than a literal", "a filter takes"),
    ("upper(name) <=> 'X'", "with more than a literal", "a filter takes"),
    ("upper(name) is null", "not a test of a column", "a filter takes"),
    ("substring(name, 'x') = 'a'", "does not take the arguments", "a filter takes"),
    ("date_format(at, 'yyyy-MMM') = 'x'", "more than the fields yyyy MM dd HH mm ss", "a filter takes"),
    ("cast(score as string) = '1'", "cast from double to string", "a filter takes"),
    ("cast(name as decimal(10, 2)) = 1", "cast from string to decimal(10, 2)", "a filter takes"),
    ("1 = 'x'", "two literals", "a filter takes"),
]


@pytest.mark.parametrize(("text", "what", "hint"), REFUSED, ids=[text[:40] for text, _, _ in REFUSED])
def test_refusals_say_what_and_what_to_do(text: str, what: str, hint: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_where(text, SCHEMA)
    assert what in caught.value.what
    assert hint in caught.value.hint


_WORDS = """id name address 1 5D 0x x'0' 'x' true null = < in ( ) , like escape and or not is between upper cast as int
date timestamp interval case when end select from e - . ` ' " ; [ ] :: * || \\ { @ : ?"""


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_WORDS.split()), max_size=9).map(" ".join) | st.text(max_size=20))
def test_any_text_gives_a_predicate_or_a_refusal(text: str) -> None:
    with contextlib.suppress(InvalidInputError):
        parse_where(text, SCHEMA)


@settings(max_examples=100, deadline=None)
@given(predicates(), rows())
def test_negation_normal_passes_the_same_rows(predicate: Predicate, found: list[Row]) -> None:
    normal = negation_normal(predicate)
    assert [truth(normal, row) is True for row in found] == [truth(predicate, row) is True for row in found]


@settings(max_examples=200, deadline=None)
@given(predicates(), rows(), st.sampled_from(["i", "s", "t.i", "d"]))
def test_wanted_values_leave_out_no_row(predicate: Predicate, found: list[Row], column: str) -> None:
    wanted = wanted_values(predicate, column)
    passing = {cell(row, column) for row in found if truth(predicate, row)}
    assert wanted is None or passing <= set(wanted)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("id = 1", (1,)),
        ("id <=> 1", (1,)),
        ("id in (3, 1)", (3, 1)),
        ("id = 1 or id in (2, 1)", (1, 2)),
        ("id in (1, 2, 3) and id in (2, 3, 4) and active", (2, 3)),
        ("id = 1 and id = 2", ()),
        ("id = 1 or active", None),
        ("id = 1 or id is null", None),
        ("not (id != 1)", (1,)),
        ("not (id = 1)", None),
        ("not (id != 1 and id != 2)", (1, 2)),
        ("not (id not in (1, 2))", (1, 2)),
        ("id in (1, null)", (1,)),
        ("id not in (1, null)", ()),
        ("id = null", ()),
        ("id > 1", None),
        ("active", None),
        ("abs(id) = 1", None),
        ("id = amount", None),
        ("false", ()),
        ("id = 1.5", ()),
    ],
)
def test_wanted_values(text: str, values: tuple[object, ...] | None) -> None:
    assert wanted_values(parse_where(text, SCHEMA), "id") == values


def test_wanted_values_of_floats_with_many_spellings() -> None:
    assert wanted_values(Compare("score", "=", 1.5), "score") == (1.5,)
    assert wanted_values(IsIn("score", (1.5, 0.0)), "score") is None
    assert wanted_values(Compare("score", "=", float("nan")), "score") is None


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("id = 1 and (active or not name like 'a%')", {"id", "active", "name"}),
        ("address.city = 'x' and address.zip = 1", {"address"}),
        ("`a.b` = 1", {"a.b"}),
        ("id < amount", {"id", "amount"}),
        ("upper(address.city) = 'X'", {"address"}),
        ("tags is not null", {"tags"}),
        ("1 = 1", set()),
    ],
)
def test_columns_of(text: str, columns: set[str]) -> None:
    assert columns_of(parse_where(text, SCHEMA)) == columns


@pytest.mark.parametrize("text", SAMPLE_PREDICATES)
def test_samples_name_columns_of_the_sample_table(text: str) -> None:
    assert columns_of(parse_where(text, SAMPLE_SCHEMA)) <= set(SAMPLE_SCHEMA.names)


def test_conjuncts() -> None:
    predicate = parse_where("id = 1 and (active and (name = 'a' or name = 'b'))", SCHEMA)
    assert conjuncts(predicate) == (
        Compare("id", "=", 1),
        Compare("active", "=", True),
        Or((Compare("name", "=", "a"), Compare("name", "=", "b"))),
    )
    assert conjuncts(TRUE) == (TRUE,)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("UCASE(Name) = 'X'", "upper(name)"),
        ("from_unixtime(amount, 'yyyy-MM-dd') = 'x'", "from_unixtime(amount, 'yyyy-MM-dd')"),
        ("substr(address.city, 1, 2) = 'x'", "substring(address.city, 1, 2)"),
        ("cast(id as STRING) = 'x'", "cast(id as string)"),
        ("character_length(name) = 1", "length(name)"),
    ],
)
def test_expression_key(text: str, key: str) -> None:
    predicate = parse_where(text, SCHEMA)
    assert isinstance(predicate, FunctionCompare)
    assert expression_key(predicate) == key


@given(st.lists(st.text(min_size=1), min_size=1))
def test_column_names_round_trip(path: list[str]) -> None:
    assert column_path(column_name(path)) == tuple(path)


def test_predicates_of_the_property_tests_are_typed() -> None:
    assert parse_where("t.i = 1 and n = 1.5", NAIVE_SCHEMA) == And(
        (Compare("t.i", "=", 1), Compare("n", "=", Decimal("1.50")))
    )
