"""When file slices are compacted, and which: options by their names here and by those of Apache Hudi."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lakebed.options import parse_option


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """When a compaction is due, and which file slices it takes.

    `trigger` counts delta commits, or seconds, since the last compaction. `strategy` says which slices come first:
    those with the most log bytes, those with the most log files, or all as they come. It takes them until they come to
    `target_io_mib`, unless it is "unbounded". "log_size" and "log_count" leave out slices below their minimum.
    """

    trigger: str = field(default="num_commits", metadata={"hoodie": "hoodie.compact.inline.trigger.strategy"})
    delta_commits: int = field(default=5, metadata={"hoodie": "hoodie.compact.inline.max.delta.commits"})
    delta_seconds: int = field(default=3600, metadata={"hoodie": "hoodie.compact.inline.max.delta.seconds"})
    strategy: str = field(default="log_size", metadata={"hoodie": "hoodie.compaction.strategy"})
    target_io_mib: int = field(default=500 << 10, metadata={"hoodie": "hoodie.compaction.target.io"})
    log_bytes_min: int = field(default=0, metadata={"hoodie": "hoodie.compaction.logfile.size.threshold"})
    log_files_min: int = field(default=0, metadata={"hoodie": "hoodie.compaction.logfile.num.threshold"})

    def __post_init__(self) -> None:
        for each in (f for f in fields(self) if f.type == "str"):
            parse_option(each.metadata["hoodie"], getattr(self, each.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompactionOptions:
    """Which file slices are log-compacted: those with so many log files that no earlier log compaction has merged.

    With `removable` the plan can be cancelled, and a rollback takes it away.
    """

    log_files_min: int = field(default=5, metadata={"hoodie": "hoodie.log.compaction.blocks.threshold"})
    removable: bool = False


def parse_compaction_options(options: Mapping[str, str]) -> CompactionOptions:
    """Compaction options from their `hoodie.*` spellings; all others are left alone."""
    return CompactionOptions(**_parse(options, CompactionOptions))


def parse_log_compaction_options(options: Mapping[str, str], *, removable: bool = False) -> LogCompactionOptions:
    """Log compaction options from their `hoodie.*` spellings; all others are left alone."""
    return LogCompactionOptions(**_parse(options, LogCompactionOptions), removable=removable)


def _parse(options: Mapping[str, str], kind: type[CompactionOptions | LogCompactionOptions]) -> dict[str, Any]:
    spellings = {f.metadata["hoodie"]: f.name for f in fields(kind) if f.metadata}
    return {name: parse_option(key, options[key]) for key, name in spellings.items() if key in options}
