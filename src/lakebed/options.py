"""Read and write options, and the `hoodie.*` keys of Hudi jobs that set them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.option_values import FLAG, LONG_MAX, Values, factors, numbers, parse_value, words

ROLLBACK_DELAY = "table_service_rollback_delay"
"""Option in minutes: the delay of rollbacks of table services, from RFC-79 of Apache Hudi."""
# Options of Apache Hudi's readers; only these values match what lakebed does.
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
    "hoodie.schema.on.read.enable": ("false",),
}
_QUERIES = words({kind: kind for kind in ("snapshot", "read_optimized", "incremental")})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read a table."""

    query_type: str = field(default="snapshot", metadata={"hoodie": "hoodie.datasource.query.type", "values": _QUERIES})
    begin_instant: str | None = field(default=None, metadata={"hoodie": "hoodie.datasource.read.begin.instanttime"})
    end_instant: str | None = field(default=None, metadata={"hoodie": "hoodie.datasource.read.end.instanttime"})
    as_of: str | None = field(default=None, metadata={"hoodie": "as.of.instant"})
    use_metadata: bool = field(default=True, metadata={"hoodie": "hoodie.metadata.enable"})

    def __post_init__(self) -> None:
        if self.query_type == "incremental" and self.begin_instant is None:
            raise InvalidInputError(
                "an incremental query needs a start",
                hint="set hoodie.datasource.read.begin.instanttime to an instant, or to 'earliest'",
            )


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Read options from `hoodie.*` keys; other options are ignored, but their values are checked.

    A known option that lakebed does not support raises InvalidInputError.
    """
    check_values(options)
    for key in _ACCEPTED_VALUES:
        if key in options:
            _check_value(key, str(options[key]), _ACCEPTED_VALUES[key])
    return ReadOptions(**_given(ReadOptions, {}, options))


def parse_table_options(options: Mapping[str, str]) -> ReadOptions:
    """Like `parse_read_options`, for `open_table`: options that select a kind of query raise InvalidInputError."""
    given = parse_read_options(options)
    for f in fields(ReadOptions):
        if f.name != "use_metadata" and getattr(given, f.name) != f.default:
            raise InvalidInputError(
                f"the option {f.metadata['hoodie']} has no effect in open_table",
                hint="pass it in the call: to_arrow(as_of=...), to_arrow(mode=...), changes(since, until)",
            )
    return given


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the object store: credentials, endpoints and the like."""
    return {
        key: str(value)
        for key, value in options.items()
        if not key.startswith(("hoodie.", "lakebed.", "as.of.")) and key not in ("path", ROLLBACK_DELAY)
    }


# Options of Apache Hudi's writers without effect here: sizes of its Spark stages, its caches, what lakebed always does.
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
_MERGE_MODES = ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING")
_OF_CREATION = {
    "hoodie.datasource.write.hive_style_partitioning": words({"true": "true", "false": "false"}),
    "hoodie.datasource.write.partitionpath.urlencode": words({"true": "true", "false": "false"}),
    "hoodie.record.merge.mode": words({mode.lower(): mode for mode in _MERGE_MODES}, named=_MERGE_MODES),
    "hoodie.table.timeline.timezone": words({"utc": "UTC", "local": "LOCAL"}, named=("UTC", "LOCAL")),
}
"""Properties that create_table gives a table, as it spells them; writes find them there."""
_POLICIES = ("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS")
_TRIGGERS = ("num_commits", "num_commits_after_last_request", "time_elapsed", "num_and_time", "num_or_time")
_STRATEGIES = {
    "log_size": "LogFileSizeBasedCompactionStrategy",
    "log_count": "LogFileNumBasedCompactionStrategy",
    "bounded_io": "BoundedIOCompactionStrategy",
    "unbounded": "UnBoundedCompactionStrategy",
}
"""Compaction strategies: our names, and the equivalent classes of Apache Hudi."""


def _parse_strategy(text: str) -> str:
    known = {**{name: name for name in _STRATEGIES}, **{kind.lower(): name for name, kind in _STRATEGIES.items()}}
    return known[text.strip().lower().rpartition(".")[2]]


_CLEAN_POLICY = words({name.lower(): name for name in _POLICIES}, named=_POLICIES)
_HOURS = numbers(most=1_000_000)  # More than instant times can span.
_ANY_COUNT = numbers(least=0)
_BYTES = numbers(most=LONG_MAX)
_OF_SERVICES = {
    "hoodie.clean.commits.retained": numbers(),
    "hoodie.clean.fileversions.retained": numbers(),
    "hoodie.clean.hours.retained": _HOURS,
    "hoodie.clean.incremental.enabled": FLAG,
    "hoodie.clean.policy": _CLEAN_POLICY,
    "hoodie.cleaner.commits.retained": numbers(),
    "hoodie.cleaner.fileversions.retained": numbers(),
    "hoodie.cleaner.hours.retained": _HOURS,
    "hoodie.cleaner.incremental.mode": FLAG,
    "hoodie.cleaner.policy": _CLEAN_POLICY,
    "hoodie.clustering.plan.strategy.max.bytes.per.group": _BYTES,
    "hoodie.clustering.plan.strategy.max.num.groups": numbers(),
    "hoodie.clustering.plan.strategy.partition.selected": None,
    "hoodie.clustering.plan.strategy.small.file.limit": _BYTES,
    "hoodie.clustering.plan.strategy.sort.columns": None,
    "hoodie.clustering.plan.strategy.target.file.max.bytes": _BYTES,
    "hoodie.compact.inline.max.delta.commits": _ANY_COUNT,
    "hoodie.compact.inline.max.delta.seconds": _ANY_COUNT,
    "hoodie.compact.inline.trigger.strategy": words({name: name for name in _TRIGGERS}),
    "hoodie.compaction.logfile.num.threshold": _ANY_COUNT,
    "hoodie.compaction.logfile.size.threshold": numbers(0, LONG_MAX),
    "hoodie.compaction.strategy": Values(f"{', '.join(_STRATEGIES)} or the class that does the same", _parse_strategy),
    "hoodie.compaction.target.io": numbers(0, LONG_MAX),
    "hoodie.keep.max.commits": numbers(),
    "hoodie.keep.min.commits": numbers(),
    "hoodie.layout.optimize.strategy": words(
        {"linear": "linear", "zorder": "z-order", "z-order": "z-order", "hilbert": "hilbert"},
        named=("linear", "zorder", "hilbert"),
    ),
    "hoodie.log.compaction.blocks.threshold": _ANY_COUNT,
}
"""Options of table services and their values; None: names of the table."""
# Options that a call's name or arguments replace.
_SAID_IN_CALLS = {
    "hoodie.datasource.write.operation": "call the method: table.upsert(rows), table.insert(rows), table.delete(keys)",
    "hoodie.datasource.write.partitionpath.field": 'pass it to create_table(..., partition_by="city")',
    "hoodie.datasource.write.precombine.field": 'pass it to create_table(..., ordering="ts")',
    "hoodie.datasource.write.recordkey.field": 'pass it to create_table(..., key="id")',
    "hoodie.datasource.write.table.name": "use hoodie.table.name in the options of create_table",
    "hoodie.datasource.write.table.type": 'pass it to create_table(..., table_type="mor")',
    "hoodie.datasource.write.partitions.to.delete": "call table.delete_partitions(paths)",
    "hoodie.table.ordering.fields": 'pass it to create_table(..., ordering="ts")',
    "hoodie.table.partition.fields": 'pass it to create_table(..., partition_by="city")',
    "hoodie.table.precombine.field": 'pass it to create_table(..., ordering="ts")',
    "hoodie.table.recordkey.fields": 'pass it to create_table(..., key="id")',
    "hoodie.table.type": 'pass it to create_table(..., table_type="mor")',
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
INDEX_SWITCHES = (
    "hoodie.metadata.enable",
    "hoodie.metadata.index.column.stats.enable",
    "hoodie.metadata.index.partition.stats.enable",
    "hoodie.metadata.index.bloom.filter.enable",
    "hoodie.metadata.record.index.enable",
    "hoodie.metadata.global.record.level.index.enable",
    "hoodie.metadata.record.level.index.enable",
)
"""Options that switch an index on or off; its kind says which index."""
_INDEX_TYPES = words(
    {
        "auto": "auto",
        "simple": "simple",
        "bloom": "bloom",
        "record_index": "record",
        "record_level": "record",
        "global_record_level_index": "record_global",
        "record_level_index": "record_partitioned",
    }
)
_SORT_MODES = words({"none": "none", "partition_sort": "partition", "global_sort": "global"})
_CODECS = words(
    {"uncompressed": "none", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd", "lz4": "lz4", "lz4_raw": "lz4"}
)
_LOG_FORMATS = words({"avro": "avro", "parquet": "parquet"})
_MISSES = numbers(most=10_000)
_SHARDS = numbers(most=10_000)
SET_NULL = "hoodie.write.set.null.for.missing.columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How to write to a table.

    `lock` has the `hoodie.write.lock.*` options as given, `indexes` the values of `INDEX_SWITCHES`. A new data
    partition gets `partition_shards` shards in a partitioned record index.
    """

    index: str = field(default="auto", metadata={"hoodie": "hoodie.index.type", "values": _INDEX_TYPES})
    sort_mode: str = field(default="none", metadata={"hoodie": "hoodie.bulkinsert.sort.mode", "values": _SORT_MODES})
    target_file_bytes: int = field(
        default=120 << 20, metadata={"hoodie": "hoodie.parquet.max.file.size", "values": _BYTES}
    )
    small_file_bytes: int = field(
        default=100 << 20, metadata={"hoodie": "hoodie.parquet.small.file.limit", "values": numbers(0, LONG_MAX)}
    )
    compression: str = field(
        default="snappy", metadata={"hoodie": "hoodie.parquet.compression.codec", "values": _CODECS}
    )
    log_format: str = field(
        default="parquet", metadata={"hoodie": "hoodie.logfile.data.block.format", "values": _LOG_FORMATS}
    )
    record_positions: bool = field(default=True, metadata={"hoodie": "hoodie.write.record.positions"})
    combine_inserts: bool = field(default=False, metadata={"hoodie": "hoodie.combine.before.insert"})
    sets_null: bool = field(default=False, metadata={"hoodie": SET_NULL})
    reconciles: bool = field(default=False, metadata={"hoodie": "hoodie.datasource.write.reconcile.schema"})
    heartbeat_ms: int = field(default=60_000, metadata={"hoodie": "hoodie.client.heartbeat.interval_in_ms"})
    heartbeat_misses: int = field(
        default=2, metadata={"hoodie": "hoodie.client.heartbeat.tolerable.misses", "values": _MISSES}
    )
    service_delay_minutes: int = field(default=10, metadata={"hoodie": ROLLBACK_DELAY, "values": numbers(0)})
    moves_rows: bool = field(default=True, metadata={"hoodie": "hoodie.record.index.update.partition.path"})
    metadata_log_compaction: bool = field(default=False, metadata={"hoodie": "hoodie.metadata.log.compaction.enable"})
    metadata_log_blocks_min: int = field(
        default=5, metadata={"hoodie": "hoodie.metadata.log.compaction.blocks.threshold"}
    )
    lock: Mapping[str, str] = field(default_factory=dict)
    indexes: Mapping[str, bool] = field(default_factory=dict)
    partition_shards: int = 1

    @property
    def fills_missing(self) -> bool:
        """Whether columns that rows lack are set to null; either option enables it, as in Apache Hudi."""
        return self.sets_null or self.reconciles

    @property
    def metadata_log_blocks(self) -> int | None:
        """Number of log files from which those of a metadata-table shard are merged; None: never."""
        return self.metadata_log_blocks_min if self.metadata_log_compaction else None


_WRITE_ALIASES = {"hoodie.table.service.rollback.delay.minutes": ROLLBACK_DELAY}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """Default numbers of shards of a new record index, and the contents of its entries."""

    global_min: int = field(
        default=10,
        metadata={"hoodie": "hoodie.metadata.global.record.level.index.min.filegroup.count", "values": _SHARDS},
    )
    global_max: int = field(
        default=10_000,
        metadata={"hoodie": "hoodie.metadata.global.record.level.index.max.filegroup.count", "values": _SHARDS},
    )
    partitioned_min: int = field(
        default=1, metadata={"hoodie": "hoodie.metadata.record.level.index.min.filegroup.count", "values": _SHARDS}
    )
    partitioned_max: int = field(
        default=10, metadata={"hoodie": "hoodie.metadata.record.level.index.max.filegroup.count", "values": _SHARDS}
    )
    growth: float = field(
        default=2.0,
        metadata={"hoodie": "hoodie.metadata.record.index.growth.factor", "values": factors(1, 1_000_000)},
    )
    shard_bytes_max: int = field(
        default=1 << 30, metadata={"hoodie": "hoodie.metadata.record.index.max.filegroup.size", "values": _BYTES}
    )
    ordering: str = field(
        default="off",
        metadata={
            "hoodie": "lakebed.record.index.ordering",
            "values": words({word: word for word in ("off", "on", "current")}),
        },
    )
    check_seconds: int = field(
        default=60,
        metadata={
            "hoodie": "hoodie.metadata.index.check.timeout.seconds",
            "values": numbers(0, 86_400),
        },
    )
    """How long a build waits for writes of other engines that were in flight before it."""

    @property
    def global_sizing(self) -> tuple[int, int, float, int]:
        """Minimum and maximum number of shards of a global index, growth factor, and maximum shard size in bytes."""
        return self.global_min, self.global_max, self.growth, self.shard_bytes_max

    @property
    def partitioned_sizing(self) -> tuple[int, int, float, int]:
        """The same, for each data partition of a partitioned index."""
        return self.partitioned_min, self.partitioned_max, self.growth, self.shard_bytes_max


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineOptions:
    """Which table services follow a write in its process when they are due, and whether runner passes cluster.

    Fields that end in `commits` are numbers of writes between two runs. With `removable`, writers may cancel plans of
    clusterings and log compactions, unless a call says otherwise.
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
    removable: bool = field(default=False, metadata={"hoodie": "lakebed.services.removable"})


_INLINE_ALIASES = {
    "hoodie.clean.max.commits": "hoodie.clean.trigger.max.commits",
    "hoodie.datasource.clustering.async.enable": "hoodie.clustering.async.enabled",
    "hoodie.datasource.clustering.inline.enable": "hoodie.clustering.inline",
}
_INLINE_OPTIONS = (*(f.metadata["hoodie"] for f in fields(InlineOptions)), *_INLINE_ALIASES)


def parse_inline_options(options: Mapping[str, str]) -> InlineOptions:
    """Options of services that follow writes, from `hoodie.*` keys; all others are ignored."""
    return InlineOptions(**_given(InlineOptions, _INLINE_ALIASES, options))


_INDEX_ALIASES = {
    "hoodie.metadata.record.index.min.filegroup.count": "hoodie.metadata.global.record.level.index.min.filegroup.count",
    "hoodie.metadata.record.index.max.filegroup.count": "hoodie.metadata.global.record.level.index.max.filegroup.count",
    "hoodie.metadata.partitioned.record.index.min.filegroup.count": (
        "hoodie.metadata.record.level.index.min.filegroup.count"
    ),
    "hoodie.metadata.partitioned.record.index.max.filegroup.count": (
        "hoodie.metadata.record.level.index.max.filegroup.count"
    ),
}
"""Keys of earlier releases."""
_INDEX_OPTIONS = (*(f.metadata["hoodie"] for f in fields(IndexOptions)), *_INDEX_ALIASES)


def parse_index_options(options: Mapping[str, str]) -> IndexOptions:
    """Options of new indexes from `hoodie.*` keys; all others are ignored.

    If one of two limits is given, the default of the other is adapted to it.
    """
    given = _given(IndexOptions, _INDEX_ALIASES, options)
    for kind in ("global", "partitioned"):
        least, most = given.get(f"{kind}_min"), given.get(f"{kind}_max")
        if least is not None and most is not None and least > most:
            raise InvalidInputError(
                f"a {kind} record index cannot have at least {least} shards and at most {most}",
                hint="set .max.filegroup.count to at least .min.filegroup.count, or leave one of them out",
            )
        if least is not None and most is None:
            given[f"{kind}_max"] = max(least, getattr(_NEW_INDEX, f"{kind}_max"))
        if most is not None and least is None:
            given[f"{kind}_min"] = min(most, getattr(_NEW_INDEX, f"{kind}_min"))
    return IndexOptions(**given)


_NEW_INDEX = IndexOptions()


def parse_option(key: str, value: object) -> Any:
    """The parsed value of an option with words or numbers as values; else its text."""
    values = _VALUES.get(key)
    return str(value) if values is None else parse_value(key, value, values)


def check_values(options: Mapping[str, str]) -> None:
    """InvalidInputError if an option of any part of lakebed has a word or number that it does not allow."""
    for key, value in options.items():
        parse_option(key, value)


def _given(
    kind: type[ReadOptions | WriteOptions | IndexOptions | InlineOptions],
    aliases: Mapping[str, str],
    options: Mapping[str, str],
) -> dict[str, Any]:
    """The options for the fields of a dataclass, by field name; an alias counts only if the option is not set."""
    given: dict[str, Any] = {}
    for f in fields(kind):
        key = f.metadata.get("hoodie")
        spellings = [key, *(alias for alias, meant in aliases.items() if meant == key)]
        found = next((spelling for spelling in spellings if spelling in options), None)
        if found is not None:
            given[f.name] = parse_option(found, options[found])
    return given


def _field_values() -> dict[str, Values]:
    by_type = {"bool": FLAG, "int": numbers()}
    found: dict[str, Values | None] = {}
    for kind in (ReadOptions, WriteOptions, IndexOptions, InlineOptions):
        for f in fields(kind):
            if f.metadata:
                found[f.metadata["hoodie"]] = f.metadata.get("values") or by_type.get(str(f.type))
    for alias, key in (*_WRITE_ALIASES.items(), *_INDEX_ALIASES.items(), *_INLINE_ALIASES.items()):
        found[alias] = found[key]
    return {key: values for key, values in found.items() if values is not None}


_VALUES: Mapping[str, Values] = {
    **dict.fromkeys(INDEX_SWITCHES, FLAG),
    **_field_values(),
    **_OF_CREATION,
    **{key: values for key, values in _OF_SERVICES.items() if values is not None},
}
"""The allowed values of every option with words or numbers as values."""


def known_options() -> dict[str, str]:
    """Every `hoodie.*` option that lakebed knows, with or without effect, and the values that it may have."""
    kinds = (ReadOptions, WriteOptions, IndexOptions, InlineOptions)
    supported = [f.metadata["hoodie"] for kind in kinds for f in fields(kind) if f.metadata]
    aliases = (*_WRITE_ALIASES, *_INDEX_ALIASES, *_INLINE_ALIASES)
    known = dict.fromkeys(
        (*_SAID_IN_CALLS, *supported, *aliases, *_OF_CREATION, *_OF_SERVICES, *INDEX_SWITCHES), "supported"
    )
    known.update(dict.fromkeys(_WITHOUT_EFFECT, "no effect"))
    for key, values in {**_ACCEPTED_VALUES, **_WRITE_VALUES}.items():
        known[key] = f"only {' or '.join(values)}" if any(values) else "refused"
    return known


def warn_of_unknown(options: Mapping[str, str]) -> None:
    """Warns of each unknown `hoodie.*` option, with the nearest known name.

    Called once where a user's options come in, because they are parsed many times.
    """
    known = {*known_options(), *INDEX_SWITCHES}
    for key in options:
        if key.startswith("hoodie.") and key not in known and not key.startswith("hoodie.write.lock."):
            _warn_unknown(key)


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Write options from `hoodie.*` keys; options of the store are ignored.

    A known option that lakebed does not support raises InvalidInputError, and so does a value that is not allowed.
    """
    check_values(options)
    for key, value in options.items():
        if key in _SAID_IN_CALLS:
            raise InvalidInputError(f"the option {key} has no effect here", hint=_SAID_IN_CALLS[key])
        if key in _WRITE_VALUES:
            _check_value(key, str(value), _WRITE_VALUES[key])
    return WriteOptions(
        **_given(WriteOptions, _WRITE_ALIASES, options),
        lock={k: str(v) for k, v in options.items() if k.startswith("hoodie.write.lock.")},
        indexes={key: parse_option(key, options[key]) for key in INDEX_SWITCHES if key in options},
        partition_shards=parse_index_options(options).partitioned_min,
    )


def _check_value(key: str, value: str, accepted: tuple[str, ...]) -> None:
    if value.strip().lower() not in accepted:
        hint = f"leave it out, or use {' or '.join(accepted)}" if any(accepted) else "leave it out"
        raise InvalidInputError(f"the option {key}={value} is not supported", hint=hint)


def _warn_unknown(key: str) -> None:
    near = get_close_matches(key, known_options(), n=1)
    nearest = f"; the nearest known one is {near[0]}" if near else ""
    warnings.warn(f"unknown option {key} has no effect{nearest}", stacklevel=_callers_level())


def _callers_level() -> int:
    """The `stacklevel` of the caller of lakebed, for warnings."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "lakebed":
        level, frame = level + 1, frame.f_back
    return level
