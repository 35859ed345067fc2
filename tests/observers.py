"""An observer that tests ask what it was told."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Recorded:
    phases: list[str] = field(default_factory=list)
    progressed: list[tuple[str, int, int]] = field(default_factory=list)

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def progress(self, what: str, done: int, total: int) -> None:
        self.progressed.append((what, done, total))

    @property
    def steps(self) -> list[tuple[int, int]]:
        return [(done, total) for _, done, total in self.progressed]
