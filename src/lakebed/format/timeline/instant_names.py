"""Names of timeline files.

    layout   requested                  inflight                  completed
    2        <t>.<action>.requested     <t>.<action>.inflight     <t>_<c>.<action>
    1        <t>.<action>.requested     <t>.<action>.inflight     <t>.<action>

`<t>` is the requested and `<c>` the completion time. Layout 1 knows no completion times: there an instant counts as
completed at the time it was requested. Neither layout spells out "commit" in the name of an inflight commit, and
layout 1 files a pending clustering as a replacecommit.
"""

from __future__ import annotations

from functools import lru_cache

from lakebed.errors import CorruptTableError
from lakebed.model.instant import Instant, InstantTime, instant_time
from lakebed.model.words import Action, State

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
        return _decode(name, layout)
    except ValueError as error:
        path = f"{folder}/{name}" if folder else name
        raise CorruptTableError(f"not the name of an instant ({error})", path=path) from error


@lru_cache(maxsize=1 << 14)
def _decode(name: str, layout: int) -> Instant | None:
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
