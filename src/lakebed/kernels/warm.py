"""Compiles every function of `kernels.compiled` into this host's cache.

`lakebed warm-up` does it at once: for images, benchmarks and tests. `python -m lakebed.kernels.warm` is the child
process that `background` starts.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module

from lakebed.kernels import background, cache

_NICE = 19


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What a warm-up did: functions that it compiled, those that were there, and the folder, None if there is none."""

    compiled: int
    present: int
    folder: str | None


def warm_up(*, wait: bool = True, tell: Callable[[str], None] | None = None) -> WarmUp | None:
    """Compile whatever is missing, and mark the folder as ready; None if another process does and we do not `wait`."""
    folder = cache.make_folder()
    if folder is None:
        return WarmUp(0, 0, None)
    with background.lock(folder, wait=wait) as is_ours:
        if not is_ours:
            return None
        compiled, present = _compile_all(folder, tell)
        cache.mark_ready(folder)
    return WarmUp(compiled, present, folder)


def _compile_all(folder: str, tell: Callable[[str], None] | None) -> tuple[int, int]:
    from lakebed.kernels import compiled as package
    from lakebed.kernels.compiled import jit

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    made = 0
    for entry in jit.ENTRIES:
        is_new = entry.compile_into(folder)
        made += is_new
        if tell is not None:
            tell(f"{'compiled' if is_new else 'found'} {entry.name}")
    return made, len(jit.ENTRIES) - made


def main() -> None:
    """Compile in the background: others come first, and one process is enough."""
    with suppress(OSError):
        os.nice(_NICE)
    warm_up(wait=False)


if __name__ == "__main__":
    main()
