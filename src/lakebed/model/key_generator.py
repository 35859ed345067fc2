"""Key generators: how a table turns columns into record keys and partition paths."""

from __future__ import annotations

from lakebed.model.config import TableConfig
from lakebed.model.words import Word


class KeyGenerator(Word):
    """The key generators that lakebed supports."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"


_CLASSES = {
    "SimpleKeyGenerator": KeyGenerator.SIMPLE,
    "ComplexKeyGenerator": KeyGenerator.COMPLEX,
    "NonpartitionedKeyGenerator": KeyGenerator.NON_PARTITION,
    "TimestampBasedKeyGenerator": KeyGenerator.TIMESTAMP,
}


def find_key_generator(config: TableConfig) -> KeyGenerator | None:
    """The key generator that a table's configuration names, or its fields imply; None if it is any other."""
    return parse_key_generator(config.key_generator) if config.key_generator else _implied(config)


def parse_key_generator(named: str) -> KeyGenerator | None:
    """The key generator of a type, or of a class by its name with or without package; None if it is any other."""
    simple = named.rpartition(".")[2].replace("AvroKeyGenerator", "KeyGenerator")
    kind = named.upper().removesuffix("_AVRO")
    return _CLASSES.get(simple) or (KeyGenerator(kind) if kind in KeyGenerator.__members__ else None)


def names_key_fields(config: TableConfig) -> bool | None:
    """Whether record keys are spelled `field:value,…` and not as the plain value of their only field.

    None if the configuration does not tell: before version 9, releases differ in how a composite key of one field is
    spelled, and Apache Hudi does not write to such a table unless it is told which way was used.
    """
    if len(config.key_fields) != 1:
        return True
    if find_key_generator(config) is not KeyGenerator.COMPLEX:
        return False
    stated = config.properties.get("hoodie.table.complex.keygen.encoding", "").strip().upper()
    if stated:
        return stated != "VALUE_ONLY"
    return True if config.version >= 9 else None


def _implied(config: TableConfig) -> KeyGenerator | None:
    """What Apache Hudi infers where nothing is named; partition fields with a kind, `ts:TIMESTAMP`, are custom ones."""
    if ":" in config.properties.get("hoodie.table.partition.fields", ""):
        return None
    if not config.partition_fields:
        return KeyGenerator.NON_PARTITION
    is_simple = len(config.partition_fields) == 1 and len(config.key_fields) <= 1
    return KeyGenerator.SIMPLE if is_simple else KeyGenerator.COMPLEX
