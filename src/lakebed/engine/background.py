"""What goes on beside a write: heartbeats and lease renewals, each on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lakebed.errors import StorageUnavailableError

_LOG = logging.getLogger(__name__)


class Threads:
    """Runs actions at an interval. Threads are daemons: they never keep a process alive."""

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
        _LOG.warning("a beat was missed: %s", error)
        return True
