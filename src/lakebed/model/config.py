"""Table configuration: hoodie.properties with typed access, and the key generator that it names or implies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.model.instant import InstantTime
from lakebed.model.words import MergeMode, TableType, Word

_W = TypeVar("_W", bound=Word)

SUPPORTED_VERSIONS = (6, 8, 9)
_LAYOUTS = (1, 2)
_TIME = re.compile(r"[0-9]{17}", re.ASCII)
_DIGITS_MAX = 100
"""Maximum number of digits of a number; Python refuses to parse some thousand."""
LOST_PARTITIONS = "lakebed.metadata.partitions.lost"
"""The property that lists metadata-table partitions which the table has lost."""
INDEX_CHANGES = "lakebed.metadata.changes"
"""The property that counts how often metadata-table partitions ceased to be ready: dropped, or to be built again."""
INDEX_BUILDS = "lakebed.metadata.builds"
"""The property with the least number that no build of a metadata-table partition has used."""
TAKEN_BACK = "lakebed.metadata.taken_back"
"""The property with the newest instant of an index build that was taken back and has left the timeline."""

# The merge modes of the payload classes of versions 6 and 8.
_PAYLOAD_MERGE_MODES = {
    "OverwriteWithLatestAvroPayload": MergeMode.COMMIT_TIME_ORDERING,
    "DefaultHoodieRecordPayload": MergeMode.EVENT_TIME_ORDERING,
    "EventTimeAvroPayload": MergeMode.EVENT_TIME_ORDERING,
}


@dataclass(frozen=True)
class TableConfig:
    """The properties of one table and the path of their file; typed values are computed once, on demand."""

    properties: Mapping[str, str]
    path: str = ".hoodie/hoodie.properties"

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))
        for key in ("hoodie.table.name", "hoodie.table.type", "hoodie.table.version"):
            if not self.properties.get(key):
                raise CorruptTableError(f"property {key} is missing", path=self.path)
        if self.version not in SUPPORTED_VERSIONS:
            raise UnsupportedTableError(
                f"{self.path}: table version {self.version} is not supported",
                hint="lakebed reads table versions 6, 8 and 9; upgrade the table with Apache Hudi, or upgrade lakebed",
            )
        if self.timeline_layout not in _LAYOUTS:
            raise UnsupportedTableError(
                f"{self.path}: timeline layout {self.timeline_layout} is not supported",
                hint="lakebed reads timeline layouts 1 and 2; upgrade lakebed",
            )
        if self.properties.get("hoodie.bootstrap.base.path"):
            raise UnsupportedTableError(
                f"{self.path}: the table is bootstrapped from {self.properties['hoodie.bootstrap.base.path']}",
                hint="its base files may contain only meta columns; rewrite it with Apache Hudi, e.g. by clustering",
            )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (dict(self.properties), self.path)

    @cached_property
    def name(self) -> str:
        """The table's name."""
        return self.properties["hoodie.table.name"]

    @cached_property
    def version(self) -> int:
        """The table version: 6, 8 or 9."""
        return self._int("hoodie.table.version")

    @cached_property
    def timeline_layout(self) -> int:
        """1: instants are in `.hoodie`, named by requested time; 2: in `.hoodie/timeline`, named by both times."""
        if "hoodie.timeline.layout.version" in self.properties:
            return self._int("hoodie.timeline.layout.version")
        return 2 if self.version >= 8 else 1

    @cached_property
    def timeline_path(self) -> str:
        """The folder of the active timeline, relative to the table."""
        return ".hoodie" if self.timeline_layout == 1 else f".hoodie/{self._get('hoodie.timeline.path', 'timeline')}"

    @cached_property
    def history_path(self) -> str:
        """The folder of the archived timeline, relative to the table."""
        if self.timeline_layout == 1:
            return f".hoodie/{self._get('hoodie.archivelog.folder', 'archived')}"
        return f"{self.timeline_path}/{self._get('hoodie.timeline.history.path', 'history')}"

    @cached_property
    def table_type(self) -> TableType:
        """Copy-on-write or merge-on-read."""
        return self._word("hoodie.table.type", TableType)

    @cached_property
    def base_file_format(self) -> str:
        """PARQUET for data tables, HFILE for metadata tables."""
        return self._get("hoodie.table.base.file.format", "PARQUET").upper()

    @cached_property
    def key_fields(self) -> tuple[str, ...]:
        """The record key columns; none when keys are generated."""
        return self._list("hoodie.table.recordkey.fields")

    @cached_property
    def partition_fields(self) -> tuple[str, ...]:
        """The partition columns, without the `:SIMPLE` or `:TIMESTAMP` kinds of custom key generators."""
        return tuple(field.partition(":")[0] for field in self._list("hoodie.table.partition.fields"))

    @cached_property
    def ordering_fields(self) -> tuple[str, ...]:
        """The columns whose greater value wins under event-time ordering."""
        return self._list("hoodie.table.ordering.fields") or self._list("hoodie.table.precombine.field")

    @cached_property
    def key_generator(self) -> str:
        """The key generator's type, or the simple name of its class if only that is known; '' if neither is."""
        kind = self._get("hoodie.table.keygenerator.type", "")
        return kind or self._get("hoodie.table.keygenerator.class", "").rpartition(".")[2]

    @cached_property
    def merge_mode(self) -> MergeMode:
        """Which record of a key wins; derived from the payload class if the mode is not set."""
        if self.properties.get("hoodie.record.merge.mode"):
            return self._word("hoodie.record.merge.mode", MergeMode)
        payload = self._get("hoodie.compaction.payload.class", "OverwriteWithLatestAvroPayload")
        return find_merge_mode(payload)

    @cached_property
    def custom_merging(self) -> str:
        """The payload class or property that customizes merging beyond the two ordering modes; '' if there is none."""
        payload = self._get("hoodie.compaction.payload.class", "")
        if self.merge_mode is MergeMode.CUSTOM:
            return f"payload class {payload}" if payload else "a custom merger"
        if self._get("hoodie.table.partial.update.mode", "NONE").upper() != "NONE":
            return f"partial update mode {self.properties['hoodie.table.partial.update.mode']}"
        return next((key for key in self.properties if key.startswith("hoodie.record.merge.property.")), "")

    @cached_property
    def hive_style_partitioning(self) -> bool:
        """Whether partition folders are named `column=value`."""
        return self._flag("hoodie.datasource.write.hive_style_partitioning", default=False)

    @cached_property
    def url_encoded_partitions(self) -> bool:
        """Whether partition values are percent-encoded in paths."""
        return self._flag("hoodie.datasource.write.partitionpath.urlencode", default=False)

    @cached_property
    def drops_partition_columns(self) -> bool:
        """Whether partition columns are left out of data files and come from the path."""
        return self._flag("hoodie.datasource.write.drop.partition.columns", default=False)

    @cached_property
    def has_meta_columns(self) -> bool:
        """Whether the five `_hoodie_*` columns are filled."""
        return self._flag("hoodie.populate.meta.fields", default=True)

    @cached_property
    def timeline_timezone(self) -> str:
        """LOCAL or UTC: the zone of instant times."""
        return self._get("hoodie.table.timeline.timezone", "LOCAL").upper()

    @cached_property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Metadata-table partitions that are ready to be used."""
        return (*self.shared_partitions, *self.own_partitions)

    @cached_property
    def shared_partitions(self) -> tuple[str, ...]:
        """Ready partitions that other engines know and maintain."""
        return self._list("hoodie.table.metadata.partitions")

    @cached_property
    def own_partitions(self) -> tuple[str, ...]:
        """Ready partitions that are hidden from other engines, which must not use them."""
        return tuple(n for n in self._list("lakebed.metadata.partitions") if n not in self.shared_partitions)

    @cached_property
    def lost_partitions(self) -> tuple[str, ...]:
        """Partitions that were ready and were lost without being dropped; they must be rebuilt."""
        return tuple(n for n in self._list(LOST_PARTITIONS) if n not in self.metadata_partitions)

    @cached_property
    def index_changes(self) -> int:
        """How often partitions ceased to be ready, if only for a moment: their files may be others than before."""
        return self._int(INDEX_CHANGES) if INDEX_CHANGES in self.properties else 0

    @cached_property
    def index_builds(self) -> int:
        """The least number that no build of a partition has used, as far as lakebed noted it."""
        return self._int(INDEX_BUILDS) if INDEX_BUILDS in self.properties else 0

    @cached_property
    def last_taken_back(self) -> InstantTime | None:
        """The newest index build that was taken back: no instant may have its time again."""
        said = self.properties.get(TAKEN_BACK, "")
        return InstantTime(said) if _TIME.fullmatch(said) else None

    @cached_property
    def metadata_partitions_inflight(self) -> tuple[str, ...]:
        """Metadata-table partitions that are being built."""
        return self._list("hoodie.table.metadata.partitions.inflight")

    @cached_property
    def index_definitions_path(self) -> str:
        """The path of the index definitions, relative to the table."""
        return self._get("hoodie.table.index.defs.path", ".hoodie/.index_defs/index.json")

    @cached_property
    def create_schema(self) -> str | None:
        """The Avro schema given when the table was created by SQL."""
        return self.properties.get("hoodie.table.create.schema") or None

    def _get(self, key: str, default: str) -> str:
        return self.properties.get(key) or default

    def _list(self, key: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.properties.get(key, "").split(",") if part.strip())

    def _flag(self, key: str, *, default: bool) -> bool:
        return self._get(key, str(default)).strip().lower() == "true"

    def _int(self, key: str) -> int:
        text = self.properties[key].strip()
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
            raise CorruptTableError(f"property {key} is not a number: {text[:80]!r}", path=self.path)
        return int(text)

    def _word(self, key: str, words: type[_W]) -> _W:
        try:
            return words(self.properties[key].strip().upper())
        except ValueError as error:
            raise CorruptTableError(
                f"property {key} has an unknown value: {self.properties[key]!r}", path=self.path
            ) from error


def find_merge_mode(payload: str) -> MergeMode:
    """The merge mode of a payload class, named with or without its package."""
    return _PAYLOAD_MERGE_MODES.get(payload.rpartition(".")[2], MergeMode.CUSTOM)


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
    """The key generator that a table's configuration names, or its fields imply; None if it is not supported."""
    return parse_key_generator(config.key_generator) if config.key_generator else _implied(config)


def parse_key_generator(named: str) -> KeyGenerator | None:
    """The key generator of a type, or of a class with or without its package; None if it is not supported."""
    simple = named.rpartition(".")[2].replace("AvroKeyGenerator", "KeyGenerator")
    kind = named.upper().removesuffix("_AVRO")
    return _CLASSES.get(simple) or (KeyGenerator(kind) if kind in KeyGenerator.__members__ else None)


def names_key_fields(config: TableConfig) -> bool | None:
    """Whether record keys have the form `field:value,…`, not the plain value of their only field.

    None if the configuration does not tell: before version 9, releases differ in the form of a composite key of one
    field, and Apache Hudi refuses to write to such a table until it is told which was used.
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
    """The key generator that Apache Hudi infers; partition fields with a kind, `ts:TIMESTAMP`, need a custom one."""
    if ":" in config.properties.get("hoodie.table.partition.fields", ""):
        return None
    if not config.partition_fields:
        return KeyGenerator.NON_PARTITION
    is_simple = len(config.partition_fields) == 1 and len(config.key_fields) <= 1
    return KeyGenerator.SIMPLE if is_simple else KeyGenerator.COMPLEX
