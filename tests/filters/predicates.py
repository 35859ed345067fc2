"""Random predicates in two dialects: the text that lakebed takes, and what DuckDB calls the same.

Spark's rules are the measure. Where DuckDB has others, its side spells Spark's out: numbers are cast to the type in
which Spark compares them, position 0 of `substring` becomes 1, patterns name their escape
character, timestamps stand in UTC.

Left out, since the two differ and neither is what a user would mean:

- bytes: DuckDB orders them as Spark does, but lakebed compares them with text as well;
- whole numbers beyond 2^53 against floats, and `abs` of the least number of a type, which overflows;
- `upper` and `lower` of characters that change their number (ß, İ, ŉ), which Spark maps to several;
- text against `cast(... as int)` with a fraction or an exponent (DuckDB rounds, Spark cuts, lakebed says null);
- dates outside of the years 1 to 9999; NUL in a literal;
- numbers against text columns and other implicit casts that lakebed refuses with a typed error.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa

from .values import TEXTS, Rows, like_text, some_date, some_decimal, some_double, some_int, some_moment

_OPS = ("=", "<>", "!=", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True)
class Sides:
    """One expression or condition, as lakebed reads it and as DuckDB does, with the values of its parameters."""

    ours: str
    theirs: str
    values: tuple[object, ...] = ()


def joined(template: str, *parts: Sides) -> Sides:
    """A template filled on both sides."""
    ours = template.format(*(part.ours for part in parts))
    theirs = template.format(*(part.theirs for part in parts))
    return Sides(ours, theirs, tuple(value for part in parts for value in part.values))


class Predicates:
    """Makes conditions over the columns of `rows`; all from one source of chance."""

    def __init__(self, chance: random.Random, rows: Rows) -> None:
        self._chance = chance
        self._rows = rows
        self._leaves: tuple[Callable[[], Sides], ...] = (
            *(self._compare,) * 6,
            *(self._membership,) * 3,
            *(self._between,) * 2,
            *(self._like,) * 2,
            *(self._function,) * 3,
            self._null_test,
            self._null_test,
            self._truth,
            self._columns,
            self._prefix,
        )

    def condition(self, depth: int = 3) -> Sides:
        """A condition with connectives nested up to `depth`."""
        kind = self._chance.random()
        if depth == 0 or kind < 0.4:
            return self._chance.choice(self._leaves)()
        if kind < 0.55:
            return joined("NOT ({})", self.condition(depth - 1))
        word = self._chance.choice((" AND ", " OR "))
        parts = [self.condition(depth - 1) for _ in range(self._chance.choice((2, 2, 3)))]
        return joined(word.join(["({})"] * len(parts)), *parts)

    # Leaves.

    def _compare(self) -> Sides:
        name = self._chance.choice(self._rows.columns)
        return self._compared(self._operand(name), self._op(name), self._literal(name))

    def _compared(self, one: Sides, op: str, other: Sides) -> Sides:
        if op == "<=>":
            theirs = f"({one.theirs} IS NOT DISTINCT FROM {other.theirs})"
            return Sides(f"{one.ours} <=> {other.ours}", theirs, (*one.values, *other.values))
        if self._chance.random() < 0.2:
            return joined(f"{{}} {_FLIPPED[op]} {{}}", other, one)
        return joined(f"{{}} {op} {{}}", one, other)

    def _membership(self) -> Sides:
        name = self._chance.choice(self._rows.columns)
        literals = [self._literal(name, nulls=0.12) for _ in range(self._chance.choice((1, 1, 2, 3, 5, 9)))]
        word = self._chance.choice(("IN", "IN", "NOT IN"))
        return joined(f"{{}} {word} ({', '.join(['{}'] * len(literals))})", self._operand(name), *literals)

    def _between(self) -> Sides:
        name = self._chance.choice([n for n in self._rows.columns if not pa.types.is_boolean(self._rows.kind(n))])
        word = self._chance.choice(("BETWEEN", "BETWEEN", "NOT BETWEEN"))
        return joined(f"{{}} {word} {{}} AND {{}}", self._operand(name), self._literal(name), self._literal(name))

    def _like(self) -> Sides:
        name = self._chance.choice(self._rows.texts)
        word = self._chance.choice(("LIKE", "LIKE", "NOT LIKE"))
        pattern = like_text(self._chance, self._rows.value(self._chance, name) or "")
        if self._chance.random() < 0.3:
            escape = "!"
            own = pattern.replace("!", "!!").replace("\\%", "!%").replace("\\_", "!_").replace("\\\\", "\\")
            return Sides(f"{name} {word} {spark_text(own)} ESCAPE '!'", f"{name} {word} ? ESCAPE '{escape}'", (own,))
        return Sides(f"{name} {word} {spark_text(pattern)}", f"{name} {word} ? ESCAPE '\\'", (pattern,))

    def _prefix(self) -> Sides:
        name = self._chance.choice(self._rows.texts)
        text = (self._rows.value(self._chance, name) or "x")[: self._chance.randint(0, 4)].replace("\0", "")
        return Sides(f"startswith({name}, {spark_text(text)})", f"starts_with({name}, ?)", (text,))

    def _null_test(self) -> Sides:
        name = self._chance.choice(self._rows.columns)
        return joined(f"{{}} IS {self._chance.choice(('NULL', 'NOT NULL'))}", Sides(self._spelled(name), name))

    def _truth(self) -> Sides:
        word = self._chance.choice(
            ("flag", "TRUE", "FALSE", "1 = 1", "1 > 2", "NULL", "flag IS TRUE", "flag IS NOT FALSE", "flag IS FALSE")
        )
        return Sides(word, "CAST(NULL AS BOOLEAN)" if word == "NULL" else word)

    def _columns(self) -> Sides:
        one, other = self._chance.choice(_PAIRS)
        kinds = self._rows.kind(one), self._rows.kind(other)
        common = _common(*kinds)
        op = self._chance.choice(_OPS)
        sides = [Sides(name, f"CAST({name} AS {common})" if common else name) for name in (one, other)]
        return self._compared(sides[0], op, sides[1])

    def _function(self) -> Sides:
        call, literal = self._chance.choice(self._calls)()
        op = self._chance.choice(_OPS[:-1])
        if self._chance.random() < 0.1:
            return joined("{} IN ({}, {})", call, literal, Sides("NULL", "NULL"))
        return self._compared(call, op, literal)

    # Operands.

    def _op(self, name: str) -> str:
        if pa.types.is_boolean(self._rows.kind(name)):
            return self._chance.choice(("=", "!=", "<=>"))
        return self._chance.choice(_OPS)

    def _spelled(self, name: str) -> str:
        kind = self._chance.random()
        if kind < 0.1 and "." not in name:
            return f"`{name}`"
        return name.upper() if kind < 0.15 else name

    def _operand(self, name: str) -> Sides:
        """A column; on DuckDB's side in the type in which Spark compares it with literals of it."""
        kind = self._rows.kind(name)
        return Sides(self._spelled(name), _widened(name, kind))

    def _literal(self, name: str, nulls: float = 0.04) -> Sides:
        if self._chance.random() < nulls:
            return Sides("NULL", "NULL")
        value = self._rows.value(self._chance, name) if self._chance.random() < 0.6 else None
        return _LITERALS[_family(self._rows.kind(name))](self._chance, value)

    @property
    def _calls(self) -> tuple[Callable[[], tuple[Sides, Sides]], ...]:
        return (
            self._case_call,
            self._trim_call,
            self._length_call,
            self._substring_call,
            self._abs_call,
            self._calendar_call,
            self._format_call,
            self._unixtime_call,
            self._day_call,
            self._cast_call,
        )

    def _text_result(self, name: str, change: Callable[[str], str]) -> Sides:
        value = self._rows.value(self._chance, name)
        return text_literal(self._chance, change(value) if value else self._chance.choice(TEXTS))

    def _case_call(self) -> tuple[Sides, Sides]:
        word = self._chance.choice(("upper", "lower", "ucase", "lcase"))
        plain = {"ucase": "upper", "lcase": "lower"}.get(word, word)
        literal = self._text_result("plain", str.upper if plain == "upper" else str.lower)
        return Sides(f"{word}(plain)", f"{plain}(plain)"), literal

    def _trim_call(self) -> tuple[Sides, Sides]:
        return Sides("trim(txt)", "trim(txt, ' ')"), self._text_result("txt", lambda text: text.strip(" "))

    def _length_call(self) -> tuple[Sides, Sides]:
        word = self._chance.choice(("length", "char_length", "len"))
        return Sides(f"{word}(txt)", "length(txt)"), number(self._chance.randint(0, 12))

    def _substring_call(self) -> tuple[Sides, Sides]:
        start, count = self._chance.randint(-6, 6), self._chance.choice((None, -1, 0, 1, 2, 3, 8))
        more = "" if count is None else f", {count}"
        ours = f"{self._chance.choice(('substring', 'substr'))}(txt, {start}{more})"
        theirs = f"substr(txt, {start or 1}{more if count is None or count >= 0 else ', 0'})"
        value = (self._rows.value(self._chance, "txt") or "")[max(start - 1, 0) :][: count if count else 3]
        return Sides(ours, theirs), text_literal(self._chance, value)

    def _abs_call(self) -> tuple[Sides, Sides]:
        name = self._chance.choice(("num", "big", "dbl", "dec"))
        kind = self._rows.kind(name)
        # A function is compared with values of its own type only.
        value = some_double(self._chance) if name == "dbl" else some_int(self._chance) % 50
        literal = _LITERALS[_family(kind)](self._chance, value) if name == "dbl" else number(int(value))
        return Sides(f"abs({name})", _widened(f"abs({name})", kind)), literal

    def _calendar_call(self) -> tuple[Sides, Sides]:
        word = self._chance.choice(("year", "month", "day", "dayofmonth", "hour"))
        name = self._chance.choice(("moment", "wall") if word == "hour" else ("moment", "wall", "day_"))
        moment = some_moment(self._chance)
        value = {"year": moment.year, "month": moment.month, "hour": moment.hour}.get(word, moment.day)
        return Sides(f"{word}({name})", f"{'day' if word == 'dayofmonth' else word}({name})"), number(value)

    def _format_call(self) -> tuple[Sides, Sides]:
        name = self._chance.choice(("moment", "wall", "day_"))
        pattern = self._chance.choice(tuple(_PATTERNS))
        value = self._rows.value(self._chance, name) or some_moment(self._chance)
        literal = text_literal(self._chance, value.strftime(_PATTERNS[pattern]).zfill(4))
        theirs = f"strftime(CAST({name} AS TIMESTAMP), '{_PATTERNS[pattern]}')"
        return Sides(f"date_format({name}, {spark_text(pattern)})", theirs), literal

    def _unixtime_call(self) -> tuple[Sides, Sides]:
        pattern = self._chance.choice(tuple(_PATTERNS))
        seconds = self._rows.value(self._chance, "num") or 0
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
        theirs = f"strftime(make_timestamp(CAST(num AS BIGINT) * 1000000), '{_PATTERNS[pattern]}')"
        ours = f"from_unixtime(num, {spark_text(pattern)})"
        return Sides(ours, theirs), text_literal(self._chance, moment.strftime(_PATTERNS[pattern]))

    def _day_call(self) -> tuple[Sides, Sides]:
        name = self._chance.choice(("moment", "wall", "day_", "daytext"))
        word = self._chance.choice(("to_date({})", "date({})", "cast({} as date)"))
        literal = date_literal(self._chance, None)
        while literal.ours.startswith("TIMESTAMP"):  # A function is compared with values of its own type only.
            literal = date_literal(self._chance, None)
        return Sides(word.format(name), f"TRY_CAST({name} AS DATE)"), literal

    def _cast_call(self) -> tuple[Sides, Sides]:
        name, kind, literal = self._chance.choice(
            (
                ("numtext", "int", number(self._chance.randint(-20, 20))),
                ("numtext", "bigint", number(self._chance.choice((0, 5, 2**31, -7)))),
                ("numtext", "tinyint", number(self._chance.randint(-20, 20))),
                ("floattext", "double", double_literal(self._chance, None)),
                ("num", "string", text_literal(self._chance, str(self._chance.randint(-20, 20)))),
                ("num", "smallint", number(self._chance.randint(-20, 20))),
                ("big", "int", number(self._chance.randint(-20, 20))),
                ("num", "double", double_literal(self._chance, None)),
                ("flag", "string", text_literal(self._chance, self._chance.choice(("true", "false", "TRUE")))),
                ("day_", "string", text_literal(self._chance, some_date(self._chance).isoformat())),
                ("flt", "double", double_literal(self._chance, None)),
                ("dec", "double", double_literal(self._chance, None)),
            )
        )
        theirs = f"TRY_CAST({name} AS {_DUCK_WORDS.get(kind, kind)})"
        return Sides(f"cast({name} as {kind})", theirs), literal


_FLIPPED = {"=": "=", "<>": "<>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DUCK_WORDS = {"string": "VARCHAR"}
_PATTERNS = {
    "yyyy-MM-dd": "%Y-%m-%d",
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%M:%S",
    "yyyyMMdd": "%Y%m%d",
    "HH:mm": "%H:%M",
    "MM/dd/yyyy": "%m/%d/%Y",
    "yyyy'T'HH": "%YT%H",
}
_PAIRS = (
    ("num", "big"),
    ("num", "dbl"),
    ("num", "num"),
    ("dec", "num"),
    ("dec", "wide"),
    ("dec", "dbl"),
    ("flt", "dbl"),
    ("num", "flt"),
    ("txt", "plain"),
    ("moment", "moment"),
    ("dbl", "dbl"),
    ("part", "plain"),
    ("st.x", "num"),
)


def _family(kind: pa.DataType) -> str:
    for word, applies in _FAMILIES:
        if applies(kind):
            return word
    raise AssertionError(kind)


_FAMILIES: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("bool", pa.types.is_boolean),
    ("int", pa.types.is_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal),
    ("text", pa.types.is_string),
    ("date", pa.types.is_date),
    ("zoned", lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None),
    ("wall", pa.types.is_timestamp),
)


def _widened(theirs: str, kind: pa.DataType) -> str:
    family = _family(kind)
    word = {"int": "DECIMAL(38, 6)", "decimal": "DECIMAL(38, 10)", "float": "DOUBLE", "date": "TIMESTAMP"}.get(family)
    return f"CAST({theirs} AS {word})" if word else theirs


def _common(one: pa.DataType, other: pa.DataType) -> str:
    kinds = {_family(one), _family(other)}
    if "float" in kinds:
        return "DOUBLE"
    return "DECIMAL(38, 10)" if "decimal" in kinds else ""


def spark_text(text: str) -> str:
    """A string as Spark spells it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def text_literal(chance: random.Random, value: object) -> Sides:
    text = str(value) if value is not None else chance.choice(TEXTS)
    text = text.replace("\0", "")
    if "\\" not in text and chance.random() < 0.3:
        return Sides("'" + text.replace("'", "''") + "'", "?", (text,))
    if "\\" not in text and "'" in text and '"' not in text and chance.random() < 0.5:
        return Sides(f'"{text}"', "?", (text,))
    return Sides(spark_text(text), "?", (text,))


def number(value: int) -> Sides:
    return Sides(str(value), str(value))


def int_literal(chance: random.Random, value: object) -> Sides:
    whole = value if isinstance(value, int) else some_int(chance)
    kind = chance.random()
    if kind < 0.1:
        return Sides(f"{whole}L", f"CAST({whole} AS DECIMAL(38, 6))")
    if kind < 0.2:
        return Sides(f"'{whole}'", f"CAST({whole} AS DECIMAL(38, 6))")
    if kind < 0.35 and abs(whole) < 10**9:
        fraction = chance.choice(("0", "5", "25", "999999"))
        return Sides(f"{whole}.{fraction}", f"CAST('{whole}.{fraction}' AS DECIMAL(38, 6))")
    if kind < 0.4:
        far = chance.choice((10**20, -(10**20), 2**63, -(2**63) - 1, 2**31, -(2**31) - 1))
        return Sides(str(far), f"CAST({far} AS DECIMAL(38, 6))")
    return Sides(str(whole), f"CAST({whole} AS DECIMAL(38, 6))")


def double_literal(chance: random.Random, value: object) -> Sides:
    found = value if isinstance(value, float) else some_double(chance)
    if found != found or found in (float("inf"), float("-inf")):
        word = {True: "NaN"}.get(found != found) or ("Infinity" if found > 0 else "-Infinity")
        ours = chance.choice((f"double('{word}')", f"cast('{word}' as double)", f"'{word}'"))
        return Sides(ours, f"CAST('{word}' AS DOUBLE)")
    text = repr(found)
    ours = chance.choice((text, f"{text}D" if "e" not in text else text, f"'{text}'"))
    return Sides(ours, f"CAST('{text}' AS DOUBLE)")


def decimal_literal(chance: random.Random, value: object) -> Sides:
    found = value if isinstance(value, Decimal) else some_decimal(chance)
    text = f"{found:f}"
    kind = chance.random()
    if kind < 0.2:
        return Sides(f"{text}BD", f"CAST('{text}' AS DECIMAL(38, 10))")
    if kind < 0.35:
        return Sides(f"'{text}'", f"CAST('{text}' AS DECIMAL(38, 10))")
    if kind < 0.45:  # With so few digits the two compare as doubles as they do as decimals.
        return Sides(f"{text}D", f"CAST('{text}' AS DECIMAL(38, 10))")
    return Sides(text, f"CAST('{text}' AS DECIMAL(38, 10))")


def bool_literal(chance: random.Random, value: object) -> Sides:
    word = str(value if isinstance(value, bool) else chance.random() < 0.5).lower()
    return Sides(chance.choice((word, word.upper(), f"'{word}'")), word)


def date_literal(chance: random.Random, value: object) -> Sides:
    found = value if isinstance(value, date) else some_date(chance)
    theirs = f"TIMESTAMP '{found.isoformat()} 00:00:00'"
    if chance.random() < 0.15:
        hours = chance.choice((0, 0, 1, 13))
        return Sides(
            f"TIMESTAMP '{found.isoformat()} {hours:02d}:00:00'", f"TIMESTAMP '{found.isoformat()} {hours:02d}:00:00'"
        )
    spelled = chance.choice(("DATE '{}'", "'{}'", "date('{}')", "cast('{}' as date)", "to_date('{}')"))
    return Sides(spelled.format(found.isoformat()), theirs)


def zoned_literal(chance: random.Random, value: object) -> Sides:
    found = value if isinstance(value, datetime) else some_moment(chance)
    found = found.replace(tzinfo=None)
    theirs = f"TIMESTAMP '{found.isoformat(' ')}'"
    if chance.random() < 0.3:
        hours = chance.choice((-5, 2, 14))
        shifted = found.replace(tzinfo=timezone.utc).astimezone(timezone(timedelta(hours=hours)))
        text = f"{shifted.replace(tzinfo=None).isoformat(' ')}{'+' if hours > 0 else '-'}{abs(hours):02d}:00"
        return Sides(chance.choice(("TIMESTAMP '{}'", "'{}'")).format(text), theirs)
    spelled = chance.choice(("TIMESTAMP '{}'", "'{}'", "to_timestamp('{}')", "cast('{}' as timestamp)"))
    return Sides(spelled.format(found.isoformat(chance.choice((" ", "T")))), theirs)


def wall_literal(chance: random.Random, value: object) -> Sides:
    found = value if isinstance(value, datetime) else some_moment(chance)
    spelled = chance.choice(("TIMESTAMP_NTZ '{}'", "'{}'"))
    return Sides(spelled.format(found.isoformat(" ")), f"TIMESTAMP '{found.isoformat(' ')}'")


_LITERALS: dict[str, Callable[[random.Random, object], Sides]] = {
    "bool": bool_literal,
    "int": int_literal,
    "float": double_literal,
    "decimal": decimal_literal,
    "text": text_literal,
    "date": date_literal,
    "zoned": zoned_literal,
    "wall": wall_literal,
}
