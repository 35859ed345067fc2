"""What a write took: milliseconds by phase, and what finding keys through the record index came to."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from lakebed.index.key_batches import ProbeCounts

METRICS = "lakebed.metrics"
"""Where the extra metadata of a commit has them, as JSON."""


class Phases:
    """Milliseconds of the phases of one write; each ends where the next one begins."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, int] = {}
        self._since = time.perf_counter()

    def end(self, name: str) -> None:
        """The phase that has been going on since the last one ended was this one."""
        now = time.perf_counter()
        self.milliseconds[f"{name}_ms"] = round((now - self._since) * 1000)
        self._since = now


def read_metrics(extra_metadata: Mapping[str, str]) -> dict[str, int]:
    """What the extra metadata of a commit say of it; nothing if lakebed did not write it."""
    try:
        found = json.loads(extra_metadata.get(METRICS, "{}"))
    except ValueError:
        return {}
    return {str(name): number for name, number in found.items() if isinstance(number, int)}


def probe_metrics(counts: ProbeCounts | None) -> dict[str, int]:
    """What finding keys came to; nothing if the record index was not asked."""
    if counts is None:
        return {}
    return {
        "keys_probed": counts.keys,
        "keys_found": counts.hits,
        "shards_probed": counts.shards,
        "cache_hits": counts.cached,
        "cache_misses": counts.built,
        "rows_late": counts.late,
        "records_read": counts.records_read,
        "rows_outside_window": counts.outside,
    }
