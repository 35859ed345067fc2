"""Options of `df.write.format("lakebed")`: the write operation, and properties of the new or existing table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.index.names import moot_words, switched_word
from lakebed.model.config import TableConfig, find_key_generator, find_merge_mode, parse_key_generator
from lakebed.model.words import MergeMode, TableType
from lakebed.option_values import Values, parse_value
from lakebed.options import INDEX_SWITCHES, known_options
from lakebed.write.checks import check_asked_indexes

OPERATION = "hoodie.datasource.write.operation"
PARTITIONS_TO_DELETE = "hoodie.datasource.write.partitions.to.delete"
OPERATIONS = (
    "upsert",
    "insert",
    "bulk_insert",
    "delete",
    "delete_partition",
    "insert_overwrite",
    "insert_overwrite_table",
)


@dataclass(frozen=True, slots=True)
class _Property:
    """A table property: the options that set it, their parser, and the value of an existing table."""

    spellings: tuple[str, ...]
    parse: Callable[[str], Any]
    of_table: Callable[[TableConfig], Any]
    wanted: str = ""


def _columns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _merge_mode(text: str) -> MergeMode:
    known = {str(mode): mode for mode in (MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING)}
    return known.get(text.strip().upper()) or _payload(text)


def _payload(text: str) -> MergeMode:
    mode = find_merge_mode(text.strip())
    if mode is MergeMode.CUSTOM:
        raise ValueError(text)
    return mode


def _key_generator(text: str) -> object:
    found = parse_key_generator(text.strip())
    if found is None:
        raise ValueError(text)
    return found


_FLAG = "true or false"
TABLE_PROPERTIES = {
    "name": _Property(("hoodie.table.name", "hoodie.datasource.write.table.name"), str.strip, lambda c: c.name),
    "key": _Property(
        ("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields"), _columns, lambda c: c.key_fields
    ),
    "partition_by": _Property(
        ("hoodie.datasource.write.partitionpath.field", "hoodie.table.partition.fields"),
        _columns,
        lambda c: c.partition_fields,
    ),
    "ordering": _Property(
        (
            "hoodie.table.ordering.fields",
            "hoodie.datasource.write.precombine.field",
            "hoodie.table.precombine.field",
        ),
        _columns,
        lambda c: c.ordering_fields,
    ),
    "table_type": _Property(
        ("hoodie.datasource.write.table.type", "hoodie.table.type"),
        lambda text: TableType(text.strip().upper()),
        lambda c: c.table_type,
        "COPY_ON_WRITE or MERGE_ON_READ",
    ),
    "merge_mode": _Property(
        ("hoodie.record.merge.mode", "hoodie.datasource.write.payload.class", "hoodie.compaction.payload.class"),
        _merge_mode,
        lambda c: c.merge_mode,
        "EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING, or a payload class that means one of these",
    ),
    "key_generator": _Property(
        (
            "hoodie.datasource.write.keygenerator.class",
            "hoodie.datasource.write.keygenerator.type",
            "hoodie.table.keygenerator.class",
            "hoodie.table.keygenerator.type",
        ),
        _key_generator,
        find_key_generator,
        "the simple, complex, non-partitioned or timestamp-based one",
    ),
    "hive_style": _Property(
        ("hoodie.datasource.write.hive_style_partitioning",), _flag, lambda c: c.hive_style_partitioning, _FLAG
    ),
    "url_encoded": _Property(
        ("hoodie.datasource.write.partitionpath.urlencode",), _flag, lambda c: c.url_encoded_partitions, _FLAG
    ),
    "timezone": _Property(
        ("hoodie.table.timeline.timezone",),
        lambda text: {"UTC": "UTC", "LOCAL": "LOCAL"}[text.strip().upper()],
        lambda c: c.timeline_timezone,
        "UTC or LOCAL",
    ),
}
"""Table properties that options may set, by the argument names of `create_table` where there is one."""
_OWN = (
    OPERATION,
    PARTITIONS_TO_DELETE,
    *INDEX_SWITCHES,
    *(key for about in TABLE_PROPERTIES.values() for key in about.spellings),
)


@dataclass(frozen=True, slots=True)
class SaveOptions:
    """The parsed options of a save: `properties` and `indexes` of the table, and all `others` as given.

    `spellings` maps each given property to the option that set it.
    """

    operation: str
    partitions_to_delete: tuple[str, ...]
    properties: Mapping[str, Any]
    indexes: Mapping[str, bool]
    others: Mapping[str, str]
    spellings: Mapping[str, str]

    def option(self, name: str) -> str:
        """The option that set a property, or could set it."""
        return self.spellings.get(name) or TABLE_PROPERTIES[name].spellings[0]


def parse_save_options(options: Mapping[str, str]) -> SaveOptions:
    """Parses the options of a save; raises InvalidInputError for invalid or contradictory values."""
    said: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for name, about in TABLE_PROPERTIES.items():
        for key in about.spellings:
            if key in options:
                _say(said, name, key, _parsed(key, options[key], about.parse, about.wanted))
                spellings.setdefault(name, key)
    indexes: dict[str, bool] = {}
    for key, index in _switches():
        if key in options:
            _say(indexes, index, key, _parsed(key, options[key], _flag, _FLAG))
    return SaveOptions(
        operation=_parsed(OPERATION, options.get(OPERATION, "upsert"), _operation, f"one of {', '.join(OPERATIONS)}"),
        partitions_to_delete=_columns(options.get(PARTITIONS_TO_DELETE, "")),
        properties=said,
        indexes=indexes,
        others={key: value for key, value in options.items() if key not in _OWN},
        spellings=spellings,
    )


def known_save_options() -> dict[str, str]:
    """Every option that a save knows, like `known_options`."""
    return known_options() | dict.fromkeys(_OWN, "supported")


def check_agrees(given: SaveOptions, config: TableConfig, indexes: Iterable[str]) -> None:
    """Raises InvalidInputError if options contradict an existing table."""
    for name, asked in given.properties.items():
        about = TABLE_PROPERTIES[name]
        has = about.of_table(config)
        if asked != has:
            is_case = _text(asked).casefold() == _text(has).casefold()
            raise InvalidInputError(
                f"the option {given.option(name)} is {_text(asked)}, table {config.name} has {_text(has) or 'none'}",
                hint=f"names are case sensitive: use {_text(has)}"
                if is_case
                else "leave the option out, or save to another path",
            )
    asked = {key: given.indexes[index] for key, index in _switches() if index in given.indexes}
    check_asked_indexes(config, asked, frozenset(indexes))


def check_consistent(given: SaveOptions, config: TableConfig, indexes: Iterable[str]) -> None:
    """Raises InvalidInputError if the new table would differ from one of its options, because others contradict it."""
    for name, asked in given.properties.items():
        has = TABLE_PROPERTIES[name].of_table(config)
        if asked != has:
            raise InvalidInputError(
                f"the option {given.option(name)} is {_text(asked)}, "
                f"but the other options make it {_text(has) or 'none'}",
                hint="leave the option out, or change the others",
            )
    present = {*indexes} | moot_words(is_partitioned=bool(config.partition_fields))
    for key, index in _switches():
        if index in given.indexes and given.indexes[index] != (index in present):
            is_so = f"new tables have the index {index}"
            asked_for = f"a new table cannot have the index {index} with the others that are asked for"
            raise InvalidInputError(
                f"the option {key} is {str(given.indexes[index]).lower()}, but "
                f"{asked_for if given.indexes[index] else is_so}",
                hint="leave the option out",
            )


def _operation(text: str) -> str:
    return {name: name for name in OPERATIONS}[text.strip().lower()]


def _parsed(key: str, text: str, parse: Callable[[str], Any], wanted: str) -> Any:
    return parse_value(key, text, Values(wanted, parse))


def _say(said: dict[str, Any], name: str, key: str, value: Any) -> None:
    if said.setdefault(name, value) != value:
        raise InvalidInputError(
            f"the option {key} is {_text(value)}, but another option says {_text(said[name])}",
            hint="remove one of them",
        )


def _text(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _switches() -> Iterator[tuple[str, str]]:
    """Options that switch an index on or off, and the index."""
    return ((key, switched_word(key)) for key in INDEX_SWITCHES)
