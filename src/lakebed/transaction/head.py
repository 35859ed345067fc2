"""The head record: which instant a holder of the lock was about to complete. Other engines do not look at it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.model.instant import InstantTime, instant_time
from lakebed.storage import Storage
from lakebed.transaction.settle import replace_file

_PATH = ".hoodie/.tickets/.head.json"


@dataclass(frozen=True, slots=True)
class Head:
    """`open` is set from before a commit section writes anything until it ends; `epoch` counts such sections."""

    epoch: int = 0
    open: InstantTime | None = None


def load_head(storage: Storage) -> Head:
    """The head record; an empty one if there is none yet."""
    data = storage.find(_PATH)
    if data is None:
        return Head()
    try:
        found = json.loads(data)
        return Head(int(found["epoch"]), instant_time(found["open"]) if found["open"] else None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(f"not a head record ({error})", path=_PATH, hint="delete the file") from error


def save_head(storage: Storage, head: Head) -> None:
    """Replaces the head record. Only the holder of the lock does that."""
    replace_file(storage, _PATH, json.dumps({"epoch": head.epoch, "open": head.open}).encode())
