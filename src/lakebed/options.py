"""Read and write options, and the `hoodie.*` spellings that users have in their jobs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from lakebed.errors import InvalidInputError

# Known to Apache Hudi's readers; only these values mean what lakebed does anyway.
_ACCEPTED_VALUES = {
    "hoodie.datasource.merge.type": ("payload_combine",),
    "hoodie.datasource.query.incremental.format": ("latest_state",),
    "hoodie.datasource.read.extract.partition.values.from.path": ("false",),
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": ("false",),
    "hoodie.datasource.read.incr.filters": ("",),
    "hoodie.datasource.read.incr.path.glob": ("",),
    "hoodie.datasource.read.incr.skip_cluster": ("false",),
    "hoodie.datasource.read.incr.skip_compact": ("false",),
    "hoodie.datasource.read.paths": (),
    "hoodie.datasource.read.schema.use.end.instanttime": ("true",),
    "hoodie.datasource.streaming.startoffset": (),
    "hoodie.enable.data.skipping": ("true", "false"),
    "hoodie.file.group.reader.enabled": ("true", "false"),
    "hoodie.metadata.record.index.enable": ("true", "false"),
    "hoodie.schema.on.read.enable": ("false",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a table."""

    query_type: str = field(default="snapshot", metadata={"hoodie": "hoodie.datasource.query.type"})
    begin_instant: str | None = field(default=None, metadata={"hoodie": "hoodie.datasource.read.begin.instanttime"})
    end_instant: str | None = field(default=None, metadata={"hoodie": "hoodie.datasource.read.end.instanttime"})
    as_of: str | None = field(default=None, metadata={"hoodie": "as.of.instant"})
    metadata_enable: str = field(default="true", metadata={"hoodie": "hoodie.metadata.enable"})

    @property
    def use_metadata(self) -> bool:
        """Whether the metadata table may be read."""
        return self.metadata_enable.strip().lower() != "false"

    def __post_init__(self) -> None:
        kinds = ("snapshot", "read_optimized", "incremental")
        if self.query_type not in kinds:
            raise InvalidInputError(
                f"hoodie.datasource.query.type is {self.query_type!r}", hint=f"use one of {', '.join(kinds)}"
            )
        if self.query_type == "incremental" and self.begin_instant is None:
            raise InvalidInputError(
                "an incremental query needs a start",
                hint="set hoodie.datasource.read.begin.instanttime to an instant, or to 'earliest'",
            )


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Read options from their `hoodie.*` spellings; others than those are storage options and are left alone.

    A known option that lakebed does not support raises; an unknown `hoodie.*` one warns with the nearest name.
    """
    by_spelling = {f.metadata["hoodie"]: f.name for f in fields(ReadOptions)}
    given: dict[str, str] = {}
    for key, value in options.items():
        if key in by_spelling:
            given[by_spelling[key]] = str(value)
        elif key.startswith("hoodie.") and not is_write_option(key):
            _check_other(key, str(value))
    return ReadOptions(**given)


def parse_table_options(options: Mapping[str, str]) -> ReadOptions:
    """Like `parse_read_options`, for a table that answers all kinds of queries: options that ask for one raise."""
    given = parse_read_options(options)
    for f in fields(ReadOptions):
        if f.name != "metadata_enable" and getattr(given, f.name) != f.default:
            raise InvalidInputError(
                f"the option {f.metadata['hoodie']} has no meaning for open_table",
                hint="say it in the call: to_arrow(as_of=...), to_arrow(mode=...), changes(since, until)",
            )
    return given


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that are for the store: credentials, endpoints and the like."""
    return {
        key: str(value)
        for key, value in options.items()
        if not key.startswith(("hoodie.", "lakebed.", "as.of.")) and key != "path"
    }


# Known to Apache Hudi's writers, and without meaning here: sizes of its Spark stages, its caches, what we always do.
_WITHOUT_EFFECT = (
    "hoodie.bloom.index.parallelism",
    "hoodie.bulkinsert.shuffle.parallelism",
    "hoodie.cleaner.policy.failed.writes",
    "hoodie.datasource.write.row.writer.enable",
    "hoodie.delete.shuffle.parallelism",
    "hoodie.embed.timeline.server",
    "hoodie.finalize.write.parallelism",
    "hoodie.insert.shuffle.parallelism",
    "hoodie.markers.delete.parallelism",
    "hoodie.rollback.parallelism",
    "hoodie.simple.index.parallelism",
    "hoodie.table.name",
    "hoodie.upsert.shuffle.parallelism",
    "hoodie.write.concurrency.mode",
    "hoodie.write.markers.type",
)
# Properties that create_table gives a table; writes find them there.
_OF_CREATION = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.record.merge.mode",
    "hoodie.table.timeline.timezone",
)
# What table services take; they parse them.
_OF_SERVICES = (
    "hoodie.clean.commits.retained",
    "hoodie.clean.fileversions.retained",
    "hoodie.clean.hours.retained",
    "hoodie.clean.incremental.enabled",
    "hoodie.clean.policy",
    "hoodie.cleaner.commits.retained",
    "hoodie.cleaner.fileversions.retained",
    "hoodie.cleaner.hours.retained",
    "hoodie.cleaner.incremental.mode",
    "hoodie.cleaner.policy",
    "hoodie.clustering.plan.strategy.max.bytes.per.group",
    "hoodie.clustering.plan.strategy.max.num.groups",
    "hoodie.clustering.plan.strategy.partition.selected",
    "hoodie.clustering.plan.strategy.small.file.limit",
    "hoodie.clustering.plan.strategy.sort.columns",
    "hoodie.clustering.plan.strategy.target.file.max.bytes",
    "hoodie.compact.inline.max.delta.commits",
    "hoodie.compact.inline.max.delta.seconds",
    "hoodie.compact.inline.trigger.strategy",
    "hoodie.compaction.logfile.num.threshold",
    "hoodie.compaction.logfile.size.threshold",
    "hoodie.compaction.strategy",
    "hoodie.compaction.target.io",
    "hoodie.keep.max.commits",
    "hoodie.keep.min.commits",
    "hoodie.layout.optimize.strategy",
    "hoodie.log.compaction.blocks.threshold",
)
# What a call says by its name or its arguments.
_SAID_IN_CALLS = {
    "hoodie.datasource.write.operation": "call the method: table.upsert(rows), table.insert(rows), table.delete(keys)",
    "hoodie.datasource.write.partitionpath.field": 'create_table(..., partition_by="city")',
    "hoodie.datasource.write.precombine.field": 'create_table(..., ordering="ts")',
    "hoodie.datasource.write.recordkey.field": 'create_table(..., key="id")',
    "hoodie.datasource.write.table.name": "use hoodie.table.name in the options of create_table",
    "hoodie.datasource.write.table.type": 'create_table(..., table_type="mor")',
    "hoodie.datasource.write.partitions.to.delete": "call table.delete_partitions(paths)",
    "hoodie.table.ordering.fields": 'create_table(..., ordering="ts")',
    "hoodie.table.partition.fields": 'create_table(..., partition_by="city")',
    "hoodie.table.precombine.field": 'create_table(..., ordering="ts")',
    "hoodie.table.recordkey.fields": 'create_table(..., key="id")',
    "hoodie.table.type": 'create_table(..., table_type="mor")',
}
_WRITE_VALUES = {
    "hoodie.archive.async": ("false",),
    "hoodie.bucket.index.num.buckets": (),
    "hoodie.clean.async.enabled": ("false",),
    "hoodie.clean.trigger.strategy": ("num_commits",),
    "hoodie.clustering.schedule.inline": ("false",),
    "hoodie.combine.before.delete": ("true",),
    "hoodie.combine.before.upsert": ("true",),
    "hoodie.compact.schedule.inline": ("false",),
    "hoodie.datasource.compaction.async.enable": ("false", "true"),
    "hoodie.datasource.hive_sync.enable": ("false",),
    "hoodie.datasource.meta.sync.enable": ("false",),
    "hoodie.datasource.write.drop.partition.columns": ("false",),
    "hoodie.datasource.write.insert.dup.policy": ("none",),
    "hoodie.datasource.write.insert.drop.duplicates": ("false",),
    "hoodie.log.compaction.enable": ("false", "true"),
    "hoodie.datasource.write.payload.class": (),
    "hoodie.index.bucket.engine": (),
    "hoodie.metadata.index.expression.enable": ("false",),
    "hoodie.metadata.index.secondary.enable": ("false",),
    "hoodie.populate.meta.fields": ("true",),
    "hoodie.table.base.file.format": ("parquet",),
    "hoodie.table.cdc.enabled": ("false",),
    "hoodie.write.record.merge.custom.implementation.classes": (),
    "hoodie.write.table.version": ("9",),
}
_INDEX_TYPES = {
    "auto": "auto",
    "simple": "simple",
    "bloom": "bloom",
    "record_index": "record",
    "record_level_index": "record",
    "global_record_level_index": "record",
}
SET_NULL = "hoodie.write.set.null.for.missing.columns"
_SORT_MODES = {"none": "none", "partition_sort": "partition", "global_sort": "global"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How to write to a table. `lock` has the `hoodie.write.lock.*` options as they were given."""

    index: str = field(default="auto", metadata={"hoodie": "hoodie.index.type"})
    sort_mode: str = field(default="none", metadata={"hoodie": "hoodie.bulkinsert.sort.mode"})
    target_file_bytes: int = field(default=120 << 20, metadata={"hoodie": "hoodie.parquet.max.file.size"})
    small_file_bytes: int = field(default=100 << 20, metadata={"hoodie": "hoodie.parquet.small.file.limit"})
    compression: str = field(default="snappy", metadata={"hoodie": "hoodie.parquet.compression.codec"})
    log_format: str = field(default="parquet", metadata={"hoodie": "hoodie.logfile.data.block.format"})
    record_positions: bool = field(default=True, metadata={"hoodie": "hoodie.write.record.positions"})
    combine_inserts: bool = field(default=False, metadata={"hoodie": "hoodie.combine.before.insert"})
    sets_null: bool = field(default=False, metadata={"hoodie": SET_NULL})
    reconciles: bool = field(default=False, metadata={"hoodie": "hoodie.datasource.write.reconcile.schema"})
    heartbeat_ms: int = field(default=60_000, metadata={"hoodie": "hoodie.client.heartbeat.interval_in_ms"})
    heartbeat_misses: int = field(default=2, metadata={"hoodie": "hoodie.client.heartbeat.tolerable.misses"})
    service_delay_minutes: int = field(default=10, metadata={"hoodie": "hoodie.table.service.rollback.delay.minutes"})
    moves_rows: bool = field(default=True, metadata={"hoodie": "hoodie.record.index.update.partition.path"})
    metadata_log_compaction: bool = field(default=False, metadata={"hoodie": "hoodie.metadata.log.compaction.enable"})
    metadata_log_blocks_min: int = field(
        default=5, metadata={"hoodie": "hoodie.metadata.log.compaction.blocks.threshold"}
    )
    lock: Mapping[str, str] = field(default_factory=dict)

    @property
    def fills_missing(self) -> bool:
        """Whether columns that rows lack are set to null; either option asks for it, as in Apache Hudi."""
        return self.sets_null or self.reconciles

    @property
    def metadata_log_blocks(self) -> int | None:
        """From how many log files on those of a shard of the metadata table are merged; None: never."""
        return self.metadata_log_blocks_min if self.metadata_log_compaction else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How many shards a new record index is given, where the call does not say, and what its entries carry."""

    global_min: int = field(
        default=10, metadata={"hoodie": "hoodie.metadata.global.record.level.index.min.filegroup.count"}
    )
    global_max: int = field(
        default=10_000, metadata={"hoodie": "hoodie.metadata.global.record.level.index.max.filegroup.count"}
    )
    partitioned_min: int = field(
        default=1, metadata={"hoodie": "hoodie.metadata.record.level.index.min.filegroup.count"}
    )
    partitioned_max: int = field(
        default=10, metadata={"hoodie": "hoodie.metadata.record.level.index.max.filegroup.count"}
    )
    growth: float = field(default=2.0, metadata={"hoodie": "hoodie.metadata.record.index.growth.factor"})
    shard_bytes_max: int = field(
        default=1 << 30, metadata={"hoodie": "hoodie.metadata.record.index.max.filegroup.size"}
    )
    ordering: str = field(default="off", metadata={"hoodie": "lakebed.record.index.ordering"})

    @property
    def global_sizing(self) -> tuple[int, int, float, int]:
        """Fewest and most shards of a global index, room to grow, and the bytes of a shard."""
        return self.global_min, self.global_max, self.growth, self.shard_bytes_max

    @property
    def partitioned_sizing(self) -> tuple[int, int, float, int]:
        """The same, for each data partition of a partitioned index."""
        return self.partitioned_min, self.partitioned_max, self.growth, self.shard_bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineOptions:
    """Which table services follow a write in its process when they are due, and whether passes of the runner cluster.

    Fields that end in `commits` say how many writes lie between two of them.
    """

    clean: bool = field(default=True, metadata={"hoodie": "hoodie.clean.automatic"})
    clean_commits: int = field(default=10, metadata={"hoodie": "hoodie.clean.trigger.max.commits"})
    archive: bool = field(default=True, metadata={"hoodie": "hoodie.archive.automatic"})
    compaction: bool = field(default=False, metadata={"hoodie": "hoodie.compact.inline"})
    log_compaction: bool = field(default=False, metadata={"hoodie": "hoodie.log.compaction.inline"})
    clustering: bool = field(default=False, metadata={"hoodie": "hoodie.clustering.inline"})
    clustering_commits: int = field(default=4, metadata={"hoodie": "hoodie.clustering.inline.max.commits"})
    passes_cluster: bool = field(default=False, metadata={"hoodie": "hoodie.clustering.async.enabled"})
    passes_cluster_commits: int = field(default=4, metadata={"hoodie": "hoodie.clustering.async.max.commits"})


_INLINE_ALIASES = {
    "hoodie.clean.max.commits": "hoodie.clean.trigger.max.commits",
    "hoodie.datasource.clustering.async.enable": "hoodie.clustering.async.enabled",
    "hoodie.datasource.clustering.inline.enable": "hoodie.clustering.inline",
}
_INLINE_OPTIONS = (*(f.metadata["hoodie"] for f in fields(InlineOptions)), *_INLINE_ALIASES)


def parse_inline_options(options: Mapping[str, str]) -> InlineOptions:
    """Options of services that follow writes, from their `hoodie.*` spellings; all others are left alone."""
    return InlineOptions(**_given(InlineOptions, _INLINE_ALIASES, options))


_INDEX_ALIASES = {
    "hoodie.metadata.record.index.min.filegroup.count": "hoodie.metadata.global.record.level.index.min.filegroup.count",
    "hoodie.metadata.record.index.max.filegroup.count": "hoodie.metadata.global.record.level.index.max.filegroup.count",
}
"""Spellings of releases before 1.1."""
_INDEX_OPTIONS = (*(f.metadata["hoodie"] for f in fields(IndexOptions)), *_INDEX_ALIASES)


def parse_index_options(options: Mapping[str, str]) -> IndexOptions:
    """Options of new indexes from their `hoodie.*` spellings; all others are left alone."""
    return IndexOptions(**_given(IndexOptions, _INDEX_ALIASES, options))


def _given(
    kind: type[IndexOptions | InlineOptions], aliases: Mapping[str, str], options: Mapping[str, str]
) -> dict[str, Any]:
    spellings = {f.metadata["hoodie"]: f for f in fields(kind)}
    given: dict[str, Any] = {}
    for key, value in options.items():
        found = spellings.get(aliases.get(key, key))
        if found is not None:
            given[found.name] = _parse(key, str(value), found.type)
    return given


def known_options() -> dict[str, str]:
    """Every `hoodie.*` option that lakebed knows: supported, without effect, or the values that it may have."""
    kinds = (ReadOptions, WriteOptions, IndexOptions, InlineOptions)
    supported = [f.metadata["hoodie"] for kind in kinds for f in fields(kind) if f.metadata]
    known = dict.fromkeys(
        (*_SAID_IN_CALLS, *supported, *_INDEX_ALIASES, *_INLINE_ALIASES, *_OF_CREATION, *_OF_SERVICES), "supported"
    )
    known.update(dict.fromkeys(_WITHOUT_EFFECT, "no effect"))
    for key, values in {**_ACCEPTED_VALUES, **_WRITE_VALUES}.items():
        known[key] = f"only {' or '.join(values)}" if any(values) else "refused"
    return known


def is_write_option(key: str) -> bool:
    """Whether a spelling means something to writes alone."""
    spellings = {*(f.metadata["hoodie"] for f in fields(WriteOptions) if f.metadata), *_INDEX_OPTIONS, *_INLINE_OPTIONS}
    names = (*spellings, *_WRITE_VALUES, *_WITHOUT_EFFECT, *_OF_CREATION, *_OF_SERVICES, *_SAID_IN_CALLS)
    known = key in names or key.startswith("hoodie.write.lock.")
    return known and key not in _ACCEPTED_VALUES and key != "hoodie.metadata.enable"


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Write options from their `hoodie.*` spellings; read options and options of the store are left alone.

    A known option that lakebed does not support raises; an unknown `hoodie.*` one warns with the nearest name.
    """
    spellings = {f.metadata["hoodie"]: f for f in fields(WriteOptions) if f.metadata}
    others = {f.metadata["hoodie"] for f in fields(ReadOptions)} | {*_ACCEPTED_VALUES, *_WITHOUT_EFFECT, *_OF_CREATION}
    others.update(_INDEX_OPTIONS, _INLINE_OPTIONS, _OF_SERVICES)
    parse_inline_options(options)
    given: dict[str, Any] = {"lock": {k: str(v) for k, v in options.items() if k.startswith("hoodie.write.lock.")}}
    for key, value in options.items():
        if key in spellings:
            given[spellings[key].name] = _parse(key, str(value), spellings[key].type)
        elif key in _SAID_IN_CALLS:
            raise InvalidInputError(f"the option {key} has no effect here", hint=_SAID_IN_CALLS[key])
        elif key in _WRITE_VALUES:
            _check_value(key, str(value), _WRITE_VALUES[key])
        elif key.startswith("hoodie.") and key not in others and key not in given["lock"]:
            _warn_unknown(key)
    return WriteOptions(**given)


_WANTED = {"bool": "true or false", "int": "a number above 0", "float": "a number from 1 up"}


def _parse(key: str, text: str, kind: object) -> object:
    word = text.strip().lower()
    try:
        if key == "hoodie.index.type":
            return _INDEX_TYPES[word]
        if key == "hoodie.bulkinsert.sort.mode":
            return _SORT_MODES[word]
        if key == "lakebed.record.index.ordering":
            return {"off": "off", "on": "on", "current": "current"}[word]
        if key == "hoodie.logfile.data.block.format":
            return {"avro": "avro", "parquet": "parquet"}[word]
        if kind == "bool":
            return {"true": True, "false": False}[word]
        if kind not in ("int", "float"):
            return word
        number = int(word) if kind == "int" else float(word)
        if number < (0 if key == "hoodie.parquet.small.file.limit" else 1):
            raise ValueError(word)
        return number
    except (KeyError, ValueError) as error:
        choices = {
            "hoodie.index.type": "auto, simple, bloom or record_index",
            "hoodie.bulkinsert.sort.mode": "none, partition_sort or global_sort",
            "lakebed.record.index.ordering": "off, on or current",
            "hoodie.logfile.data.block.format": "avro or parquet",
        }
        wanted = choices.get(key) or _WANTED[str(kind)]
        raise InvalidInputError(f"the option {key}={text} is not supported", hint=f"use {wanted}") from error


def _check_other(key: str, value: str) -> None:
    if key not in _ACCEPTED_VALUES:
        _warn_unknown(key)
    else:
        _check_value(key, value, _ACCEPTED_VALUES[key])


def _check_value(key: str, value: str, accepted: tuple[str, ...]) -> None:
    if value.strip().lower() not in accepted:
        hint = f"leave it out, or use {' or '.join(accepted)}" if accepted else "leave it out"
        raise InvalidInputError(f"the option {key}={value} is not supported", hint=hint)


def _warn_unknown(key: str) -> None:
    near = get_close_matches(key, known_options(), n=1)
    nearest = f"; the nearest known one is {near[0]}" if near else ""
    warnings.warn(f"unknown option {key} has no effect{nearest}", stacklevel=5)
