"""Names of data files, and of the timeline files that put an instant into a state.

    base file   <file id>_<write token>_<instant>.parquet
    log file    .<file id>_<instant>.log.<version>_<write token>          (no token in old version 6 tables)
    CDC file    .<file id>_<instant>.log.<version>_<write token>.cdc

These are parsed from the right: write token, instant and version have no `_`, but the file id of a metadata-table group
that contains a partition may.

    layout   requested                  inflight                  completed
    2        <t>.<action>.requested     <t>.<action>.inflight     <t>_<c>.<action>
    1        <t>.<action>.requested     <t>.<action>.inflight     <t>.<action>

`<t>` is the requested and `<c>` the completion time. Layout 1 has no completion times: there an instant counts as
completed at the time it was requested. In both layouts the name of an inflight commit leaves out "commit", and layout 1
names a pending clustering as a replacecommit.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lakebed.errors import CorruptTableError
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import Instant, InstantTime, instant_time
from lakebed.model.words import Action, State

_INSTANT = r"(?P<instant>[0-9]{14,20})"
_BASE_FILE = re.compile(
    rf"(?P<file_id>[^./][^/]*)_(?P<token>[A-Za-z0-9-]+)_{_INSTANT}(?P<extension>\.(?:parquet|orc|hfile|lance))"
)
_LOG_FILE = re.compile(
    rf"\.(?P<file_id>[^/]+)_{_INSTANT}\.log\.(?P<version>[0-9]+)"
    r"(?:_(?P<token>[0-9]{1,18}-[0-9]{1,18}-[0-9]{1,18})(?P<cdc>\.cdc)?)?"
)


def decode_data_file_name(name: str, *, size: int | None = None, folder: str = "") -> BaseFile | LogFile | None:
    """The data file of this name, or None for any other file: partitions may hold markers, checksums, foreign files.

    A log file with an impossible version raises CorruptTableError, which names `folder`: it is the one kind of
    broken name that Hudi does not pass over either.
    """
    return _decode_data_file(name, size, folder)


@lru_cache(maxsize=1 << 16)
def _decode_data_file(name: str, size: int | None, folder: str) -> BaseFile | LogFile | None:
    if match := _BASE_FILE.fullmatch(name):
        instant = InstantTime(match["instant"])
        return BaseFile(name, match["file_id"], match["token"], instant, match["extension"], size)
    if match := _LOG_FILE.fullmatch(name):
        return LogFile(
            name=name,
            file_id=match["file_id"],
            instant=InstantTime(match["instant"]),
            version=_log_version(match["version"], f"{folder}/{name}" if folder else name),
            write_token=match["token"] or "",
            is_cdc=match["cdc"] is not None,
            size=size,
        )
    return None


def encode_base_file_name(file_id: str, write_token: str, instant: str, extension: str = ".parquet") -> str:
    """The name of the base file that `instant` writes for a file group."""
    return f"{file_id}_{write_token}_{instant_time(instant)}{extension}"


def encode_log_file_name(file_id: str, instant: str, version: int, write_token: str, is_cdc: bool = False) -> str:
    """The name of a log file; an empty write token leaves the token out, as old version 6 writers did."""
    assert write_token or not is_cdc, "a CDC file has a write token"
    token = f"_{write_token}" if write_token else ""
    return f".{file_id}_{instant_time(instant)}.log.{version}{token}{'.cdc' if is_cdc else ''}"


def log_merge_order(log: LogFile) -> tuple[str, int, tuple[int, ...], bool]:
    """Sort key of the log files of a slice: later ones are merged on top of earlier ones."""
    token = tuple(int(part) for part in log.write_token.split("-") if part)
    return log.instant, log.version, token, log.is_cdc


def _log_version(digits: str, path: str) -> int:
    # Java's int; the length goes first because Python refuses to convert thousands of digits.
    if len(digits) > 10 or int(digits) > 0x7FFFFFFF:
        raise CorruptTableError("the log file's version is out of range", path=path)
    return int(digits)


_LAYOUTS = (1, 2)
_PENDING: dict[int, dict[str, Action]] = {
    1: {str(action): action for action in Action if action is not Action.CLUSTERING},
    2: {str(action): action for action in Action},
}
_COMPLETED: dict[str, Action] = {str(action): action for action in Action if action.when_completed is action}


def encode_instant_name(instant: Instant, *, layout: int) -> str:
    """The name of the timeline file that puts `instant` into its state."""
    assert layout in _LAYOUTS, layout
    requested, action = instant.requested_at, instant.action
    if instant.state is State.COMPLETED:
        times = requested if layout == 1 else f"{requested}_{instant.completed_at}"
        return f"{times}.{action.when_completed}"
    if action is Action.COMMIT and instant.state is State.INFLIGHT:
        return f"{requested}.inflight"
    if action is Action.CLUSTERING and layout == 1:
        action = Action.REPLACE_COMMIT
    return f"{requested}.{action}.{instant.state}"


def decode_instant_name(name: str, *, layout: int, folder: str = "") -> Instant | None:
    """The instant a file name stands for; None for other files of the folder and for actions we do not know.

    A name with an action but without well-formed times raises CorruptTableError.
    """
    assert layout in _LAYOUTS, layout
    if name.startswith("."):
        return None
    try:
        return _decode_instant(name, layout)
    except ValueError as error:
        path = f"{folder}/{name}" if folder else name
        raise CorruptTableError(f"not the name of an instant ({error})", path=path) from error


@lru_cache(maxsize=1 << 14)
def _decode_instant(name: str, layout: int) -> Instant | None:
    match name.split("."):
        case [requested, "inflight"]:
            return Instant(instant_time(requested), Action.COMMIT, State.INFLIGHT)
        case [requested, action, "requested" | "inflight" as state] if action in _PENDING[layout]:
            return Instant(instant_time(requested), _PENDING[layout][action], State(state))
        case [times, action] if action in _COMPLETED:
            requested_at, completed_at = _decode_times(times, layout)
            return Instant(requested_at, _COMPLETED[action], State.COMPLETED, completed_at)
    return None


def _decode_times(times: str, layout: int) -> tuple[InstantTime, InstantTime]:
    if layout == 1:
        return instant_time(times), instant_time(times)
    requested, _, completed = times.partition("_")
    return instant_time(requested), instant_time(completed)
