"""What goes on beside a write: heartbeats and lease renewals, each on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from lakebed.errors import StorageUnavailableError

_LOG = logging.getLogger(__name__)


class Threads:
    """Runs actions at an interval, or once.

    Threads of actions at an interval are daemons: they never keep a process alive. Those of actions that run once are
    waited for, also by the interpreter when it ends.
    """

    def __init__(self) -> None:
        self._later: list[threading.Thread] = []

    def later(self, action: Callable[[], None]) -> None:
        """Runs `action` once on a thread of its own; here, where none can be started, as when the interpreter ends."""
        thread = threading.Thread(target=action, name="lakebed-later", daemon=False)
        try:
            thread.start()
        except RuntimeError:
            action()
            return
        self._later.append(thread)

    def drain(self) -> None:
        """Returns once every action that was handed to `later` has run."""
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
