"""What can be said on the command line about benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is written, how often it is measured (None: as often as the benchmark finds right), and the index.

    `large` looks keys up in the largest index too.
    """

    rows: int = 1_000_000
    batch_rows: int = 100_000
    rounds: int | None = None
    record_index: bool = False
    large: bool = False
