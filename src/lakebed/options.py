"""Read options, and the `hoodie.*` spellings that users have in their jobs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

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
        elif key.startswith("hoodie."):
            _check_other(key, str(value), tuple(by_spelling))
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
        key: str(value) for key, value in options.items() if not key.startswith(("hoodie.", "as.of.")) and key != "path"
    }


def _check_other(key: str, value: str, spellings: tuple[str, ...]) -> None:
    if key not in _ACCEPTED_VALUES:
        near = get_close_matches(key, (*spellings, *_ACCEPTED_VALUES), n=1)
        nearest = f"; the nearest known one is {near[0]}" if near else ""
        warnings.warn(f"unknown read option {key} has no effect{nearest}", stacklevel=4)
    elif value.strip().lower() not in _ACCEPTED_VALUES[key]:
        raise InvalidInputError(
            f"the option {key}={value} is not supported",
            hint="leave it out; lakebed always merges and prunes what it can",
        )
