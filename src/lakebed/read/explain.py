"""What a scan will read, and why: values that people and programs can look at."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.storage import Requests


@dataclass(frozen=True, slots=True)
class PruneStep:
    """What one index did for a scan: used or not, and why."""

    index: str
    used: bool
    reason: str
    slices_before: int
    slices_after: int

    def __str__(self) -> str:
        if not self.used:
            return f"{self.index}: not used, {self.reason}"
        return f"{self.index}: {self.slices_before} -> {self.slices_after} file slices, {self.reason}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a scan was planned. `files_from` says where the list of files came from."""

    table: str
    as_of: str | None
    files_from: str
    where: str | None
    steps: tuple[PruneStep, ...]
    slices: int
    slices_merged: int
    bytes: int
    requests: Requests
    """Requests to the store made by planning."""

    @property
    def asked(self) -> str:
        """The requests in a few words."""
        counts = self.requests
        gets = counts.gets + counts.ranged_gets + counts.opens
        return f"{counts.lists} listings and {gets} reads of {counts.bytes_read:,} bytes"

    def __str__(self) -> str:
        lines = [
            f"scan of {self.table}" + (f" as of {self.as_of}" if self.as_of else ""),
            f"  files from {self.files_from}",
            f"  where {self.where}" if self.where else "  no filter",
            *(f"  {step}" for step in self.steps),
            f"  reads {self.slices} file slices ({self.slices_merged} merged with logs), {self.bytes:,} bytes stored",
            f"  planning took {self.asked}",
        ]
        return "\n".join(lines)
