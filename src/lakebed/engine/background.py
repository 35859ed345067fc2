"""Background threads of a write: heartbeats, lease renewals, and work that may end after the call."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from lakebed.errors import StorageUnavailableError

_LOG = logging.getLogger(__name__)


class Threads:
    """Runs actions at an interval, or once, each on a thread of its own.

    Periodic actions run on daemon threads and never keep a process alive. One-time actions are waited for, also by the
    interpreter at exit.
    """

    def __init__(self) -> None:
        self._later: list[threading.Thread] = []

    def later(self, action: Callable[[], None]) -> None:
        """Runs `action` once on a new thread; on this one if none can be started, as at interpreter exit."""
        thread = threading.Thread(target=action, name="lakebed-later", daemon=False)
        try:
            thread.start()
        except RuntimeError:
            action()
            return
        self._later.append(thread)

    def drain(self) -> None:
        """Waits for every action given to `later`."""
        for thread in tuple(self._later):
            thread.join()
            with suppress(ValueError):  # Another thread of the process may have waited for it, too.
                self._later.remove(thread)

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        """Runs `action` at that interval until it returns False or the returned function is called."""
        stopped = threading.Event()

        def repeat() -> None:
            while not stopped.wait(seconds) and _goes_on(action):
                pass

        thread = threading.Thread(target=repeat, name="lakebed-background", daemon=True)
        thread.start()

        def stop() -> None:
            stopped.set()
            if thread is not threading.current_thread():
                thread.join()

        return stop


def _goes_on(action: Callable[[], bool]) -> bool:
    """Whether to run the action again; a store that does not answer is no reason to stop."""
    try:
        return action()
    except StorageUnavailableError as error:
        _LOG.warning("a periodic action failed and will be retried: %s", error)
        return True
