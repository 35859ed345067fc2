"""When file slices are compacted, and which: options by their names here and by those of Apache Hudi."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lakebed.errors import InvalidInputError

_TRIGGERS = ("num_commits", "num_commits_after_last_request", "time_elapsed", "num_and_time", "num_or_time")
_STRATEGIES = {
    "log_size": "logfilesizebasedcompactionstrategy",
    "log_count": "logfilenumbasedcompactionstrategy",
    "bounded_io": "boundediocompactionstrategy",
    "unbounded": "unboundedcompactionstrategy",
}
"""Our names, and the classes of Apache Hudi that decide alike."""


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
        _check_choice("hoodie.compact.inline.trigger.strategy", self.trigger, _TRIGGERS)
        _check_choice("hoodie.compaction.strategy", self.strategy, tuple(_STRATEGIES))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompactionOptions:
    """Which file slices are log-compacted: those with so many log files that no earlier log compaction has merged.

    With `removable` the plan can be cancelled, and a rollback takes it away.
    """

    log_files_min: int = field(default=5, metadata={"hoodie": "hoodie.log.compaction.blocks.threshold"})
    removable: bool = False


def parse_compaction_options(options: Mapping[str, str]) -> CompactionOptions:
    """Compaction options from their `hoodie.*` spellings; all others are left alone."""
    return CompactionOptions(**_parse(options, CompactionOptions, {"strategy": _parse_strategy, "trigger": str.lower}))


def parse_log_compaction_options(options: Mapping[str, str], *, removable: bool = False) -> LogCompactionOptions:
    """Log compaction options from their `hoodie.*` spellings; all others are left alone."""
    return LogCompactionOptions(**_parse(options, LogCompactionOptions, {}), removable=removable)


def _parse(
    options: Mapping[str, str],
    kind: type[CompactionOptions | LogCompactionOptions],
    texts: Mapping[str, Callable[[str], str]],
) -> dict[str, Any]:
    spellings = {f.metadata["hoodie"]: f.name for f in fields(kind) if f.metadata}
    given: dict[str, Any] = {}
    for key, value in options.items():
        if key in spellings:
            name = spellings[key]
            given[name] = texts[name](value.strip()) if name in texts else _number(key, value)
    return given


def _parse_strategy(text: str) -> str:
    """Our name of a strategy that is given by it or by the class of Apache Hudi."""
    known = {class_name: name for name, class_name in _STRATEGIES.items()}
    word = text.lower()
    return known.get(word.rpartition(".")[2], word)


def _number(key: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidInputError(f"the option {key}={text} is not supported", hint="use a number, 0 or above")
    return number


def _check_choice(key: str, word: str, choices: tuple[str, ...]) -> None:
    if word not in choices:
        raise InvalidInputError(f"the option {key}={word} is not supported", hint=f"use one of {', '.join(choices)}")
