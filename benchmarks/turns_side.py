"""One side of `turns`: lakebed of a checkout, measured with the benchmarks of that checkout.

Started with `python -c`, so that both sides run this text, and find `lakebed` and `benchmarks` where PYTHONPATH says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import clustering, compaction, lookup
from benchmarks.peer_lakebed import LakebedPeer, make_session
from benchmarks.serving import serve


class Side(LakebedPeer):
    """What can be asked for; each method is a request."""

    def look_up(self, path: str, keys: list[str]) -> dict[str, Any]:
        """Seconds of warm lookups in one open table, the median; the pass is the second one."""
        lookup.look_up_warm(path, keys)
        return _timed(lambda: lookup.look_up_warm(path, keys)[0].median)

    def look_up_first(self, path: str, keys: list[str]) -> dict[str, Any]:
        """Seconds of the first lookup of a fresh process, without its imports."""
        return _timed(lambda: lookup.first_lookup(path, keys[0])[1])

    def filter(self, path: str, keys: list[str]) -> dict[str, Any]:
        """Seconds of a filtered read for one key, the median."""
        return _timed(lambda: lookup.filter_warm(path, keys).median)

    def compact(self, path: str) -> dict[str, Any]:
        """Seconds of planning and executing a compaction."""
        return _timed(lambda: compaction._compact(Path(path)))

    def cluster(self, path: str) -> dict[str, Any]:
        """Seconds of planning and executing a clustering."""
        return _timed(lambda: clustering.cluster(Path(path)))


def _timed(measure: Callable[[], float]) -> dict[str, Any]:
    """The seconds that a benchmark tells, and the processor time of the whole request, with that of its processes."""
    started = sum(os.times()[:4])
    seconds = measure()
    return {"seconds": seconds, "cpu": sum(os.times()[:4]) - started}


if __name__ == "__main__":
    serve(lambda: Side(make_session() if "--spark" in sys.argv else None))
