"""The head record: which instant a holder of the lock was about to complete. Other engines do not look at it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.model.instant import InstantTime, instant_time
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, swap_file

_PATH = ".hoodie/.tickets/.head.json"


@dataclass(frozen=True, slots=True)
class Head:
    """`open` is the instant that a section is to complete, None once it is over; `epoch` counts changes.

    With `changes_config` the section is about to change the table's configuration.
    """

    epoch: int = 0
    open: InstantTime | None = None
    changes_config: bool = False

    @property
    def is_closed(self) -> bool:
        """Whether no section is at work, as far as it says."""
        return self.open is None and not self.changes_config


def load_head(storage: Storage) -> tuple[Head, str | None]:
    """The head record and its etag; an empty one and None if there is none yet."""
    stored = storage.find_with_etag(_PATH)
    if stored is None:
        return Head(), None
    try:
        found = json.loads(stored[0])
        opened = instant_time(found["open"]) if found["open"] else None
        return Head(int(found["epoch"]), opened, bool(found.get("config"))), stored[1]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTableError(f"not a head record ({error})", path=_PATH, hint="delete the file") from error


def close_head(storage: Storage, epoch: int) -> None:
    """Says that the section of that `epoch` is over, unless the record is another holder's by now."""
    head, etag = load_head(storage)
    if head.epoch == epoch:
        swap_head(storage, Head(epoch + 1), etag)


def swap_head(storage: Storage, head: Head, etag: str | None) -> bool:
    """Replaces the head record that was loaded; False if another holder of the lock was faster."""
    document = {"epoch": head.epoch, "open": head.open, **({"config": True} if head.changes_config else {})}
    data = json.dumps(document).encode()
    return create_file(storage, _PATH, data) if etag is None else swap_file(storage, _PATH, data, etag)
