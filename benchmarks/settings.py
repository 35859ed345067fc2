"""What can be said on the command line about benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is written, how often it is measured (None: as often as the benchmark finds right), and the index.

    `large` looks keys up in the largest index too, `spark` measures cold starts on Spark. `base` is another checkout,
    to be measured or walked beside this one, and `only` names the figures of `turns` that are wanted.
    """

    rows: int = 1_000_000
    batch_rows: int = 100_000
    rounds: int | None = None
    record_index: bool = False
    large: bool = False
    spark: bool = False
    base: Path | None = None
    only: tuple[str, ...] = ()
