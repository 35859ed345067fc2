"""A task that tells which code it ran on; in a module that workers can import."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba.core import event

from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels import cache, choice, sharding


def hash_many(number: int) -> dict[str, Any]:
    """Hash many keys: which module did so, what was compiled for it, and where its code lies."""
    keys = binary_buffers(pa.array([f"{number} {at}" for at in range(10_000)]))
    with event.install_recorder("numba:compile") as recorder:
        sharding.find_shards(*keys, 7, np.empty(10_000, np.int32))
        module = choice.choose("sharding", 10_000).__name__
    return {"module": module, "compilations": len(recorder.buffer), "folder": cache.find_ready()}
