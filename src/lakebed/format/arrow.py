"""Arrow arrays and kernels for the type checker.

Arrow's stubs know neither kernels on plain Python operands nor the attributes of the arrays that kernels give, so both
are left unchecked here, once, under names that still say what they are.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow.compute

ArrowArray: TypeAlias = Any
"""A `pyarrow.Array`."""

pc: Any = pyarrow.compute
